"""Small random fleets and demands, contended enough to exercise all features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from bigfleet.engine.cycle_memory import (
    ClusterMemory,
    CycleMemory,
    Reacquired,
    Reservation,
    ShortfallAge,
    SpreadPods,
    SurplusSince,
)
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import NONE, Demand, Flags, Flavour, Fleet, Ints, Longs
from bigfleet.engine.state.last_decision import key_of
from bigfleet.model import penalty
from bigfleet.model.ceiling import HIGHEST_PRIORITY, Ceiling
from bigfleet.model.group import ADDITIONAL, PodGroup
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import BOUND, CapacityType, MachineState
from bigfleet.model.need import (
    Need,
    NeedKey,
    NodeOverhead,
    Operator,
    Requirement,
    Spread,
    Taint,
    Toleration,
    profile,
    sizes_of,
)
from tests.engine.engine_rig import NOW, RACK, ZONE, same

T = TypeVar("T")
CLUSTERS = ("east", "west", "north")
GPU = "nvidia.com/gpu"
PRIORITIES = (0, 0, 0, 50, 200_000, 1_000_000)
_GENERATION = "generation"
_CONDITIONS = (
    Requirement(ZONE, Operator.IN, ("a", "b")),
    Requirement(ZONE, Operator.NOT_IN, ("a",)),
    Requirement(RACK, Operator.EXISTS),
    Requirement("old", Operator.DOES_NOT_EXIST),
    Requirement(_GENERATION, Operator.GREATER_THAN, ("3",)),
    Requirement(_GENERATION, Operator.LESS_THAN, ("9",)),
)
_ALTERNATIVES = (
    (Requirement(ZONE, Operator.IN, ("a",)),),
    (Requirement(RACK, Operator.IN, ("r1", "r2")), Requirement("old", Operator.DOES_NOT_EXIST)),
    (Requirement(_GENERATION, Operator.GREATER_THAN, ("5",)),),
)
_SPREADS = (
    Spread(ZONE, 1, True),
    Spread(ZONE, 2, True, min_domains=3),
    Spread(RACK, 1, True, ignores_node_affinity=True),
    Spread(RACK, 1, True, honors_node_taints=True),
    Spread(HOSTNAME_LABEL, 1, True),
    Spread(ZONE, 1, False),
)
_TAINTS = (
    Taint("dedicated", "batch", "NoSchedule"),
    Taint("spot", "", "NoExecute"),
    Taint("slow", "", "PreferNoSchedule"),
)
_TOLERATIONS = (
    Toleration("dedicated", False, "batch", ""),
    Toleration("spot", True, "", "NoExecute"),
    Toleration("", True, "", "NoSchedule"),
)
# How often a machine is in each state, from SPECULATIVE to FAILED.
_PLENTY = (0.25, 0.05, 0.25, 0.08, 0.25, 0.05, 0.03, 0.04)
_BUSY = (0.04, 0.03, 0.08, 0.05, 0.72, 0.04, 0.02, 0.02)


class Case(NamedTuple):
    """The inputs of a decision, the demand folded."""

    fleet: Fleet
    demand: Demand
    cycle_memory: CycleMemory


def case_with_memory(seed: int, machines: int = 40, needs: int = 8) -> Case:
    """A random case with cycle memory; equal arguments give equal cases."""
    fleet, demand = random_case(seed, machines, needs)
    return Case(fleet, demand, random_cycle_memory(seed, fleet, demand))


def random_case(seed: int, machines: int = 40, needs: int = 8) -> tuple[Fleet, Demand]:
    """A random case without cycle memory."""
    fleet, asked = unfolded_case(seed, machines, needs)
    demand, draw = fold(fleet, asked).demand, np.random.default_rng(seed + 2**40)
    incoming = np.isin(fleet.state, [int(s) for s in (*BOUND, MachineState.CREATING)])
    known = draw.random(len(fleet)) < np.where(incoming, 0.6, 0.1)
    promised = draw.integers(max(len(demand.needs), 1), size=len(fleet))
    fleet.last_claimed_by[:] = np.where(known & (len(demand.needs) > 0), promised, NONE)
    return fleet, demand


def unfolded_case(seed: int, machines: int = 40, needs: int = 8) -> tuple[Fleet, Demand]:
    """A random fleet and demand before the first decision; its gangs are not folded."""
    draw = np.random.default_rng(seed)
    fleet = random_fleet(draw, machines)
    return fleet, _random_demand(draw, [random_need(draw, at) for at in range(needs)])


def _random_demand(draw: np.random.Generator, needs: Sequence[Need]) -> Demand:
    """Needs of random clusters in the order in which they are served."""
    clusters = draw.integers(len(CLUSTERS), size=len(needs))
    # Of two needs of a cluster with one key, which no roll-up has, the last one counts.
    last = {(int(clusters[at]), needs[at].key): at for at in range(len(needs))}
    order = sorted(last.values(), key=lambda at: -needs[at].profile.priority)
    everyone = range(len(CLUSTERS))
    demand = Demand(
        needs=[needs[at] for at in order],
        cluster=clusters[order].astype(np.int32),
        reported=frozenset(c for c in everyone if draw.random() < 0.8),
        unreachable=frozenset(c for c in everyone if draw.random() < 0.1),
        suspended=frozenset(c for c in everyone if draw.random() < 0.05),
        overheads={c: _overheads(draw) for c in everyone if draw.random() < 0.5},
        rose_seconds=_times(draw),
        fell_seconds=_times(draw),
    )
    return _bounded(demand, {c: _ceiling(draw) for c in everyone if draw.random() < 0.15})


def _bounded(demand: Demand, ceilings: Mapping[int, Ceiling]) -> Demand:
    """The same needs in the order in which they are served with these ceilings."""
    clusters = demand.cluster.tolist()
    most = [ceilings.get(cluster, Ceiling()).priority for cluster in clusters]
    needs = [replace(n, priority_ceiling=m) for n, m in zip(demand.needs, most, strict=True)]
    order = sorted(range(len(needs)), key=lambda at: -needs[at].priority)
    return replace(
        demand,
        needs=[needs[at] for at in order],
        cluster=np.array([clusters[at] for at in order], np.int32),
        ceilings=ceilings,
    )


def _ceiling(draw: np.random.Generator) -> Ceiling:
    return Ceiling(
        priority=pick(draw, (*PRIORITIES, HIGHEST_PRIORITY)),
        machines=pick(draw, (math.inf, 0, 1, 5, 8, 12, 20)),
        dollars_per_hour=pick(draw, (math.inf, math.inf, 0.1, 1.0, 3.3, 8.0)),
    )


def _times(draw: np.random.Generator) -> dict[int, float]:
    return {c: pick(draw, (0.0, NOW - 20)) for c in range(len(CLUSTERS)) if draw.random() < 0.6}


def _overheads(draw: np.random.Generator) -> tuple[NodeOverhead, ...]:
    everywhere = NodeOverhead((), (), (Toleration("", True, "", ""),), (("cpu", 100), ("pods", 2)))
    some = NodeOverhead((_CONDITIONS[0],), (), (), (("cpu", 300), ("memory", 700)))
    return tuple(each for each in (everywhere, some) if draw.random() < 0.7)


def pick(draw: np.random.Generator, choices: Sequence[T]) -> T:
    """One of them."""
    return choices[int(draw.integers(len(choices)))]


def _some(draw: np.random.Generator, choices: Sequence[T], most: int) -> list[T]:
    number = int(draw.integers(most + 1))
    return [choices[at] for at in draw.permutation(len(choices))[:number].tolist()]


def random_fleet(draw: np.random.Generator, machines: int) -> Fleet:
    """Machines in all states, none of them claimed."""
    flavours = [_random_flavour(draw) for _ in range(int(draw.integers(1, 12)))]
    states = pick(draw, (_PLENTY, _BUSY))
    state = 1 + draw.choice(len(states), size=machines, p=states)
    bound = np.isin(state, [int(each) for each in BOUND])
    incoming = np.isin(state, (int(MachineState.CREATING), int(MachineState.DRAINING)))
    cluster = draw.integers(len(CLUSTERS), size=machines)
    destination = draw.integers(-1, len(CLUSTERS), size=machines)
    costs = draw.choice((np.nan, np.inf, 0.0, 0.0, 0.5, 3.0), size=machines)
    costs[state != MachineState.CONFIGURED] = np.nan
    buckets = (0, penalty.ZERO, penalty.ZERO, penalty.bucket(3), penalty.PINNED)
    since = draw.choice((np.nan, 0.0, NOW - 50, NOW - 1_000), size=machines)
    return Fleet(
        flavours=flavours,
        clusters=CLUSTERS,
        flavour=draw.integers(len(flavours), size=machines).astype(np.int32),
        state=state.astype(np.uint8),
        cluster=np.where(bound, cluster, NONE).astype(np.int32),
        destination=np.where(incoming, destination, NONE).astype(np.int32),
        last_claimed_by=np.full(machines, NONE, np.int32),
        priority=draw.choice(PRIORITIES, size=machines).astype(np.int32),
        interruption_bucket=draw.choice(buckets, size=machines).astype(np.uint8),
        reclamation_bucket=draw.choice(buckets, size=machines).astype(np.uint8),
        unused_since_seconds=since,
        headroom=(state == MachineState.CONFIGURED) & (draw.random(machines) < 0.03),
        disruption_cost=costs,
        backed_off=_backed_off(draw, state),
        tie_break=draw.permutation(machines).astype(np.int64),
        backed_off_for=_for_a_cluster(state, state),
        backed_off_for_too=_for_a_cluster(state, state[::-1]),
    )


def _backed_off(draw: np.random.Generator, state: Longs) -> Flags | None:
    """Some free machines, and some in service as of a provider that does not answer."""
    free = np.isin(state, (int(MachineState.IDLE), int(MachineState.SPECULATIVE)))
    drawn = draw.random(len(state))
    flags = (free & (drawn < 0.2)) | ((state == MachineState.CONFIGURED) & (drawn < 0.1))
    return flags if draw.random() < 0.3 else None


def _for_a_cluster(state: Longs, seed: Longs) -> Ints | None:
    """Some free machines, each for a random cluster."""
    # Not of the other draws, so that a seed goes on to mean what it did.
    draw = np.random.default_rng(seed)
    if draw.random() < 0.7:
        return None
    free = np.isin(state, (int(MachineState.IDLE), int(MachineState.SPECULATIVE)))
    its = free & (draw.random(len(state)) < 0.3)
    return np.where(its, draw.integers(len(CLUSTERS), size=len(state)), NONE).astype(np.int32)


def _random_flavour(draw: np.random.Generator) -> Flavour:
    cores = pick(draw, (2, 4, 8, 16, 64))
    labels = {ZONE: pick(draw, "abc"), RACK: pick(draw, ("r1", "r2", "r3"))}
    for key in (*labels,):
        if draw.random() < 0.12:
            del labels[key]
    if draw.random() < 0.2:
        labels["old"] = "yes"
    if draw.random() < 0.6:
        labels[_GENERATION] = pick(draw, ("3", "4", "7", "new"))
    has = {"cpu": cores * 1000, "memory": cores * pick(draw, (0, 2000, 4000, 8000))}
    if draw.random() < 0.8:
        has["pods"] = pick(draw, (8, 30, 110))
    if draw.random() < 0.2:
        has[GPU] = pick(draw, (1000, 8000))
    kind = pick(draw, [*CapacityType])
    probability = pick(draw, (0.05, 0.3)) if kind is CapacityType.SPOT else 0.0
    price = 0.0 if draw.random() < 0.2 else pick(draw, (0.05, 0.06, 0.1)) * cores
    taints = tuple(_some(draw, _TAINTS, 2)) if draw.random() < 0.3 else ()
    limited = draw.random() < 0.1
    if limited and draw.random() < 0.5:
        has = dict.fromkeys(has, 0)
    return Flavour(labels, kind, price, probability, has, taints, limited)


def random_need(draw: np.random.Generator, at: int) -> Need:
    """One need with `at` in its group, which makes it unique."""
    conditions = _some(draw, _CONDITIONS, 2) if draw.random() < 0.5 else []
    way = pick(draw, ("plain", "plain", "plain", "gang", "gang", "spread", "apart", "additional"))
    if way == "gang":
        conditions.append(same(pick(draw, (RACK, ZONE, ZONE, HOSTNAME_LABEL))))
    spread = _some(draw, _SPREADS, 2) if way == "spread" or draw.random() < 0.1 else []
    apart = [pick(draw, (HOSTNAME_LABEL, ZONE))] if way == "apart" else []
    if way == "gang" and draw.random() < 0.15:
        apart = [HOSTNAME_LABEL]
    wanted = profile(
        conditions,
        spread if way in ("spread", "plain") else (),
        pick(draw, PRIORITIES),
        pick(draw, (penalty.ZERO, penalty.bucket(3), penalty.PINNED)),
        pick(draw, (penalty.ZERO, penalty.bucket(8))),
        alternatives=_some(draw, _ALTERNATIVES, 2) if draw.random() < 0.25 else (),
        tolerations=_some(draw, _TOLERATIONS, 2) if draw.random() < 0.5 else (),
        anti_affinity=apart,
        never_preempts=draw.random() < 0.15,
    )
    few = way in ("spread", "apart", "gang")
    group = ADDITIONAL if way == "additional" else PodGroup(f"[{at}]")
    return Need(wanted, sizes_of(_random_sizes(draw, few)), group)


def _random_sizes(draw: np.random.Generator, few: bool) -> Iterator[tuple[Mapping[str, int], int]]:
    """From a fiftieth of a core to 16 cores, and now and then a size that no machine could hold."""
    number = 8 if draw.random() < 0.15 else int(draw.integers(1, 4))
    for _ in range(number):
        cpu = int(pick(draw, (20, 100, 250, 500, 1000, 1500, 4000, 16_000)))
        amounts = {"cpu": cpu}
        if draw.random() < 0.7:
            amounts["memory"] = cpu * pick(draw, (1, 2, 4, 16))
        if draw.random() < 0.7:
            amounts["pods"] = 1
        if draw.random() < 0.1:
            amounts[GPU] = int(draw.integers(1, 3)) * 1000
        if draw.random() < 0.05:
            amounts[pick(draw, ("cpu", "example.com/unknown"))] = 10**9
        most = max(2, min(12 if few else 60, 40_000 // cpu))
        pods = 700 if cpu == 20 and not few and draw.random() < 0.3 else int(draw.integers(1, most))
        yield amounts, pods


def random_cycle_memory(seed: int, fleet: Fleet, demand: Demand) -> CycleMemory:
    """Reservations and shortfalls of some needs, one of them deleted; memory of clusters."""
    draw = np.random.default_rng(seed + 2**41)
    keys = [key_of(fleet, demand, index) for index in range(len(demand.needs))]
    keys.append(NeedKey("east", "gone", ""))
    reserved, short = ([key for key in keys if draw.random() < 0.4] for _ in range(2))
    domains = ("", "a", "b", "r1", "r2", "elsewhere")
    since, ages = (NOW - 1_000, NOW - 100), (NOW - 1_000, NOW - 5)
    return CycleMemory(
        tuple(Reservation(key, pick(draw, domains), pick(draw, since)) for key in reserved),
        tuple(ShortfallAge(key, int(draw.integers(1, 9)), pick(draw, ages)) for key in short),
        tuple(_random_memory(draw, name, keys) for name in sorted(CLUSTERS) if draw.random() < 0.6),
        tuple(
            SpreadPods(key, *(int(draw.integers(1, most)) for most in (30, 6, 10)))
            for key in keys
            if draw.random() < 0.5
        ),
    )


def _random_memory(draw: np.random.Generator, name: str, keys: Sequence[NeedKey]) -> ClusterMemory:
    long_ago, lately = NOW - 1_000, NOW - 5
    surplus = pick(
        draw,
        (
            (),
            (SurplusSince(1, long_ago),),
            (SurplusSince(3, lately),),
            (SurplusSince(1, long_ago), SurplusSince(4, lately)),
            (SurplusSince(50, long_ago),),
        ),
    )
    return ClusterMemory(
        name,
        surplus,
        acquired_seconds=pick(draw, (None, NOW - 50, NOW - 5_000)),
        grown_seconds=pick(draw, (None, NOW - 50, NOW - 5_000)),
        capacity_ratio=pick(draw, (None, 500_000.0, 1_500_000.0, 9_000_000.0)),
        reclaimed_seconds=pick(draw, (None, NOW - 300, NOW - 5_000)),
        reclaimed_demand=pick(draw, (0.0, 2.0, 1_000.0)),
        reacquired=tuple(_random_reacquired(draw, name, keys)),
    )


def _random_reacquired(
    draw: np.random.Generator, name: str, keys: Sequence[NeedKey]
) -> Iterator[Reacquired]:
    for fingerprint in sorted({key.fingerprint for key in keys if key.cluster == name}):
        if draw.random() < 0.4:
            since = pick(draw, (NOW - 100, NOW - 900, NOW - 50_000))
            yield Reacquired(fingerprint, int(draw.integers(1, 4)), pick(draw, (2, 4, 32)), since)
