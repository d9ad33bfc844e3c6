"""Synthetic fleets and demands of any size, as a shard sees them.

Thirty instance types in three zones and racks of 44 machines, four capacity types, and clusters
whose needs differ in priority, sizes and constraints. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.need_columns import NeedColumns
from bigfleet.engine.snapshot import NONE, Demand, Flavour, Fleet, Ints
from bigfleet.model import penalty
from bigfleet.model.group import PodGroup
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import (
    Need,
    Operator,
    Profile,
    Requirement,
    Size,
    Spread,
    profile,
    sizes_of,
)

ZONE, RACK = "topology.kubernetes.io/zone", "bigfleet/rack"
FAMILY, SLOT = "bigfleet/family", "bigfleet/slot"
_FLAVOURS_PER_RACK = 4
ZONES = 3
# GiB of memory per vCPU.
_FAMILIES = (("c6", 2), ("m6", 4), ("r6", 8), ("c7", 2), ("m7", 4))
_VCPUS = (4, 8, 16, 32, 64, 96)
_DOLLARS_PER_VCPU = 0.045
_PRIORITIES = (0, 0, 0, 1_000, 1_000, 100_000, 500_000, 1_000_000)
# Kubernetes bytes are counted in KiB.
_GIB = 1024**2
# Profiles of a cluster's gangs.
_GANG_PROFILES = 13
_CAPACITY_TYPES = (
    (CapacityType.ON_DEMAND, 1.0, 0.0),
    (CapacityType.RESERVED, 0.6, 0.0),
    (CapacityType.SPOT, 0.35, 0.05),
    (CapacityType.BARE_METAL, 0.5, 0.0),
)


@dataclass(frozen=True)
class WorldSpec:
    """What a synthetic world consists of."""

    machines: int
    needs: int
    clusters: int = 200
    #: share of the needs that are gangs, whose pods share a rack
    gang_share: float = 0.05
    #: largest number of pods of a gang
    gang_pods: int = 16
    #: share of the needs with hard zone spread
    spread_share: float = 0.05
    #: sizes of a need on average, in the half of the needs that has more than one
    sizes: int = 8
    #: share of the machines that demand uses
    utilization: float = 0.6
    machines_per_rack: int = 44
    #: no two machines of a rack are equal
    unlike_machines: bool = False
    #: each need has a priority of its own
    distinct_priorities: bool = False
    seed: int = 1


@dataclass(frozen=True)
class World:
    """A fleet and its demand."""

    fleet: Fleet
    demand: Demand


def make_world(spec: WorldSpec) -> World:
    """A fleet in which no machine is in service yet, and the demand for it."""
    random = np.random.default_rng(spec.seed)
    flavours, flavour = _flavours(spec, random)
    names = [f"cluster-{number:04d}" for number in range(spec.clusters)]
    fleet = _fleet(spec, FlavourColumns(flavours), flavour, names)
    return World(fleet, _demand(spec, flavours, flavour, random))


def _flavours(spec: WorldSpec, random: np.random.Generator) -> tuple[list[Flavour], Ints]:
    """All flavours, and the flavour of each machine."""
    per_rack = spec.machines_per_rack
    kinds = per_rack if spec.unlike_machines else _FLAVOURS_PER_RACK
    racks = -(-spec.machines // per_rack)
    flavours = [each for rack in range(racks) for each in _flavours_of_rack(rack, kinds, random)]
    machine = np.arange(spec.machines)
    within = machine % per_rack * kinds // per_rack
    rack = machine // per_rack
    return flavours, (rack * kinds + within).astype(np.int32)


def _flavours_of_rack(rack: int, kinds: int, random: np.random.Generator) -> Iterator[Flavour]:
    # The first racks of each size are the same in every world, so that none lacks a type.
    drawn = random.integers(len(_FAMILIES) * len(_VCPUS), size=kinds).tolist()
    for within, number in enumerate(drawn):
        family, gib = _FAMILIES[number % len(_FAMILIES)]
        vcpus = _VCPUS[number // len(_FAMILIES)]
        kind, factor, interruption = _CAPACITY_TYPES[int(random.integers(len(_CAPACITY_TYPES)))]
        slot = {SLOT: f"slot-{within}"} if kinds > _FLAVOURS_PER_RACK else {}
        yield Flavour(
            labels={ZONE: f"zone-{rack % ZONES}", RACK: f"rack-{rack:06d}", FAMILY: family} | slot,
            capacity_type=kind,
            price_per_hour=round(vcpus * _DOLLARS_PER_VCPU * (0.7 + gib / 13) * factor, 4),
            interruption_probability=interruption,
            allocatable={
                "cpu": vcpus * 1000 - 200,
                "memory": int(vcpus * gib * 0.94 * _GIB),
                "pods": 110_000,
            },
        )


def _fleet(spec: WorldSpec, flavours: FlavourColumns, flavour: Ints, clusters: list[str]) -> Fleet:
    number = spec.machines
    elastic = flavours.elastic[flavour]
    state = np.where(elastic, int(MachineState.SPECULATIVE), int(MachineState.IDLE))
    return Fleet(
        flavours=flavours,
        clusters=clusters,
        flavour=flavour,
        state=state.astype(np.uint8),
        cluster=np.full(number, NONE, np.int32),
        destination=np.full(number, NONE, np.int32),
        last_claimed_by=np.full(number, NONE, np.int32),
        priority=np.zeros(number, np.int32),
        interruption_bucket=np.zeros(number, np.uint8),
        reclamation_bucket=np.zeros(number, np.uint8),
        unused_since_seconds=np.full(number, np.nan),
        headroom=np.zeros(number, np.bool_),
        disruption_cost=np.full(number, np.nan),
        tie_break=np.arange(number, dtype=np.int64),
    )


def _demand(
    spec: WorldSpec, flavours: list[Flavour], flavour: Ints, random: np.random.Generator
) -> Demand:
    vcpus = np.array([each.allocatable["cpu"] for each in flavours])[flavour].sum() / 1000
    needs: list[Need] = []
    clusters: list[int] = []
    gangs = int(spec.needs * spec.gang_share)
    plain = spec.needs - gangs
    gang_vcpus = 4 * spec.gang_pods * 0.6
    share = max(vcpus * spec.utilization - gangs * gang_vcpus, vcpus * 0.1) / max(plain, 1)
    for number in range(spec.needs):
        cluster = number % spec.clusters
        priority = number if spec.distinct_priorities else None
        if number < plain:
            spread = random.random() < spec.spread_share
            constraints = _profile(number // spec.clusters, priority, spread=spread)
            sizes = _sizes(spec, share * float(random.uniform(0.5, 1.5)), random)
            needs.append(Need(constraints, sizes))
        else:
            pods = int(random.integers(4, spec.gang_pods + 1))
            amounts = {"cpu": 4000 * int(random.integers(1, 5)), "memory": 8 * _GIB,
                       "pods": 1000}  # fmt: skip
            constraints = _profile(number // spec.clusters % _GANG_PROFILES, priority, gang=True)
            needs.append(
                Need(constraints, sizes_of([(amounts, pods)]), PodGroup(f'["gang-{number}"]'))
            )
        clusters.append(cluster)
    order = sorted(range(len(needs)), key=lambda i: (-needs[i].priority, clusters[i], needs[i].key))
    unique = {(clusters[i], needs[i].key): i for i in order}
    kept = list(unique.values())
    return Demand(
        needs=NeedColumns(needs[i] for i in kept),
        cluster=np.array([clusters[i] for i in kept], np.int32),
        reported=frozenset(range(spec.clusters)),
    )


def _profile(
    number: int, priority: int | None, *, spread: bool = False, gang: bool = False
) -> Profile:
    """One of the profiles that many clusters have in common, unless it has a `priority`."""
    requirements = []
    if number % 3 == 1:
        families = sorted({_FAMILIES[number % 5][0], _FAMILIES[(number + 2) % 5][0]})
        requirements.append(Requirement(FAMILY, Operator.IN, tuple(families)))
    elif number % 3 == 2:
        requirements.append(Requirement(ZONE, Operator.IN, (f"zone-{number // 3 % ZONES}",)))
    if gang:
        requirements.append(Requirement(RACK, Operator.SAME))
    # A key of its own keeps the profiles of one cluster apart.
    requirements.append(Requirement(f"absent-{number}", Operator.DOES_NOT_EXIST))
    terms = (Spread(ZONE, 2, True),) if spread else ()
    usual = _PRIORITIES[number % len(_PRIORITIES)]
    return profile(
        requirements, terms, usual if priority is None else priority,
        penalty.ZERO + number % 4, penalty.ZERO + number % 3,
    )  # fmt: skip


def _sizes(spec: WorldSpec, vcpus: float, random: np.random.Generator) -> tuple[Size, ...]:
    """Pods of several sizes that need this many vCPUs together."""
    number = 1 if random.random() < 0.5 else int(random.integers(2, 2 * spec.sizes - 1))
    parts = random.dirichlet(np.ones(number)) * vcpus * 1000
    found = []
    for part in parts.tolist():
        cpu = int(random.choice((250, 500, 1000, 2000, 4000, 8000, 15_000)))
        gib = cpu / 1000 * float(random.choice((1, 2, 4, 7)))
        amounts = {"cpu": cpu, "memory": int(gib * _GIB), "pods": 1000}
        found.append((amounts, max(1, round(part / cpu))))
    return sizes_of(found)
