"""All checks in their order, each to its own end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import grpc.aio

from bigfleet.conformance.judging import Broken, Check, NotChecked, Outcome, Result
from bigfleet.conformance.rules import CHECKS
from bigfleet.conformance.subject import Subject

# Far more than the bounds of any check add up to.
_CHECK_SECONDS = 300.0


async def examine(subject: Subject, checks: Sequence[Check] = CHECKS) -> AsyncIterator[Result]:
    """What becomes of each check, as soon as it is known.

    InvalidInput when there are no machines to try things on. A check that fails leaves the provider
    as well as it can be left; the next one goes on with what there is.
    """
    await subject.require_machines()
    for each in checks:
        began = time.monotonic()
        outcome, seen = await _ended(each, subject)
        yield Result(each, outcome, seen, time.monotonic() - began)


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
        said = error.details() or "no reason given"
        return Outcome.FAILED, f"a call that should succeed: {error.code().name}: {said}"
