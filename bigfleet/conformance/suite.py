"""All checks in their order, each to its own end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import grpc.aio

from bigfleet.conformance.expectations import Broken, NotChecked, told
from bigfleet.conformance.judging import Check, Outcome, Result
from bigfleet.conformance.rules import CHECKS
from bigfleet.conformance.subject import Subject

# Far more than the bounds of any check add up to.
_CHECK_SECONDS = 300.0


async def examine(subject: Subject, checks: Sequence[Check] = CHECKS) -> AsyncIterator[Result]:
    """What becomes of each check, as soon as it is known.

    InvalidInput when there are no machines to try things on, or orders are not admitted. A check
    that fails leaves the provider as well as it can be left; the next one goes on with what there
    is.
    """
    await subject.require_machines()
    await subject.require_admission()
    for each in checks:
        began = time.monotonic()
        outcome, seen = await _ended(each, subject)
        yield Result(each, outcome, _printable(seen), time.monotonic() - began)


async def _ended(check: Check, subject: Subject) -> tuple[Outcome, str]:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return Outcome.PASSED, await check.probe(subject)
    except Broken as broken:
        return Outcome.FAILED, str(broken)
    except NotChecked as reason:
        return Outcome.NOT_CHECKED, str(reason)
    except TimeoutError:
        return Outcome.FAILED, f"the check did not end within {_CHECK_SECONDS:g} s"
    except grpc.aio.AioRpcError as error:
        what = ", ".join(getattr(error, "__notes__", ())) or "a call"
        return Outcome.FAILED, f"{what}, which should succeed, ended with {told(error)}"


def _printable(text: str) -> str:
    """On one line; what the provider said may hold anything, also what XML cannot carry."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
