"""`bigfleet provider` as a process of its own, on an address that survives its restarts."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.model.errors import Unavailable
from tests.support.listed import listed
from tests.support.ports import free_address
from tests.support.providers import write_inventory
from tests.support.waiting import eventually


class ProviderProcess:
    """The provider called `name`; all its state is in `folder`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self.address, self._observe = free_address(), free_address()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *more: str) -> None:
        """Run it, and return once it answers."""
        flags = ["--listen", self.address, "--observe", self._observe, "--insecure"]
        flags += ["--name", self.name, "--state", str(self._folder / "state")]
        flags += ["--inventory", str(self._folder / "inventory.jsonl"), *more]
        with (self._folder / "provider.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bigfleet", "provider", *flags, stderr=log
            )
        await eventually(self.answers, f"provider {self.name} answers")

    async def answers(self) -> bool:
        """Whether it does now."""
        client = GrpcProvider(self.address)
        try:
            await listed(client)
        except Unavailable:
            return False
        finally:
            await client.close()
        return True

    def pause(self) -> None:
        """It accepts calls from now on and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It answers what it has been asked."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """As a crash of its host would."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def provider_process(
    name: str, folder: Path, *machines: dict[str, Any], start: bool = True
) -> AsyncIterator[ProviderProcess]:
    """A provider of these machines, as changes of `tests.support.providers.LINE`."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nobody else waits yet
    write_inventory(folder / "inventory.jsonl", *machines)
    made = ProviderProcess(name, folder)
    try:
        if start:
            await made.start()
        yield made
    finally:
        await made.kill()
