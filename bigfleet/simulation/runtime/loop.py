"""An event loop whose time jumps from timer to timer, so that no sleep takes real time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# The virtual clock starts here, in seconds since 1970: any moment does.
START_UNIX_SECONDS = 1_800_000_000.0


class NothingLeftToHappen(RuntimeError):
    """Everybody waits for somebody else, and no timer runs: the simulated world has deadlocked."""


class _TimeJumpSelector(selectors.SelectSelector):
    """Waits by moving the time on; the files it is given are never looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftToHappen
        self.now_seconds += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order of their due times, one thread, nothing from outside."""

    def __init__(self) -> None:
        self._selector = _TimeJumpSelector()
        super().__init__(self._selector)

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._selector.now_seconds


class VirtualClock:
    """The time of day in the loop that runs; a `ports.clock.Clock`. `ahead_seconds` is how far it
    is set wrong.
    """

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def unix_seconds(self) -> float:
        """Virtual seconds since 1970-01-01 UTC."""
        return START_UNIX_SECONDS + self.ahead_seconds + asyncio.get_running_loop().time()

    def monotonic_seconds(self) -> float:
        """The same of a clock that nobody sets."""
        return START_UNIX_SECONDS + asyncio.get_running_loop().time()


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of `work` in a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())
