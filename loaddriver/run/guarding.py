"""Doing something only as long as what it stands on holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

# When a component dies, whoever talks to it often notices before its supervisor does.
_GUARD_GRACE_SECONDS = 1.0


async def guarded(work: Coroutine[Any, Any, None], *guards: Coroutine[Any, Any, None]) -> None:
    """Await `work`; a guard that ends first ends it too, and is expected to raise the reason.

    Work that fails waits a moment for a guard, whose reason is nearer to the cause than its own.
    """
    task = asyncio.create_task(work)
    watching = [asyncio.create_task(guard) for guard in guards]
    try:
        await asyncio.wait({task, *watching}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled() and task.exception() and watching:
            await asyncio.wait(
                watching,
                timeout=_GUARD_GRACE_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        for guard in watching:
            if guard.done():
                guard.result()
        await task
    finally:
        for each in (task, *watching):
            each.cancel()
        await asyncio.gather(task, *watching, return_exceptions=True)
