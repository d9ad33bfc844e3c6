"""An event loop with virtual time that jumps from timer to timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# The virtual clock starts here, an arbitrary Unix time.
START_UNIX_SECONDS = 1_800_000_000.0


class NothingLeftToHappen(RuntimeError):
    """All tasks wait and no timer is set: the simulated world has deadlocked."""


class _TimeJumpSelector(selectors.SelectSelector):
    """Waits by advancing the time; ignores its files."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftToHappen
        self.now_seconds += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order of their due times, without external events."""

    def __init__(self) -> None:
        self._selector = _TimeJumpSelector()
        super().__init__(self._selector)

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._selector.now_seconds


class VirtualClock:
    """The time of the running loop; a `ports.clock.Clock`. `ahead_seconds` is its error."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def unix_seconds(self) -> float:
        """Virtual seconds since 1970-01-01 UTC."""
        return START_UNIX_SECONDS + self.ahead_seconds + asyncio.get_running_loop().time()

    def monotonic_seconds(self) -> float:
        """The same without the error."""
        return START_UNIX_SECONDS + asyncio.get_running_loop().time()


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` in a new loop; return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())
