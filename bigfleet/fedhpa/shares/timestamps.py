"""Since when a cluster is as it is: what a single look cannot tell."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bigfleet.fedhpa.shares.records import NEVER, HpaReport, Share


@dataclass(frozen=True, slots=True)
class Timestamps:
    """What was noted of one cluster; moments in seconds on the caller's clock."""

    reachable: bool = True
    returned_at: float = NEVER
    scheduled: int = 0
    unscheduled_since: float | None = None
    idle_since: float | None = None


def _not_ahead(timestamps: Timestamps, now: float) -> Timestamps:
    """After the clock was set back nothing began later than now."""
    unscheduled, idle = timestamps.unscheduled_since, timestamps.idle_since
    return replace(
        timestamps,
        returned_at=min(timestamps.returned_at, now),
        unscheduled_since=None if unscheduled is None else min(unscheduled, now),
        idle_since=None if idle is None else min(idle, now),
    )


def update_timestamps(
    before: Timestamps, reachable: bool, share: Share | None, report: HpaReport | None, now: float
) -> Timestamps:
    """`before`, and what this look adds. While replicas still find nodes, patience begins anew."""
    if not reachable:
        return replace(before, reachable=False)
    before = _not_ahead(before, now)
    returned_at = before.returned_at if before.reachable else now
    if report is None or share is None:
        return Timestamps(True, returned_at)
    lacks = report.scheduled < report.desired
    idle = report.current == report.desired <= share.min
    waits = before.unscheduled_since is not None and report.scheduled <= before.scheduled
    return Timestamps(
        True,
        returned_at,
        report.scheduled,
        (before.unscheduled_since if waits else now) if lacks else None,
        (now if before.idle_since is None else before.idle_since) if idle else None,
    )
