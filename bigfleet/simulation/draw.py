"""A world from a number: fleet, demand, latencies, faults and events, all drawn from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bigfleet.engine.snapshot import Settings as EngineSettings
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Spread
from bigfleet.services.provider.settings import Latencies, Latency
from bigfleet.simulation.faults import Delays, Faults
from bigfleet.simulation.workload import Workload
from bigfleet.simulation.world import Plan

RACK, ZONE = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"
GPU = "nvidia.com/gpu"

_GIB = 2**20  # in units of model.resources
_PRIORITIES = (0, 100, 1000, 1_000_000)
_PENALTIES = ("0", "0.4", "32", "4096", "100000000")


@dataclass(frozen=True)
class Event:
    """At `at_seconds` after the start `what` happens to `subject`, for `seconds` where it lasts."""

    at_seconds: float
    what: str
    subject: str = ""
    workload: Workload | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Trial:
    """All that a seed stands for. `events` are in order of time; after `fault_seconds` it heals.

    In a `tidy` world no two workloads of a cluster can use the same machines, so that a pod which
    waits though its need is covered has no excuse.
    """

    plan: Plan
    faults: Faults
    events: Sequence[Event]
    fault_seconds: float
    tidy: bool


def trial(seed: int) -> Trial:
    """The world of a seed: small and crowded, so that everything happens."""
    draw = random.Random(seed)
    machines = _fleet(draw)
    clusters = [f"cluster-{n}" for n in range(draw.randint(1, 3))]
    fault_seconds = draw.uniform(40.0, 160.0)
    plan = Plan(
        machines=machines,
        clusters=clusters,
        seed=seed,
        engine=_engine(draw),
        cycle_seconds=draw.choice((2.0, 5.0)),
        latencies=Latencies(*(_latency(draw, most) for most in (30.0, 10.0, 5.0, 5.0))),
        delays=Delays((0.0, 0.1), (0.0, 5.0), (0.0, 3.0), (0.0, 0.3)),
        spot_hours_per_second=draw.choice((0.0, 0.0, 0.02, 0.1)),
    )
    tidy = draw.random() < 0.3
    events = [
        *_tenants(draw, machines, clusters, fault_seconds, tidy),
        *_outages(draw, plan, fault_seconds),
    ]
    events.sort(key=lambda event: event.at_seconds)
    return Trial(plan, _faults(draw), events, fault_seconds, tidy)


def _fleet(draw: random.Random) -> list[Machine]:
    kinds = [_kind(draw, n) for n in range(draw.randint(1, 4))]
    racks = draw.randint(1, 4)
    return [
        _machine(draw, f"m-{n:03}", draw.choice(kinds), racks) for n in range(draw.randint(8, 60))
    ]


def _kind(draw: random.Random, number: int) -> Mapping[str, object]:
    cpu, capacity_type = draw.choice((4, 8, 16)), draw.choice([*CapacityType])
    amounts = {"cpu": cpu * 1000, "memory": cpu * 4 * _GIB, "pods": 110_000}
    if draw.random() < 0.2:
        amounts[GPU] = 8000
    spot = capacity_type is CapacityType.SPOT
    return {
        "instance_type": f"type-{number}",
        "capacity_type": capacity_type,
        "price_per_hour": cpu * draw.choice((0.0, 0.02, 0.05)) * (0.3 if spot else 1.0),
        "interruption_probability": draw.choice((0.05, 0.3)) if spot else 0.0,
        "resources": amounts,
        "allocatable": amounts,
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


def _engine(draw: random.Random) -> EngineSettings:
    return EngineSettings(
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


def _tenants(
    draw: random.Random,
    machines: Sequence[Machine],
    clusters: Sequence[str],
    seconds: float,
    tidy: bool,
) -> list[Event]:
    types = sorted({machine.instance_type for machine in machines})
    events = []
    for cluster in clusters:
        for number in range(len(types) if tidy else draw.randint(1, 7)):
            workload = _workload(draw, f"w-{number}", types)
            if tidy:
                own = {TYPE: (types[number],)}
                workload = replace(workload, selector={**workload.selector, **own}, spread=())
            at_seconds = draw.choice((0.0, draw.uniform(0, seconds)))
            events.append(Event(at_seconds, "apply", cluster, workload))
            for _ in range(draw.randint(0, 3)):
                later = draw.uniform(at_seconds, seconds)
                replicas = draw.choice((0, 1, workload.replicas // 2, workload.replicas * 2))
                events.append(Event(later, "apply", cluster, workload.of(replicas)))
    return events


def _workload(draw: random.Random, name: str, types: Sequence[str]) -> Workload:
    selector = {}
    if draw.random() < 0.6:
        selector[TYPE] = tuple(sorted(draw.sample(types, draw.randint(1, len(types)))))
    if draw.random() < 0.3:
        selector[ZONE] = tuple(sorted(draw.sample("abc", draw.randint(1, 2))))
    cpu = draw.choice((500, 1000, 2000, 4000, 7000))
    requests = {"cpu": f"{cpu}m", "memory": f"{cpu * draw.choice((1, 4)) // 1000 + 1}Gi"}
    if draw.random() < 0.1:
        requests[GPU] = "1"
    gang = draw.random() < 0.4
    spread = () if gang or draw.random() < 0.7 else (Spread(ZONE, draw.randint(1, 2), True),)
    return Workload(
        name=name,
        replicas=draw.choice((1, 2, 3, 4, 8, 12)) if gang else draw.randint(1, 30),
        requests=requests,
        selector=selector,
        priority=draw.choice(_PRIORITIES),
        same_key=draw.choice((RACK, ZONE)) if gang else "",
        spread=spread,
        interruption_penalty=draw.choice(_PENALTIES),
        reclamation_penalty=draw.choice(_PENALTIES),
        max_unavailable=draw.choice((None, None, 1, 3)),
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
