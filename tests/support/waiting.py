"""Waiting for what another task, process or server does, where none of them sets an event."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

SECONDS = 90.0  # a busy machine may take that long; who succeeds sooner does not wait


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str = "the condition",
    *,
    seconds: float = SECONDS,
) -> None:
    """Poll until the condition holds; the test fails with `what` if it does not in time."""
    ends = time.monotonic() + seconds
    while True:
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)


def wait_until(
    condition: Callable[[], bool], what: str = "the condition", *, seconds: float = SECONDS
) -> None:
    """The same in a thread that has no event loop."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
