"""Since when a cluster is in its state, over several observations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bigfleet.fedhpa.shares.records import NEVER, HpaReport, Share


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Timestamps of one cluster, in seconds on the caller's clock."""

    reachable: bool = True
    returned_at: float = NEVER
    scheduled: int = 0
    unscheduled_since: float | None = None
    idle_since: float | None = None


def _not_ahead(timestamps: Timestamps, now: float) -> Timestamps:
    """Limit timestamps to `now`, after the clock was set back."""
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
    """`before` with an observation. While replicas are being scheduled, the timeout restarts."""
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
