"""CPU and memory of components that are no processes of this machine, while the load runs."""

from __future__ import annotations

import asyncio
from typing import Protocol

from loaddriver.process_counters import Readings, UsedSince
from loaddriver.record.cpu import WINDOW_SECONDS, RemoteUse
from loaddriver.substrates.base import OnThisMachine


class ReadCounters(Protocol):
    """Reads the components' counters now; never raises."""

    async def __call__(self, *, only_replaceable: bool = False) -> Readings: ...


class RemoteCpu:
    """Reads all counters at the begin and at the end of the load, as some are megabytes of text;
    between them, while `watch` runs, only those of processes whose end the run survives.
    """

    def __init__(self, read: ReadCounters | None = None) -> None:
        self._read = read or OnThisMachine().process_counters
        self._used: UsedSince | None = None
        self._ended = False

    async def begin(self) -> None:
        """Read what has been used before the load."""
        self._used = UsedSince(await self._read())

    async def watch(self) -> None:
        """Follow until cancelled what may be replaced: counters begin anew with each process."""
        while True:
            await asyncio.sleep(WINDOW_SECONDS)
            if self._used is not None:
                self._used.note(await self._read(only_replaceable=True))

    async def end(self) -> None:
        """Read what has been used until now."""
        if self._used is not None:
            self._used.end(await self._read())
            self._ended = True

    @property
    def use(self) -> RemoteUse:
        """What was used from `begin` to `end`; nothing, and nobody, unless both were called."""
        if self._used is None or not self._ended:
            return RemoteUse()
        used = self._used
        return RemoteUse(dict(used.cpu_seconds), dict(used.peak_memory_bytes), used.unknown)
