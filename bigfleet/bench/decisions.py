"""Times decisions on a synthetic fleet while machines fail and demand moves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from time import process_time

import numpy as np

from bigfleet.bench.changes import (
    answer_queries,
    carry_out,
    lose_machines,
    move_demand,
    with_claims_of,
)
from bigfleet.bench.measured import Clock, Samples
from bigfleet.bench.worlds import World, WorldSpec, make_world
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig

_CONFIG = EngineConfig()
# Decisions until a new fleet is at rest.
_SETTLING_CYCLES = 3


@dataclass(frozen=True)
class Decisions:
    """Decisions on one world. `lost` is the share of the machines in service that is lost, and
    `changed` that of the needs that change, before each; fewer orders than `least_orders` in one
    of them are not what the row is about. With `cold` there are no columns or memory of an earlier
    decision, as after a restart; with `answered` the operators have said what the release of their
    least used machines disrupts, as they do where demand falls now and then.
    """

    name: str
    spec: WorldSpec
    lost: float
    changed: float
    target_seconds: float | None = None
    fold: bool = True
    cold: bool = False
    answered: bool = False
    least_orders: int = 0

    def scaled(self, factor: float) -> Decisions:
        """See `Row`."""
        spec = self.spec
        machines, needs, clusters = (
            max(1, int(number * factor)) for number in (spec.machines, spec.needs, spec.clusters)
        )
        one_rack = spec.machines_per_rack >= spec.machines
        spec = replace(
            spec,
            machines=machines,
            needs=needs,
            clusters=clusters,
            machines_per_rack=machines if one_rack else spec.machines_per_rack,
        )
        return replace(self, spec=spec, least_orders=int(self.least_orders * factor))

    def measure(self, times: int, clock: Clock = process_time) -> Samples:
        """Bring the fleet to rest, and time so many decisions while it changes."""
        random = np.random.default_rng(self.spec.seed)
        world, memory = make_world(self.spec), CycleMemory()
        watch, orders = _Watch(clock), list[int]()
        last = world.demand
        for number in range(_SETTLING_CYCLES + times):
            if number >= _SETTLING_CYCLES:
                world = move_demand(lose_machines(world, self.lost, random), self.changed, random)
            seen, known = (_afresh(world), CycleMemory()) if self.cold else (world, memory)
            watch.begin()
            demand = fold(seen.fleet, seen.demand).demand if self.fold else seen.demand
            watch.part_ended("fold")
            fleet = with_claims_of(seen.fleet, last, demand)
            watch.resume()
            now_seconds = 1000.0 + number
            decision = decide(fleet, demand, known, _CONFIG, now_seconds, watch.part_ended)
            if number >= _SETTLING_CYCLES:
                watch.keep()
                orders.append(len(decision.actions))
            served = carry_out(World(fleet, demand), decision)
            world, memory, last = replace(world, fleet=served.fleet), decision.cycle_memory, demand
            if self.answered:
                world = answer_queries(world, decision, now_seconds)
        return Samples(
            tuple(watch.seconds),
            {name: tuple(each) for name, each in watch.parts.items()},
            len(demand.needs),
            sum(orders),
            len(decision.shortfalls),
            self._why_invalid(orders),
        )

    def _why_invalid(self, orders: list[int]) -> str:
        if min(orders) >= self.least_orders:
            return ""
        return f"a decision had {min(orders)} orders, not {self.least_orders}"


class _Watch:
    """Adds up the parts of one decision after the other; those that are kept are samples."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: list[float] = []
        self.parts: defaultdict[str, list[float]] = defaultdict(list)
        self._clock = clock
        self._present: defaultdict[str, float] = defaultdict(float)
        self._since = 0.0

    def begin(self) -> None:
        """A new decision begins."""
        self._present.clear()
        self.resume()

    def resume(self) -> None:
        """What came before is no part of it."""
        self._since = self._clock()

    def part_ended(self, name: str) -> None:
        """So much time has passed for this part since the last reading."""
        now = self._clock()
        self._present[name] += now - self._since
        self._since = now

    def keep(self) -> None:
        """The decision is a sample."""
        self.seconds.append(sum(self._present.values()))
        for name, seconds in self._present.items():
            self.parts[name].append(seconds)


def _afresh(world: World) -> World:
    """The same world without columns that an earlier decision has computed."""
    fleet, demand = world.fleet, world.demand
    return World(
        replace(fleet, flavours=tuple(fleet.flavours)), replace(demand, needs=tuple(demand.needs))
    )
