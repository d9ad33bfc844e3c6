"""What can end a run early, as a sentence and an exit code; and work that nothing may end."""

from __future__ import annotations

import asyncio
import errno
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bigfleet.api.kube.client import NO_ANSWER, ApiError
from bigfleet.model.errors import BigFleetError
from loaddriver.errors import ExitCode, InfrastructureError, LoaddriverError
from loaddriver.judge.facts import Accident
from loaddriver.substrates.base import Death, Substrate
from loaddriver.substrates.processes import Supervisor

T = TypeVar("T")

_SAID_LINES = 5
_BUG = "runner-bug.txt"


async def accident_of(
    steps: Coroutine[Any, Any, None], phase: Callable[[], str], logs: Path
) -> Accident | None:
    """Do the steps; what ended them early, if anything did. `phase` is asked when they end."""
    try:
        await steps
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return Accident(
            ExitCode.INTERRUPTED,
            f"Interrupted ({phase()}): what follows is of the part that was played; run it again.",
        )
    except LoaddriverError as error:
        return Accident(error.exit_code, str(error))
    except (BigFleetError, ApiError, *NO_ANSWER) as error:
        return Accident(ExitCode.INFRASTRUCTURE, _plain(error))
    except Exception as error:  # noqa: BLE001  a bug of ours must still end in a report
        (logs / _BUG).write_text(traceback.format_exc())
        return Accident(
            ExitCode.HARNESS_BUG,
            f"A bug in the harness: {error!r}; please report it with {logs / _BUG}.",
        )
    return None


async def undisturbed(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """The result of `work`, which goes on when asked to stop; and whether that was asked."""
    task, asked = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() or current is None:
                raise
            current.uncancel()
            asked = True
    return task.result(), asked


async def raise_death(of: Substrate | Supervisor) -> None:
    """Wait for a death and raise it as an InfrastructureError."""
    raise InfrastructureError(_obituary(await of.first_death()))


def _obituary(death: Death) -> str:
    said = "\n".join(f"  {line}" for line in death.last_lines[-_SAID_LINES:])
    return f"{death.sentence}{f' It said last:{chr(10)}{said}' if said else ''}"


def _plain(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return (
            f"The disk is full: {error.filename or 'while writing results'}. Make room, for "
            "instance by removing old results, and run it again."
        )
    return str(error) or repr(error)
