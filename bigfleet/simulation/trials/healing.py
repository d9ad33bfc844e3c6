"""Generates a world from a seed: fleet, demand, latencies, faults and events."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.simulation.runtime.faults import Delays, FaultRates
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.trials.workloads import (
    RACK,
    TEAM,
    Event,
    daemons,
    growing_tenants,
    tenants,
)

GPU = "nvidia.com/gpu"

_GIB = 2**20  # in units of model.resources


@dataclass(frozen=True)
class Trial:
    """A generated world. `events` are in order of time; it heals after `fault_seconds`.

    A `fault_free` world has no faults, and in one that only `grows` demand never shrinks. With a
    permanent fault, the world is watched for `watched_seconds` after that, with the `late` events.
    """

    spec: WorldSpec
    faults: FaultRates
    events: Sequence[Event]
    fault_seconds: float
    fault_free: bool
    grows: bool
    late: Sequence[Event] = ()
    watched_seconds: float = 0.0


def trial(seed: int) -> Trial:
    """The trial of a seed: small and crowded, so that every path is taken."""
    rng = random.Random(seed)
    fault_free = rng.random() < 0.4
    grows = fault_free and rng.random() < 0.5
    machines = _fleet(rng, roomy=fault_free and rng.random() < 0.5)
    clusters = [f"cluster-{n}" for n in range(rng.randint(1, 3))]
    fault_seconds = rng.uniform(40.0, 160.0) * (3 if fault_free else 1)
    spec = WorldSpec(
        machines=machines,
        clusters=clusters,
        seed=seed,
        engine=EngineConfig() if fault_free and rng.random() < 0.5 else _engine(rng),
        cycle_seconds=rng.choice((2.0, 5.0)),
        latencies=Latencies(*(_latency(rng, most) for most in (30.0, 10.0, 5.0, 5.0))),
        delays=Delays((0.0, 0.1), (0.0, 5.0), (0.0, 3.0), (0.0, 0.3)),
        spot_hours_per_second=0.0 if fault_free else rng.choice((0.0, 0.0, 0.02, 0.1)),
        daemons=daemons(rng),
        scheduler_looks_ahead=rng.random() < 0.3,
    )
    types = sorted({machine.instance_type for machine in machines})
    wanted = growing_tenants if grows else tenants
    events = [
        *wanted(rng, types, clusters, fault_seconds),
        *([] if fault_free else _outages(rng, spec, fault_seconds)),
    ]
    events.sort(key=lambda event: event.at_seconds)
    faults = FaultRates() if fault_free else _faults(rng)
    return Trial(spec, faults, events, fault_seconds, fault_free, grows)


def _fleet(rng: random.Random, *, roomy: bool) -> list[Machine]:
    machine_types = [_machine_type(rng, n) for n in range(rng.randint(1, 5))]
    racks = rng.randint(1, 4)
    count = rng.randint(60, 120) if roomy else rng.randint(8, 60)
    return [_machine(rng, f"m-{n:03}", rng.choice(machine_types), racks) for n in range(count)]


def _machine_type(rng: random.Random, number: int) -> Mapping[str, object]:
    """A machine type: 2 to 64 CPU with 2 to 8 GiB each; some have a taint."""
    cpu, capacity_type = rng.choice((2, 4, 8, 16, 64)), rng.choice([*CapacityType])
    memory = cpu * rng.choice((2, 4, 8)) * _GIB
    resources = {"cpu": cpu * 1000, "memory": memory, "pods": 110_000}
    if rng.random() < 0.2:
        resources[GPU] = 8000
    spot = capacity_type is CapacityType.SPOT
    taints = (Taint(TEAM, "own", "NoSchedule"),) if rng.random() < 0.2 else ()
    return {
        "instance_type": f"type-{number}",
        "capacity_type": capacity_type,
        "price_per_hour": cpu * rng.choice((0.0, 0.02, 0.05)) * (0.3 if spot else 1.0),
        "interruption_probability": rng.choice((0.05, 0.3)) if spot else 0.0,
        "resources": resources,
        "allocatable": {**resources, "cpu": cpu * 1000 - 80, "memory": memory - memory // 20},
        "taints": taints,
    }


def _machine(
    rng: random.Random, name: str, machine_type: Mapping[str, object], racks: int
) -> Machine:
    zone = rng.choice("abc")
    elastic = machine_type["capacity_type"] in (CapacityType.ON_DEMAND, CapacityType.SPOT)
    bought = not elastic or rng.random() < 0.3
    return Machine(
        id=name,
        state=MachineState.IDLE if bought else MachineState.SPECULATIVE,
        zone=zone,
        labels={RACK: f"{zone}-{rng.randrange(racks)}"},
        host=name if bought else "",
        **machine_type,  # type: ignore[arg-type]
    )


def _engine(rng: random.Random) -> EngineConfig:
    return EngineConfig(
        reclaim_cap_fraction=rng.choice((0.05, 0.3, 1.0)),
        reclaim_hold_seconds=rng.choice((0.0, 5.0, 30.0)),
        idle_hold_seconds={CapacityType.ON_DEMAND: 60.0, CapacityType.SPOT: 20.0},
        voluntary_grace_seconds=rng.choice((20, 60)),
    )


def _latency(rng: random.Random, most_seconds: float) -> Latency:
    median = rng.choice((0.0, 0.1, 0.3)) * most_seconds
    return Latency(median, 3 * median)


def _faults(rng: random.Random) -> FaultRates:
    def chance(most: float) -> float:
        return rng.choice((0.0, 0.0, most / 4, most))

    return FaultRates(
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


def _outages(rng: random.Random, spec: WorldSpec, seconds: float) -> list[Event]:
    events = []
    for what, most in (("shard dies", 3), ("provider dies", 2)):
        events += [
            Event(rng.uniform(0, seconds), what, seconds=rng.uniform(0.0, 20.0))
            for _ in range(rng.randint(0, most))
        ]
    for cluster in spec.clusters:
        for what in ("operator away", "stream breaks"):
            if rng.random() < 0.4:
                away_seconds = rng.uniform(1.0, 60.0)
                events.append(Event(rng.uniform(0, seconds), what, cluster, None, away_seconds))
    return events
