"""Concurrent tasks: run until stopped, until the first completes, cancel and wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


async def run_until_stopped(stop: asyncio.Event, *work: Coroutine[object, object, None]) -> None:
    """Run all `work` until `stop` is set, then cancel it; raises the first error."""

    async def stopped() -> None:
        await stop.wait()

    await run_until_first_completes(stopped(), *work)


async def run_until_first_completes(*work: Coroutine[object, object, None]) -> None:
    """Run all `work` until one task ends, then cancel the others; raises its error."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_stopped_or_failed(stop: asyncio.Event, work: asyncio.Future[None]) -> None:
    """Return once `stop` is set or `work` has ended; raises its error, and never cancels it."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((stopped, work), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    if work.done():
        work.result()


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait until it has ended, ignoring its error."""
    task.cancel()
    await asyncio.wait([task])
