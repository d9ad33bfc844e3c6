"""A shard as a separate process, so that its own cost can be measured."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from loaddriver.record.histograms import Histogram, Series, histograms
from tests.support.ports import free_address
from tests.support.waiting import eventually

START_SECONDS = 60.0
_CYCLES = "bigfleet_shard_cycle_duration_seconds_count"


@dataclass
class ShardProcess:
    """Where it listens and is observed, and what it has used."""

    address: str
    observe: str
    process: asyncio.subprocess.Process

    def cpu_seconds(self) -> float:
        """CPU time of all threads since the start."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        """Its memory."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    async def metrics(self) -> dict[str, float]:
        """Every sample without labels, and sums over those with labels, by name."""
        sums: dict[str, float] = {}
        for family in await self._families():
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    async def histograms(self) -> dict[Series, Histogram]:
        """Its histograms of durations."""
        return histograms(await self._families())

    async def _families(self) -> list[Metric]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.observe}/metrics") as answer,
        ):
            text = await answer.text()
        return list(text_string_to_metric_families(text))

    async def cycles(self) -> int:
        """How many cycles have ended in a decision."""
        told = await self.metrics()
        failed = told.get("bigfleet_shard_cycle_failures_total", 0)
        return int(told.get(_CYCLES, 0) - failed)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        await self.process.wait()


async def decides(shard: ShardProcess, cycles: int = 1) -> None:
    """Return once so many cycles have ended."""

    async def have_ended() -> bool:
        try:
            return await shard.cycles() >= cycles
        except OSError:
            return False

    await eventually(have_ended, f"{cycles} cycles to end", seconds=120)


@asynccontextmanager
async def shard_process(
    provider: str, state: Path, *more: str, port: int = 0
) -> AsyncIterator[ShardProcess]:
    """`bigfleet shard` with `more` flags; ended by SIGTERM, or killed if that does not help."""
    address, observe = f"127.0.0.1:{port}" if port else free_address(), free_address()
    state.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nobody else waits yet
    flags = ["--shard-id", "shard-0", "--listen", address, "--observe", observe, "--insecure"]
    flags += ["--provider", provider, "--state", str(state), *more]
    with (state / "shard.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bigfleet", "shard", *flags, stderr=log
        )
    try:
        yield ShardProcess(address, observe, process)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
