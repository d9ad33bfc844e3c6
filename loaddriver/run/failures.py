"""Turns what ends a run early into a RunFailure, and shields work from interruption."""

from __future__ import annotations

import asyncio
import errno
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError
from bigfleet.model.errors import BigFleetError
from loaddriver.errors import ExitCode, InfrastructureError, LoaddriverError, LoadProcessError
from loaddriver.judge.facts import RunFailure
from loaddriver.substrates.base import Substrate, UnexpectedExit
from loaddriver.substrates.processes import Supervisor

# When a component dies, its clients often notice before its supervisor does.
_GUARD_GRACE_SECONDS = 1.0


async def guarded(work: Coroutine[Any, Any, None], *guards: Coroutine[Any, Any, None]) -> None:
    """Await `work`; a guard that ends first cancels it, and is expected to raise the reason.

    If `work` fails, guards get a moment to fail too: their error is closer to the cause.
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


T = TypeVar("T")

_LAST_LINES = 5
_BUG = "runner-bug.txt"


async def failure_of(
    steps: Coroutine[Any, Any, None], phase: Callable[[], str], logs: Path
) -> RunFailure | None:
    """Await `steps`; return what ended them early, if anything. `phase` is called when they end."""
    try:
        await steps
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return RunFailure(
            ExitCode.INTERRUPTED,
            f"Interrupted ({phase()}): the report covers only what ran; run it again.",
        )
    except LoaddriverError as error:
        return RunFailure(error.exit_code, str(error))
    except (BigFleetError, ApiError, *CONNECTION_ERRORS) as error:
        return RunFailure(ExitCode.INFRASTRUCTURE, _error_message(error))
    except Exception as error:  # noqa: BLE001  a bug must still end in a report
        (logs / _BUG).write_text(traceback.format_exc())
        return RunFailure(
            ExitCode.HARNESS_BUG,
            f"A bug in the harness: {error!r}; please report it with {logs / _BUG}.",
        )
    return None


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Await `work` despite cancellation; return its result and whether a stop was requested."""
    task, requested = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() or current is None:
                raise
            current.uncancel()
            requested = True
    return task.result(), requested


async def raise_component_death(of: Substrate | Supervisor) -> None:
    """Wait for a component to exit unexpectedly and raise it as an InfrastructureError."""
    raise InfrastructureError(_death_message(await of.first_unexpected_exit()))


async def raise_worker_death(first_exit: Callable[[], Awaitable[UnexpectedExit]]) -> None:
    """Wait for the first end of a worker of the load, and raise it as a LoadProcessError."""
    message = _death_message(await first_exit())
    raise LoadProcessError(f"load worker {message}\nNobody else may play its events: the run ends.")


def _death_message(unexpected_exit: UnexpectedExit) -> str:
    output = "\n".join(f"  {line}" for line in unexpected_exit.last_lines[-_LAST_LINES:])
    return f"{unexpected_exit.sentence}{f' Last log lines:{chr(10)}{output}' if output else ''}"


def _error_message(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return (
            f"The disk is full: {error.filename or 'while writing results'}. Make room, for "
            "instance by removing old results, and run it again."
        )
    return str(error) or repr(error)
