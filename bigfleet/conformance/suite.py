"""All checks in their order, each to its own end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import grpc.aio

from bigfleet.conformance.check import Check, CheckOutcome, Result
from bigfleet.conformance.expectations import RuleViolation, Skipped, describe_error
from bigfleet.conformance.rules import CHECKS
from bigfleet.conformance.subject import Subject

# Far more than the bounds of any check add up to.
_CHECK_TIMEOUT_SECONDS = 300.0


async def run_checks(subject: Subject, checks: Sequence[Check] = CHECKS) -> AsyncIterator[Result]:
    """What becomes of each check, as soon as it is known.

    InvalidInput when there are no machines to try things on, or orders are not admitted. A check
    that fails leaves the provider as well as it can be left; the next one goes on with what there
    is.
    """
    await subject.require_machines()
    await subject.require_authorization()
    for each in checks:
        began = time.monotonic()
        outcome, observed = await _run_check(each, subject)
        yield Result(each, outcome, _printable(observed), time.monotonic() - began)


async def _run_check(check: Check, subject: Subject) -> tuple[CheckOutcome, str]:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            return CheckOutcome.PASSED, await check.probe(subject)
    except RuleViolation as broken:
        return CheckOutcome.FAILED, str(broken)
    except Skipped as reason:
        return CheckOutcome.SKIPPED, str(reason)
    except TimeoutError:
        return CheckOutcome.FAILED, f"the check did not end within {_CHECK_TIMEOUT_SECONDS:g} s"
    except grpc.aio.AioRpcError as error:
        what = ", ".join(getattr(error, "__notes__", ())) or "a call"
        return (
            CheckOutcome.FAILED,
            f"{what}, which should succeed, ended with {describe_error(error)}",
        )


def _printable(text: str) -> str:
    """On one line; what the provider said may hold anything, also what XML cannot carry."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
