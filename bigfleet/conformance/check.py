"""Checks and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from bigfleet.conformance.subject import Subject


class CheckOutcome(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


# Returns what it observed if the rule holds.
Probe = Callable[[Subject], Awaitable[str]]


@dataclass(frozen=True)
class Check:
    """`rule` is the contract's requirement as a sentence; `probe` tests it."""

    name: str
    rule: str
    probe: Probe


@dataclass(frozen=True)
class Result:
    """The result of a check. `observed` is the evidence, or why the check was skipped."""

    check: Check
    outcome: CheckOutcome
    observed: str
    seconds: float


def check(name: str, rule: str) -> Callable[[Probe], Check]:
    """Make a Check of the decorated probe."""
    return lambda probe: Check(name, rule, probe)
