"""A fleet of member clusters for the rules' tests: HPAs that follow load, nodes that run out.

Time is the caller's. Everything an outage can do to a write can be done here: it may be lost, its
answer may be lost, the controller may die after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random

from bigfleet.federation.shares import (
    At,
    Bounds,
    Full,
    Member,
    Plan,
    Report,
    Settings,
    Share,
    Wish,
    Write,
    rebalance,
)
from bigfleet.federation.shares.invariants import violations
from bigfleet.federation.shares.memory import Stamps, noted


@dataclass
class SimCluster:
    """One member: `load` in replicas that it would take, `room` in replicas it can place."""

    name: str
    bounds: Bounds = field(default_factory=Bounds)
    load: float = 0.0
    room: int = 10**6
    reachable: bool = True
    selected: bool = True
    share: Share | None = None
    believed: Share | None = None  # while it cannot be reached, or an answer was lost
    remembered: Share | None = None
    created_at: float = -math.inf
    received_at: float = -math.inf
    full: Full | None = None
    avoid_until: float = -math.inf
    desired: int = 0
    measuring: bool = True
    stamps: Stamps = field(default_factory=Stamps)

    @property
    def placed(self) -> int:
        return min(self.desired, self.room)

    @property
    def usage(self) -> float:
        return self.load / self.placed if self.placed else 0.0

    def follow_load(self) -> None:
        """What an HPA does at each sync: at most double, within min and max."""
        if self.share is None:
            self.desired = 0
            return
        wanted = math.ceil(self.load)
        grown = min(wanted, max(2 * self.desired, 4)) if self.desired else self.share.min
        self.desired = max(self.share.min, min(self.share.max, grown))

    def report(self) -> Report | None:
        if self.share is None or not self.measuring:
            return None
        limited = self.desired == self.share.max
        wanted = max(self.desired, math.ceil(self.load)) if limited else self.desired
        return Report(self.desired, self.desired, wanted, self.placed, self.usage)


@dataclass
class SimFleet:
    """Clusters under one federated HPA; each write is checked against the invariants."""

    clusters: list[SimCluster]
    wish: Wish
    settings: Settings = field(default_factory=Settings)
    now: float = 0.0
    moves: list[tuple[float, Write]] = field(default_factory=list)

    def cluster(self, name: str) -> SimCluster:
        return next(c for c in self.clusters if c.name == name)

    def members(self) -> list[Member]:
        return [self._member(c) for c in self.clusters]

    def _member(self, c: SimCluster) -> Member:
        report = c.report() if c.reachable else None
        c.stamps = noted(c.stamps, c.reachable, c.share, report, self.now)
        return Member(
            c.name,
            c.bounds,
            selected=c.selected,
            reachable=c.reachable,
            share=c.share if c.reachable else c.believed or c.share,
            remembered=c.remembered,
            report=report,
            ready=c.placed if c.reachable else 0,
            known_since=max(c.created_at, c.stamps.returned_at),
            unplaced_since=c.stamps.unplaced_since,
            idle_since=c.stamps.idle_since,
            received_at=c.received_at,
            full=c.full,
            avoid_until=c.avoid_until,
        )

    def plan(self) -> Plan:
        return rebalance(self.wish, self.members(), At(self.settings, self.now))

    def shares(self) -> dict[str, Share]:
        return {c.name: c.share for c in self.clusters if c.share}

    def counted(self) -> dict[str, Share]:
        """The shares as a cautious observer counts them."""
        return {m.name: m.share for m in self.members() if m.share}

    def look(self, seconds: float = 15.0, upto: int | None = None) -> Plan:
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
            c.created_at, c.stamps = self.now, Stamps()
        c.share, c.remembered = write.after, None
        if write.after is None:
            c.avoid_until = self.now + self.settings.retry_seconds
            c.received_at, c.full = -math.inf, None
        if write.received:
            c.received_at = self.now
        if write.full is not None:
            c.full = write.full
        bounds = {c.name: c.bounds for c in self.clusters if c.selected}
        broken = violations(self.wish, bounds, before, self.shares())
        assert not broken, f"{write}: {broken}"
        self.moves.append((self.now, write))

    def run(self, seconds: float, step: float = 15.0) -> int:
        """Let so much time pass; how many of the passes wrote something."""
        wrote = 0
        for _ in range(math.ceil(seconds / step)):
            wrote += bool(self.look(step).writes)
        return wrote


def fleet(wish: tuple[int, int], *names: str, **settings: float) -> SimFleet:
    """A fleet of fresh clusters in the order of their rank."""
    made = replace(Settings(), **settings)  # type: ignore[arg-type]
    return SimFleet([SimCluster(name) for name in names], Wish(*wish), made)


def settled(
    wish: tuple[int, int], shares: dict[str, tuple[int, int]], **settings: float
) -> SimFleet:
    """A fleet whose HPAs have long been there, each at its min."""
    made = fleet(wish, *shares, **settings)
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
        least = random.choice([0, 0, 0, 1, random.randint(1, 6)])
        most = random.choice([2**31 - 1, 2**31 - 1, least + random.randint(0, 20)])
        clusters.append(SimCluster(f"c{index}", Bounds(least, most)))
    for c in clusters:
        change_load(random, c)
    least = random.randint(1, 20)
    wish = Wish(least, least + random.choice([0, 1, 2, random.randint(0, 60)]))
    settings = Settings(
        min_usage_percent=random.choice([0, 30, 80]), headroom_percent=random.choice([0, 10, 50])
    )
    return SimFleet(clusters, wish, settings)


def change_load(random: Random, c: SimCluster) -> None:
    c.load = random.choice([0.0, random.uniform(0, 10), random.uniform(0, 60)])
    c.room = random.choice([10**6, 10**6, random.randint(0, 20)])
