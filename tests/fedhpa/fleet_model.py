"""A fleet of member clusters for the rules' tests: HPAs that follow load, nodes that run out.

Time is the caller's. Everything an outage can do to a write can be done here: it may be lost, its
answer may be lost, the controller may die after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random

from bigfleet.fedhpa.shares import (
    CapacityLimit,
    ClusterBounds,
    DecisionPoint,
    HpaReport,
    Member,
    Plan,
    RebalanceConfig,
    ReplicaBounds,
    Share,
    Write,
    rebalance,
)
from bigfleet.fedhpa.shares.invariants import violations
from bigfleet.fedhpa.shares.timestamps import Timestamps, update_timestamps


@dataclass
class SimCluster:
    """One member: `load` in replicas that it would take, `capacity` in replicas it can schedule."""

    name: str
    bounds: ClusterBounds = field(default_factory=ClusterBounds)
    load: float = 0.0
    capacity: int = 10**6
    reachable: bool = True
    selected: bool = True
    share: Share | None = None
    believed: Share | None = None  # while it cannot be reached, or an answer was lost
    deleted_share: Share | None = None
    created_at: float = -math.inf
    increased_at: float = -math.inf
    capacity_limit: CapacityLimit | None = None
    avoid_until: float = -math.inf
    desired: int = 0
    measuring: bool = True
    timestamps: Timestamps = field(default_factory=Timestamps)

    @property
    def scheduled(self) -> int:
        return min(self.desired, self.capacity)

    @property
    def usage(self) -> float:
        return self.load / self.scheduled if self.scheduled else 0.0

    def follow_load(self) -> None:
        """What an HPA does at each sync: at most double, within min and max."""
        if self.share is None:
            self.desired = 0
            return
        wanted = math.ceil(self.load)
        grown = min(wanted, max(2 * self.desired, 4)) if self.desired else self.share.min
        self.desired = max(self.share.min, min(self.share.max, grown))

    def report(self) -> HpaReport | None:
        if self.share is None or not self.measuring:
            return None
        limited = self.desired == self.share.max
        wanted = max(self.desired, math.ceil(self.load)) if limited else self.desired
        return HpaReport(self.desired, self.desired, wanted, self.scheduled, self.usage)


@dataclass
class SimFleet:
    """Clusters under one federated HPA; each write is checked against the invariants."""

    clusters: list[SimCluster]
    total: ReplicaBounds
    config: RebalanceConfig = field(default_factory=RebalanceConfig)
    now: float = 0.0
    moves: list[tuple[float, Write]] = field(default_factory=list)

    def cluster(self, name: str) -> SimCluster:
        return next(c for c in self.clusters if c.name == name)

    def members(self) -> list[Member]:
        return [self._member(c) for c in self.clusters]

    def _member(self, c: SimCluster) -> Member:
        report = c.report() if c.reachable else None
        c.timestamps = update_timestamps(c.timestamps, c.reachable, c.share, report, self.now)
        return Member(
            c.name,
            c.bounds,
            selected=c.selected,
            reachable=c.reachable,
            share=c.share if c.reachable else c.believed or c.share,
            deleted_share=c.deleted_share,
            report=report,
            ready=c.scheduled if c.reachable else 0,
            known_since=max(c.created_at, c.timestamps.returned_at),
            unscheduled_since=c.timestamps.unscheduled_since,
            idle_since=c.timestamps.idle_since,
            increased_at=c.increased_at,
            capacity_limit=c.capacity_limit,
            avoid_until=c.avoid_until,
        )

    def plan(self) -> Plan:
        return rebalance(self.total, self.members(), DecisionPoint(self.config, self.now))

    def shares(self) -> dict[str, Share]:
        return {c.name: c.share for c in self.clusters if c.share}

    def counted(self) -> dict[str, Share]:
        """The shares as a cautious observer counts them."""
        return {m.name: m.share for m in self.members() if m.share}

    def reconcile(self, seconds: float = 15.0, upto: int | None = None) -> Plan:
        """Let time pass, HPAs follow, and one pass be carried out, or only its first writes."""
        self.now += seconds
        for each in self.clusters:
            each.follow_load()
        plan = self.plan()
        for write in plan.writes[:upto]:
            self.apply(write)
        return plan

    def apply(self, write: Write) -> None:
        before = self.shares()
        c = self.cluster(write.cluster)
        assert c.reachable, f"{write}: written to a cluster that cannot be reached"
        assert c.share == write.before, f"{write}: the cluster has {c.share}"
        if write.before is None:
            c.created_at, c.timestamps = self.now, Timestamps()
        c.share, c.deleted_share = write.after, None
        if write.after is None:
            c.avoid_until = self.now + self.config.retry_seconds
            c.increased_at, c.capacity_limit = -math.inf, None
        if write.increased:
            c.increased_at = self.now
        if write.capacity_limit is not None:
            c.capacity_limit = write.capacity_limit
        bounds = {c.name: c.bounds for c in self.clusters if c.selected}
        broken = violations(self.total, bounds, before, self.shares())
        assert not broken, f"{write}: {broken}"
        self.moves.append((self.now, write))

    def run(self, seconds: float, step: float = 15.0) -> int:
        """Let so much time pass; how many of the passes wrote something."""
        wrote = 0
        for _ in range(math.ceil(seconds / step)):
            wrote += bool(self.reconcile(step).writes)
        return wrote


def fleet(total: tuple[int, int], *names: str, **config: float) -> SimFleet:
    """A fleet of fresh clusters in the order of their rank."""
    made = replace(RebalanceConfig(), **config)  # type: ignore[arg-type]
    return SimFleet([SimCluster(name) for name in names], ReplicaBounds(*total), made)


def settled(
    total: tuple[int, int], shares: dict[str, tuple[int, int]], **config: float
) -> SimFleet:
    """A fleet whose HPAs have long been there, each at its min."""
    made = fleet(total, *shares, **config)
    made.now = 10_000.0
    for c in made.clusters:
        c.share = Share(*shares[c.name])
        c.desired = c.share.min
        c.load = float(c.share.min)
    return made


def random_fleet(random: Random) -> SimFleet:
    """A fleet with bounds, loads and capacities of any kind, within what the API accepts."""
    clusters = []
    for index in range(random.randint(1, 6)):
        min_replicas = random.choice([0, 0, 0, 1, random.randint(1, 6)])
        max_replicas = random.choice([2**31 - 1, 2**31 - 1, min_replicas + random.randint(0, 20)])
        clusters.append(SimCluster(f"c{index}", ClusterBounds(min_replicas, max_replicas)))
    for c in clusters:
        change_load(random, c)
    min_replicas = random.randint(1, 20)
    total = ReplicaBounds(
        min_replicas, min_replicas + random.choice([0, 1, 2, random.randint(0, 60)])
    )
    config = RebalanceConfig(
        min_usage_percent=random.choice([0, 30, 80]), headroom_percent=random.choice([0, 10, 50])
    )
    return SimFleet(clusters, total, config)


def change_load(random: Random, c: SimCluster) -> None:
    c.load = random.choice([0.0, random.uniform(0, 10), random.uniform(0, 60)])
    c.capacity = random.choice([10**6, 10**6, random.randint(0, 20)])
