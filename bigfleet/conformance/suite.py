"""Runs the checks in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import grpc.aio

from bigfleet.conformance.check import Check, CheckOutcome, Result
from bigfleet.conformance.expectations import RuleViolation, Skipped, describe_error
from bigfleet.conformance.rules import CHECKS
from bigfleet.conformance.subject import Subject

# Far more than the sum of the time limits in any check.
_CHECK_TIMEOUT_SECONDS = 300.0


async def run_checks(subject: Subject, checks: Sequence[Check] = CHECKS) -> AsyncIterator[Result]:
    """Run the checks; yield each result as soon as it is known.

    InvalidInput if there are too few machines or the suite is not authorized. A failed check cleans
    up as far as it can, and the next one continues.
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
        return CheckOutcome.FAILED, f"the check timed out after {_CHECK_TIMEOUT_SECONDS:g} s"
    except grpc.aio.AioRpcError as error:
        what = ", ".join(getattr(error, "__notes__", ())) or "a call"
        return (
            CheckOutcome.FAILED,
            f"{what} should succeed but returned {describe_error(error)}",
        )


def _printable(text: str) -> str:
    """Escaped: a provider's message may contain newlines or characters that XML cannot hold."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
