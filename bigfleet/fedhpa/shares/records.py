"""The rules' inputs and outputs: clusters, the user's bounds, and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

UNBOUNDED = 2**31 - 1
NEVER = -math.inf


class Share(NamedTuple):
    """One cluster's share: the minReplicas and maxReplicas of its HPA."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """The user's minReplicas and maxReplicas over all clusters; 1 <= min <= max."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class ClusterBounds:
    """The user's preference for one cluster.

    `min_replicas` >= 1 requires that the cluster is used; `max_replicas` 0 forbids it.
    """

    min_replicas: int = 0
    max_replicas: int = UNBOUNDED

    @property
    def floor(self) -> int:
        """The smallest min that the cluster can have when used."""
        return max(1, self.min_replicas)


@dataclass(frozen=True, slots=True)
class RebalanceConfig:
    """When and how far shares move.

    A cluster keeps `headroom_percent` above what it needs, at least one replica. The share of a new
    or returned cluster is not changed for `stabilization_seconds`; an increased one is kept for
    `cooldown_seconds`. Replicas without a node for `scheduling_timeout_seconds` count as
    unschedulable, and no more are tried there for `retry_seconds`, doubled after each failure. A
    cluster that was opened for a spike is closed after it was idle for `idle_timeout_seconds`. One
    at its min and below `min_usage_percent` of the target usage gives up min; 0 disables that.
    """

    enabled: bool = True
    headroom_percent: int = 10
    stabilization_seconds: float = 120.0
    cooldown_seconds: float = 120.0
    scheduling_timeout_seconds: float = 180.0
    retry_seconds: float = 600.0
    idle_timeout_seconds: float = 600.0
    min_usage_percent: int = 30


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """The settings and time of a decision; `now` in seconds on the caller's clock."""

    config: RebalanceConfig
    now: float


class CapacityLimit(NamedTuple):
    """A cluster could schedule no more than `scheduled` replicas.

    No more are tried until `until`, `wait` seconds after that was last observed.
    """

    scheduled: int
    until: float
    wait: float


@dataclass(frozen=True, slots=True)
class HpaReport:
    """The status of a cluster's HPA: its current and desired replicas.

    `wanted` is desired, or more where it is limited by max; `scheduled` are the replicas that have
    a node; `usage` is the observed metric over its target, None if unknown.
    """

    current: int
    desired: int
    wanted: int
    scheduled: int
    usage: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster as last observed; timestamps are in seconds on the caller's clock.

    `share` is that of its HPA. For an unreachable cluster it is the last known one, and where a
    write's outcome is unknown, the smaller min and the larger max. `deleted_share` is that of an
    HPA that a user deleted. `report` is None while the HPA does not scale. `ready` are the target's
    ready replicas.
    """

    name: str
    bounds: ClusterBounds = ClusterBounds()
    selected: bool = True
    reachable: bool = True
    share: Share | None = None
    deleted_share: Share | None = None
    report: HpaReport | None = None
    ready: int = 0
    known_since: float = NEVER
    unscheduled_since: float | None = None
    idle_since: float | None = None
    increased_at: float = NEVER
    capacity_limit: CapacityLimit | None = None
    avoid_until: float = NEVER

    @property
    def held(self) -> Share | None:
        """Its share in the totals, even if its HPA has to be recreated."""
        return self.share or self.deleted_share

    def is_stable(self, at: DecisionPoint) -> bool:
        """Whether its HPA has been scaling for the stabilization period."""
        return (
            self.reachable
            and self.share is not None
            and self.report is not None
            and at.now - self.known_since >= at.config.stabilization_seconds
        )

    def cannot_schedule(self, at: DecisionPoint) -> bool:
        """Whether it failed to schedule what its HPA wants."""
        since = self.unscheduled_since
        return (
            self.report is not None
            and since is not None
            and (at.now - since >= at.config.scheduling_timeout_seconds)
        )

    def usable(self, at: DecisionPoint) -> int | None:
        """The most replicas that it can schedule; None if no limit is known."""
        if self.report is not None and self.cannot_schedule(at):
            return self.report.scheduled
        return (
            self.capacity_limit.scheduled
            if self.capacity_limit and at.now < self.capacity_limit.until
            else None
        )

    def cap(self, at: DecisionPoint) -> int:
        """The largest max that it can use."""
        usable = self.usable(at)
        return self.bounds.max_replicas if usable is None else min(usable, self.bounds.max_replicas)

    @property
    def at_limit(self) -> bool:
        """Whether only max limits it: current = desired = max, all scheduled."""
        report, share = self.report, self.share
        return (
            report is not None
            and share is not None
            and report.scheduled >= report.current == report.desired == share.max
        )


class Reason(StrEnum):
    """Why a share changes."""

    SPLIT = "first split"
    RESTORED = "its HPA was deleted"
    OPENED = "opened: the clusters in use are at their limit or cannot schedule more"
    JOINED = "min suffices for one more cluster"
    CLOSED = "closed: idle, and the others have capacity"
    LEFT = "not selected, or its preferences cannot be met"
    AT_LIMIT = "at its limit"
    NOT_NEEDED = "not needed there"
    IDLE = "its min is not used there"
    BUSY = "it runs more than its min"
    NOT_PLACEABLE = "cannot be scheduled there"
    EXACT = "to keep the totals exact"


@dataclass(frozen=True, slots=True)
class Write:
    """One HPA is created (`before` None), changed, or deleted (`after` None).

    `increased`: its share grows for its need, which starts the cooldown. `capacity_limit` is the
    newly observed one, if any.
    """

    cluster: str
    before: Share | None
    after: Share | None
    reason: str
    increased: bool = False
    capacity_limit: CapacityLimit | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in order; after a failure, plan again.

    `targets` is the goal. `problems` are messages for the user. `wake_at` is when to reconcile
    again without any change; None if only a change can matter.
    """

    writes: tuple[Write, ...] = ()
    targets: Mapping[str, Share] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    wake_at: float | None = None
