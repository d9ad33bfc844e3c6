"""A world from a number: fleet, demand, latencies, faults and events, all drawn from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint
from bigfleet.services.provider.settings import Latencies, Latency
from bigfleet.simulation.draw_workloads import (
    RACK,
    TEAM,
    Event,
    daemons,
    growing_tenants,
    tenants,
)
from bigfleet.simulation.faults import Delays, Faults
from bigfleet.simulation.plan import Plan

GPU = "nvidia.com/gpu"

_GIB = 2**20  # in units of model.resources


@dataclass(frozen=True)
class Trial:
    """All that a seed stands for. `events` are in order of time; after `fault_seconds` it heals.

    In a `calm` world nothing ever fails, and in one that only `grows` nobody ever wants less.
    Where something is broken for good, the world is watched for `watched_seconds` after that, in
    which the `late` events happen.
    """

    plan: Plan
    faults: Faults
    events: Sequence[Event]
    fault_seconds: float
    calm: bool
    grows: bool
    late: Sequence[Event] = ()
    watched_seconds: float = 0.0


def trial(seed: int) -> Trial:
    """The world of a seed: small and crowded, so that everything happens."""
    draw = random.Random(seed)
    calm = draw.random() < 0.4
    grows = calm and draw.random() < 0.5
    machines = _fleet(draw, roomy=calm and draw.random() < 0.5)
    clusters = [f"cluster-{n}" for n in range(draw.randint(1, 3))]
    fault_seconds = draw.uniform(40.0, 160.0) * (3 if calm else 1)
    plan = Plan(
        machines=machines,
        clusters=clusters,
        seed=seed,
        engine=EngineConfig() if calm and draw.random() < 0.5 else _engine(draw),
        cycle_seconds=draw.choice((2.0, 5.0)),
        latencies=Latencies(*(_latency(draw, most) for most in (30.0, 10.0, 5.0, 5.0))),
        delays=Delays((0.0, 0.1), (0.0, 5.0), (0.0, 3.0), (0.0, 0.3)),
        spot_hours_per_second=0.0 if calm else draw.choice((0.0, 0.0, 0.02, 0.1)),
        daemons=daemons(draw),
        scheduler_looks_ahead=draw.random() < 0.3,
    )
    types = sorted({machine.instance_type for machine in machines})
    wanted = growing_tenants if grows else tenants
    events = [
        *wanted(draw, types, clusters, fault_seconds),
        *([] if calm else _outages(draw, plan, fault_seconds)),
    ]
    events.sort(key=lambda event: event.at_seconds)
    faults = Faults() if calm else _faults(draw)
    return Trial(plan, faults, events, fault_seconds, calm, grows)


def _fleet(draw: random.Random, *, roomy: bool) -> list[Machine]:
    kinds = [_kind(draw, n) for n in range(draw.randint(1, 5))]
    racks = draw.randint(1, 4)
    count = draw.randint(60, 120) if roomy else draw.randint(8, 60)
    return [_machine(draw, f"m-{n:03}", draw.choice(kinds), racks) for n in range(count)]


def _kind(draw: random.Random, number: int) -> Mapping[str, object]:
    """Of one type: from 2 CPU to 64, with 2 to 8 GiB for each; some are set apart by a taint."""
    cpu, capacity_type = draw.choice((2, 4, 8, 16, 64)), draw.choice([*CapacityType])
    memory = cpu * draw.choice((2, 4, 8)) * _GIB
    resources = {"cpu": cpu * 1000, "memory": memory, "pods": 110_000}
    if draw.random() < 0.2:
        resources[GPU] = 8000
    spot = capacity_type is CapacityType.SPOT
    taints = (Taint(TEAM, "own", "NoSchedule"),) if draw.random() < 0.2 else ()
    return {
        "instance_type": f"type-{number}",
        "capacity_type": capacity_type,
        "price_per_hour": cpu * draw.choice((0.0, 0.02, 0.05)) * (0.3 if spot else 1.0),
        "interruption_probability": draw.choice((0.05, 0.3)) if spot else 0.0,
        "resources": resources,
        "allocatable": {**resources, "cpu": cpu * 1000 - 80, "memory": memory - memory // 20},
        "taints": taints,
    }


def _machine(draw: random.Random, name: str, kind: Mapping[str, object], racks: int) -> Machine:
    zone = draw.choice("abc")
    elastic = kind["capacity_type"] in (CapacityType.ON_DEMAND, CapacityType.SPOT)
    bought = not elastic or draw.random() < 0.3
    return Machine(
        id=name,
        state=MachineState.IDLE if bought else MachineState.SPECULATIVE,
        zone=zone,
        labels={RACK: f"{zone}-{draw.randrange(racks)}"},
        host=name if bought else "",
        **kind,  # type: ignore[arg-type]
    )


def _engine(draw: random.Random) -> EngineConfig:
    return EngineConfig(
        reclaim_cap_fraction=draw.choice((0.05, 0.3, 1.0)),
        reclaim_hold_seconds=draw.choice((0.0, 5.0, 30.0)),
        idle_hold_seconds={CapacityType.ON_DEMAND: 60.0, CapacityType.SPOT: 20.0},
        voluntary_grace_seconds=draw.choice((20, 60)),
    )


def _latency(draw: random.Random, most_seconds: float) -> Latency:
    median = draw.choice((0.0, 0.1, 0.3)) * most_seconds
    return Latency(median, 3 * median)


def _faults(draw: random.Random) -> Faults:
    def chance(most: float) -> float:
        return draw.choice((0.0, 0.0, most / 4, most))

    return Faults(
        request_lost=chance(0.2),
        answer_lost=chance(0.2),
        request_late=chance(0.1),
        stock_out=chance(0.4),
        boot_failure=chance(0.3),
        drain_failure=chance(0.1),
        bootstrap_refused=chance(0.3),
        reclaim_unanswered=chance(0.3),
        rollup_stale=chance(0.3),
        rollup_empty=chance(0.2),
    )


def _outages(draw: random.Random, plan: Plan, seconds: float) -> list[Event]:
    events = []
    for what, most in (("shard dies", 3), ("provider dies", 2)):
        events += [
            Event(draw.uniform(0, seconds), what, seconds=draw.uniform(0.0, 20.0))
            for _ in range(draw.randint(0, most))
        ]
    for cluster in plan.clusters:
        for what in ("operator away", "stream breaks"):
            if draw.random() < 0.4:
                away_seconds = draw.uniform(1.0, 60.0)
                events.append(Event(draw.uniform(0, seconds), what, cluster, None, away_seconds))
    return events
