"""Self-checks of what a run's times mean: arrivals, milestones and clocks, each with its limit."""

from __future__ import annotations

from loaddriver.judge.audit_section import Audit
from loaddriver.judge.check_limits import CheckLimit
from loaddriver.judge.facts import RunFacts
from loaddriver.judge.milestones import Milestones
from loaddriver.judge.schema import SelfCheck
from loaddriver.judge.self_checks import check_of
from loaddriver.load.workers import MAX_CLOCK_OFFSET_SECONDS

REPEATED = CheckLimit(
    0.01,
    "share of the load's requests",
    "requests of the load that had to be sent more than once",
    "Their delay is part of the waits, but arrivals that an API server has put off follow its "
    "pace, not the plan's.",
    overload=True,
)
MILESTONES = CheckLimit(
    0.01,
    "share of the pods that waited for their node",
    "pods with an unknown milestone of their wait",
    "The time of a hop whose end is unknown counts towards the next one: with many of them, hops "
    "blame the wrong component.",
)
STAMP_ERROR = CheckLimit(
    1.0,
    "seconds",
    "how late receipts by watch were at most, p99",
    "Without an audit log receipts are the timestamps, and waits are as wrong as they are late.",
    overload=True,
)
CLOCK_OFFSET = CheckLimit(
    MAX_CLOCK_OFFSET_SECONDS,
    "seconds",
    "the largest proven offset between clocks of the load, an API server and a shard",
    "Due times are of the load's clock, milestones of the API servers' and shards': hops between "
    "them are wrong by the offset.",
)


def timing_checks(
    facts: RunFacts, milestones: Milestones | None, audit: Audit
) -> dict[str, SelfCheck]:
    """The checks, keyed by their names for gates. What a run cannot know has no limit there."""
    sent, repeated = facts.load.get("requestsSent"), facts.load.get("requestsRetried")
    return {
        "loadRepeatedShare": check_of(
            REPEATED, repeated / sent if sent and repeated is not None else None
        ),
        "milestonesMissingShare": (
            _unknown(MILESTONES, "there is no shard's journal")
            if milestones is None
            else check_of(MILESTONES, milestones.missing_share)
        ),
        **(
            {"stampErrorP99Seconds": check_of(STAMP_ERROR, audit.stamp_error.p99_seconds)}
            if audit.stamp_error
            else {}
        ),
        "clockOffsetSeconds": (
            check_of(CLOCK_OFFSET, facts.clock_offset_seconds)
            if audit.available or facts.load.get("workers")
            else _unknown(CLOCK_OFFSET, "all timestamps are of this machine's clock")
        ),
    }


def _unknown(limit: CheckLimit, why: str) -> SelfCheck:
    return SelfCheck(value=None, unit=limit.unit, what=f"{limit.what}: not compared, because {why}")
