"""A check, and how one ends."""

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


# Returns what it saw when the rule holds.
Probe = Callable[[Subject], Awaitable[str]]


@dataclass(frozen=True)
class Check:
    """`rule` is what the contract demands, as a sentence; `probe` finds out."""

    name: str
    rule: str
    probe: Probe


@dataclass(frozen=True)
class Result:
    """What became of a check. `observed` is the evidence, or what would have been needed."""

    check: Check
    outcome: CheckOutcome
    observed: str
    seconds: float


def check(name: str, rule: str) -> Callable[[Probe], Check]:
    """Make a Check of the decorated probe."""
    return lambda probe: Check(name, rule, probe)
