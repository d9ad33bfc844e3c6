"""A hundred thousand domains, as a hundred million machines have: nothing stalls, nobody waits."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.gc_pauses import bounded_gc_pauses
from bigfleet.services.coordinator import role
from bigfleet.services.coordinator.config import CoordinatorConfig
from controlplane.request import Binaries
from tests.support.fake_shard import FakeShard

pytestmark = pytest.mark.load
DOMAINS = 100_000
# Longer, and the watchdog would move leadership away; machines that run tests may be slow.
_STALL_SECONDS = 0.5
_START_SECONDS = 20.0


class LoopLagMonitor:
    """The longest time that the event loop kept everybody waiting."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._measure())
        try:
            yield
        finally:
            task.cancel()

    async def _measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - before)


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def collections() -> Iterator[None]:
    """Short, as the role has them."""
    with bounded_gc_pauses():
        yield


async def test_a_hundred_thousand_domains_are_given_read_again_and_listed(
    binaries: Binaries, directory: Path
) -> None:
    """Given in reports of a thousand; there again after a restart; listed without a stall."""
    settings = CoordinatorConfig("a", 0, 0, directory, binaries.etcd, {})
    shard, loop_lag = FakeShard("s1"), LoopLagMonitor()
    async with role.serving(settings) as serves, client_of(serves.port) as client:
        await client.call("ListShards", wire.ListShardsRequest(), _START_SECONDS)
        for start in range(0, DOMAINS, 1000):
            seen = [
                wire.DiscoveredDomain(topology_key="rack", topology_value=f"r{n}", machines=1000)
                for n in range(start, start + 1000)
            ]
            report = shard.report()
            report.unowned_domains.extend(seen)
            await client.call("ReportShard", report)
    began = time.monotonic()
    async with (
        role.serving(settings) as serves,
        client_of(serves.port) as client,
        loop_lag.running(),
    ):
        await client.call("ListShards", wire.ListShardsRequest(), _START_SECONDS)
        started = time.monotonic()
        answer = await client.call("ListDomainAssignments", wire.ListDomainAssignmentsRequest())
        listed = time.monotonic()
        ack = await client.call("ReportShard", shard.report())
    assert len(answer.assignments) == DOMAINS
    assert len(ack.instructions) == 500
    print(
        f"start {started - began:.2f} s, list {listed - started:.2f} s, {loop_lag.longest_seconds=}"
    )
    assert loop_lag.longest_seconds < _STALL_SECONDS


def client_of(port: int) -> LeaderClient:
    return LeaderClient([f"127.0.0.1:{port}"])
