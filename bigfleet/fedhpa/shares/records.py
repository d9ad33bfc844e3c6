"""What is known of each cluster, what the user wants, and what is to be written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

UNBOUNDED = 2**31 - 1
NEVER = -math.inf


class Share(NamedTuple):
    """One cluster's part: the minReplicas and maxReplicas of its own HPA."""

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

    `min_replicas` >= 1 demands that the cluster is used; `max_replicas` 0 forbids it.
    """

    min_replicas: int = 0
    max_replicas: int = UNBOUNDED

    @property
    def floor(self) -> int:
        """The smallest min that the cluster can have once it is used."""
        return max(1, self.min_replicas)


@dataclass(frozen=True, slots=True)
class RebalanceConfig:
    """When and how far shares move.

    A cluster keeps `headroom_percent` above what it needs, at least one replica. A new or returned
    cluster is left alone for `stabilization_seconds`; one that was given something keeps it for
    `cooldown_seconds`. Replicas that found no node for `scheduling_timeout_seconds` count as not
    placeable, and no more is tried there for `retry_seconds`, twice as long each time it is in
    vain. A cluster that was opened for a spike is closed after `idle_timeout_seconds` of idleness.
    One at its min and below `min_usage_percent` of the target usage gives min away; 0 leaves min as
    it was split.
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
    """By which settings, and when, a decision is made; `now` in seconds on the caller's clock."""

    config: RebalanceConfig
    now: float


class CapacityLimit(NamedTuple):
    """A cluster has shown that it can place no more than `scheduled`.

    No more is tried until `until`, which is `wait` seconds after it last showed so.
    """

    scheduled: int
    until: float
    wait: float


@dataclass(frozen=True, slots=True)
class HpaReport:
    """What a cluster's HPA says: its current and desired replicas.

    `wanted` is desired, or more where only max holds it down; `scheduled` are the replicas that
    have a node; `usage` is the observed metric over its target, None when unknown.
    """

    current: int
    desired: int
    wanted: int
    scheduled: int
    usage: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster as it was last seen; moments are in seconds on the caller's clock.

    `share` is what its HPA has. Of an unreachable cluster it is the last that is known, and where a
    write's outcome is unknown, the smaller min and the larger max. `deleted_share` is the share of
    an HPA that somebody deleted. `report` is None while the HPA says nothing of use. `ready` are
    the target's ready replicas there.
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
        """Its part of the sums, also when its HPA has to be made again."""
        return self.share or self.deleted_share

    def is_stable(self, at: DecisionPoint) -> bool:
        """Whether its report can be trusted: the HPA works, and has done so for a while."""
        return (
            self.reachable
            and self.share is not None
            and self.report is not None
            and at.now - self.known_since >= at.config.stabilization_seconds
        )

    def cannot_schedule(self, at: DecisionPoint) -> bool:
        """Whether it has shown that it cannot place what its HPA wants."""
        since = self.unscheduled_since
        return (
            self.report is not None
            and since is not None
            and (at.now - since >= at.config.scheduling_timeout_seconds)
        )

    def usable(self, at: DecisionPoint) -> int | None:
        """The replicas beyond which it can place nothing; None when no such limit is known."""
        if self.report is not None and self.cannot_schedule(at):
            return self.report.scheduled
        return (
            self.capacity_limit.scheduled
            if self.capacity_limit and at.now < self.capacity_limit.until
            else None
        )

    def cap(self, at: DecisionPoint) -> int:
        """The largest max of which it can make use."""
        usable = self.usable(at)
        return self.bounds.max_replicas if usable is None else min(usable, self.bounds.max_replicas)

    @property
    def at_limit(self) -> bool:
        """Whether only max keeps it from growing: current = desired = max, all placed."""
        report, share = self.report, self.share
        return (
            report is not None
            and share is not None
            and report.scheduled >= report.current == report.desired == share.max
        )


class Reason(StrEnum):
    """Why a share changes."""

    SPLIT = "first split"
    RESTORED = "its HPA was gone"
    OPENED = "opened: the clusters in use are at their limit or cannot place more"
    JOINED = "min suffices for one more cluster"
    CLOSED = "closed: idle, and the others have room"
    LEFT = "not selected, or its preferences cannot be met"
    AT_LIMIT = "at its limit"
    NOT_NEEDED = "not needed there"
    IDLE = "its min is not used there"
    BUSY = "it runs more than its min"
    NOT_PLACEABLE = "cannot be placed there"
    EXACT = "so that the sums are what the user wants"


@dataclass(frozen=True, slots=True)
class Write:
    """One HPA is made (`before` None), changed, or removed (`after` None).

    `increased` says that it was given something for its need, from which moment the cool-down
    counts; `capacity_limit`, if not None, what the cluster has shown.
    """

    cluster: str
    before: Share | None
    after: Share | None
    reason: str
    increased: bool = False
    capacity_limit: CapacityLimit | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, in this order; stop at the first that fails and plan anew.

    `targets` is what it leads to. `problems` are sentences for the user. `wake_at` is when to look
    again although nothing was reported; None when only a report can change anything.
    """

    writes: tuple[Write, ...] = ()
    targets: Mapping[str, Share] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    wake_at: float | None = None
