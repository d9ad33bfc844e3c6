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
class Wish:
    """The user's minReplicas and maxReplicas over all clusters; 1 <= min <= max."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """The user's preference for one cluster.

    `least` >= 1 demands that the cluster is used; `most` 0 forbids it.
    """

    least: int = 0
    most: int = UNBOUNDED

    @property
    def floor(self) -> int:
        """The smallest min that the cluster can have once it is used."""
        return max(1, self.least)


@dataclass(frozen=True, slots=True)
class Settings:
    """When and how far shares move.

    A cluster keeps `headroom_percent` above what it needs, at least one replica. A new or returned
    cluster is left alone for `hold_seconds`; one that was given something keeps it for
    `cooldown_seconds`. Replicas that found no node for `patience_seconds` count as not placeable,
    and no more is tried there for `retry_seconds`, twice as long each time it is in vain. A cluster
    that was opened for a spike is closed after `close_seconds` of idleness. One at its min and
    below `min_usage_percent` of the target usage gives min away; 0 leaves min as it was split.
    """

    dynamic: bool = True
    headroom_percent: int = 10
    hold_seconds: float = 120.0
    cooldown_seconds: float = 120.0
    patience_seconds: float = 180.0
    retry_seconds: float = 600.0
    close_seconds: float = 600.0
    min_usage_percent: int = 30


@dataclass(frozen=True, slots=True)
class At:
    """By which settings, and when, a decision is made; `now` in seconds on the caller's clock."""

    settings: Settings
    now: float


class Full(NamedTuple):
    """A cluster has shown that it can place no more than `placed`.

    No more is tried until `until`, which is `wait` seconds after it last showed so.
    """

    placed: int
    until: float
    wait: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a cluster's HPA says: its current and desired replicas.

    `wanted` is desired, or more where only max holds it down; `placed` are the replicas that have
    a node; `usage` is the observed metric over its target, None when unknown.
    """

    current: int
    desired: int
    wanted: int
    placed: int
    usage: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster as it was last seen; moments are in seconds on the caller's clock.

    `share` is what its HPA has. Of an unreachable cluster it is the last that is known, and where
    a write's outcome is unknown, the smaller min and the larger max. `remembered` is the share of
    an HPA that somebody deleted. `report` is None while the HPA says nothing of use. `ready` are
    the target's ready replicas there.
    """

    name: str
    bounds: Bounds = Bounds()
    selected: bool = True
    reachable: bool = True
    share: Share | None = None
    remembered: Share | None = None
    report: Report | None = None
    ready: int = 0
    known_since: float = NEVER
    unplaced_since: float | None = None
    idle_since: float | None = None
    received_at: float = NEVER
    full: Full | None = None
    avoid_until: float = NEVER

    @property
    def held(self) -> Share | None:
        """Its part of the sums, also when its HPA has to be made again."""
        return self.share or self.remembered

    def settled(self, at: At) -> bool:
        """Whether its report can be trusted: the HPA works, and has done so for a while."""
        return (
            self.reachable
            and self.share is not None
            and self.report is not None
            and at.now - self.known_since >= at.settings.hold_seconds
        )

    def blocked(self, at: At) -> bool:
        """Whether it has shown that it cannot place what its HPA wants."""
        since = self.unplaced_since
        return (
            self.report is not None
            and since is not None
            and (at.now - since >= at.settings.patience_seconds)
        )

    def usable(self, at: At) -> int | None:
        """The replicas beyond which it can place nothing; None when no such limit is known."""
        if self.report is not None and self.blocked(at):
            return self.report.placed
        return self.full.placed if self.full and at.now < self.full.until else None

    def cap(self, at: At) -> int:
        """The largest max of which it can make use."""
        usable = self.usable(at)
        return self.bounds.most if usable is None else min(usable, self.bounds.most)

    @property
    def at_limit(self) -> bool:
        """Whether only max keeps it from growing: current = desired = max, all placed."""
        report, share = self.report, self.share
        return (
            report is not None
            and share is not None
            and report.placed >= report.current == report.desired == share.max
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

    `received` says that it was given something for its need, from which moment the cool-down
    counts; `full`, if not None, what the cluster has shown.
    """

    cluster: str
    before: Share | None
    after: Share | None
    reason: str
    received: bool = False
    full: Full | None = None


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
