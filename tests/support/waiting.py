"""Waiting for what another task, process or server does, where none of them sets an event."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

SECONDS = 240.0  # a busy machine may take that long; who succeeds sooner does not wait

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.2
# What has not come for long will hardly come in the next moment.
_SHARE_OF_THE_WAIT = 0.05
# A question may be a list of all that a server has: to ask on and on would keep it, and whoever is
# waited for, from their work.
_TIMES_THE_QUESTION, _MOST_SECONDS = 2.0, 0.5


def pause_seconds(waited_seconds: float, question_seconds: float) -> float:
    """How long to wait before a condition is looked at again."""
    usual = min(_LONGEST_SECONDS, _SHARE_OF_THE_WAIT * waited_seconds)
    polite = min(_MOST_SECONDS, _TIMES_THE_QUESTION * question_seconds)
    return max(_SHORTEST_SECONDS, usual, polite)


class _Wait:
    """One wait, from now on."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._began = self._asked = time.monotonic()

    def asks(self) -> None:
        """The condition is about to be looked at."""
        self._asked = time.monotonic()

    def pause_seconds(self) -> float:
        """It did not hold; AssertionError if it should have by now."""
        now = time.monotonic()
        waited = now - self._began
        assert waited < self._seconds, f"not within {self._seconds:g} s: {self._what}"
        return pause_seconds(waited, now - self._asked)


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str = "the condition",
    *,
    seconds: float = SECONDS,
) -> None:
    """Poll until the condition holds; the test fails with `what` if it does not in time."""
    wait = _Wait(what, seconds)
    while True:
        wait.asks()
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        await asyncio.sleep(wait.pause_seconds())


def wait_until(
    condition: Callable[[], bool], what: str = "the condition", *, seconds: float = SECONDS
) -> None:
    """The same in a thread that has no event loop."""
    wait = _Wait(what, seconds)
    wait.asks()
    while not condition():
        time.sleep(wait.pause_seconds())
        wait.asks()
