"""What the benchmark measures, and the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import process_time

import numpy as np

from bigfleet.bench.changes import carry_out, lose_machines, move_demand, with_claims_of
from bigfleet.bench.worlds import World, WorldSpec, make_world
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig

_CONFIG = EngineConfig()
# Decisions until a new fleet is at rest.
_SETTLING_CYCLES = 3


@dataclass(frozen=True)
class Row:
    """One line of the benchmark."""

    name: str
    spec: WorldSpec
    #: share of the machines in service that is lost, and of the needs that change, per cycle
    lost: float
    changed: float
    #: seconds of CPU that 99 of 100 decisions may take; None if nothing is promised
    target_seconds: float | None
    fold: bool = True
    #: only the first decision after a restart, with no columns or memory of an earlier one
    cold: bool = False


ROWS = (
    Row("small", WorldSpec(500, 60, clusters=4), 0.01, 0.01, None),
    Row("50K machines, 2K needs", WorldSpec(50_000, 2_000, clusters=40), 0.0025, 0.01, None),
    Row("500K machines, 6K needs, light", WorldSpec(500_000, 6_000), 0.0005, 0.01, 0.05),
    Row("500K machines, 6K needs, 1 %", WorldSpec(500_000, 6_000), 0.01, 0.01, 0.05),
    Row(
        "225K machines, 42K needs, 93 % gangs, folded",
        WorldSpec(225_000, 42_000, gang_share=0.93, gang_pods=4, utilization=0.7),
        0.0025,
        0.01,
        0.025,
    ),
    Row(
        "225K machines, 42K needs, 93 % gangs, unfolded",
        WorldSpec(225_000, 42_000, gang_share=0.93, gang_pods=4, utilization=0.7),
        0.0025,
        0.01,
        0.075,
        fold=False,
    ),
    Row(
        "500K machines, 42K needs, cold start",
        WorldSpec(500_000, 42_000),
        0.0,
        0.0,
        2.0,
        cold=True,
    ),
)


@dataclass(frozen=True)
class Measured:
    """Seconds of CPU of each decision of a row, and what was decided."""

    row: Row
    seconds: tuple[float, ...]
    needs: int
    orders: int
    short: int

    @property
    def p50(self) -> float:
        """The median decision."""
        return float(np.percentile(self.seconds, 50))

    @property
    def p99(self) -> float:
        """What 99 of 100 decisions do not exceed."""
        return float(np.percentile(self.seconds, 99))

    @property
    def passes(self) -> bool:
        """Whether the row's target is met, if it has one."""
        return self.row.target_seconds is None or self.p99 <= self.row.target_seconds


def measure(row: Row, cycles: int, clock: Callable[[], float] = process_time) -> Measured:
    """Bring the row's fleet to rest, and time `cycles` decisions while it changes."""
    random = np.random.default_rng(row.spec.seed)
    world, memory = make_world(row.spec), CycleMemory()
    seconds: list[float] = []
    orders, last = 0, world.demand
    for number in range(_SETTLING_CYCLES + cycles):
        if number >= _SETTLING_CYCLES:
            world = move_demand(lose_machines(world, row.lost, random), row.changed, random)
        seen, remembered = (_afresh(world), CycleMemory()) if row.cold else (world, memory)
        begin = clock()
        demand = fold(seen.fleet, seen.demand).demand if row.fold else seen.demand
        folding = clock() - begin
        fleet = with_claims_of(seen.fleet, last, demand)
        begin = clock()
        decision = decide(fleet, demand, remembered, _CONFIG, 1000.0 + number)
        if number >= _SETTLING_CYCLES:
            seconds.append(folding + clock() - begin)
            orders += len(decision.actions)
        served = carry_out(World(fleet, demand), decision)
        world, memory, last = replace(world, fleet=served.fleet), decision.cycle_memory, demand
    return Measured(row, tuple(seconds), len(demand.needs), orders, len(decision.shortfalls))


def _afresh(world: World) -> World:
    """The same world without columns that an earlier decision has computed."""
    fleet, demand = world.fleet, world.demand
    return World(
        replace(fleet, flavours=tuple(fleet.flavours)), replace(demand, needs=tuple(demand.needs))
    )
