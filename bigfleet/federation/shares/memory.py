"""Since when a cluster is as it is: what a single look cannot tell."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bigfleet.federation.shares.records import NEVER, Report, Share


@dataclass(frozen=True, slots=True)
class Stamps:
    """What was noted of one cluster; moments in seconds on the caller's clock."""

    reachable: bool = True
    returned_at: float = NEVER
    placed: int = 0
    unplaced_since: float | None = None
    idle_since: float | None = None


def _not_ahead(stamps: Stamps, now: float) -> Stamps:
    """After the clock was set back nothing began later than now."""
    unplaced, idle = stamps.unplaced_since, stamps.idle_since
    return replace(
        stamps,
        returned_at=min(stamps.returned_at, now),
        unplaced_since=None if unplaced is None else min(unplaced, now),
        idle_since=None if idle is None else min(idle, now),
    )


def noted(
    before: Stamps, reachable: bool, share: Share | None, report: Report | None, now: float
) -> Stamps:
    """`before`, and what this look adds. While replicas still find nodes, patience begins anew."""
    if not reachable:
        return replace(before, reachable=False)
    before = _not_ahead(before, now)
    returned_at = before.returned_at if before.reachable else now
    if report is None or share is None:
        return Stamps(True, returned_at)
    lacks = report.placed < report.desired
    idle = report.current == report.desired <= share.min
    waits = before.unplaced_since is not None and report.placed <= before.placed
    return Stamps(
        True,
        returned_at,
        report.placed,
        (before.unplaced_since if waits else now) if lacks else None,
        (now if before.idle_since is None else before.idle_since) if idle else None,
    )
