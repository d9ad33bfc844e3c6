"""What BigFleet decides for pods that find no Node, and whether they fit there.

The pods become CapacityRequests, one roll-up, and the needs of a cluster, as the pod controller,
the operator and the shard make them; the decision chooses among the 400 instance types of
Karpenter's benchmark, none of which has a machine yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from bigfleet.api.need_codec import need_from_wire
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.controllers.operator.aggregate import Aggregate
from bigfleet.controllers.operator.request_demand import RequestSpec, demand_of
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.requests import request_for
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Placements
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Flavour, Fleet
from bigfleet.model import penalty, resources
from bigfleet.model.group import group_text
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need
from tests.peers.scheduling.workload import (
    HOST_ANTI_AFFINITY,
    HOST_SPREAD,
    KINDS,
    PLAIN,
    ZONE_AFFINITY,
    ZONE_SPREAD,
)

_INSTANCE_TYPES = 400
_DOLLARS_A_CORE = 0.3147483648
_OFFERINGS = (
    ("test-zone-1", CapacityType.SPOT),
    ("test-zone-2", CapacityType.SPOT),
    ("test-zone-1", CapacityType.ON_DEMAND),
    ("test-zone-2", CapacityType.ON_DEMAND),
    ("test-zone-3", CapacityType.ON_DEMAND),
)


@dataclass(frozen=True)
class Decided:
    """What was chosen for a number of pods, and how long it took."""

    #: from pods to the bytes of a roll-up
    roll_up_seconds: float
    #: from these bytes to needs
    reading_seconds: float
    decision_seconds: float
    needs: int
    machines: int
    dollars_per_hour: float
    unplaced: int
    fleet: Fleet
    demand: Demand
    placements: Placements


def decide_for(pods: Sequence[Mapping[str, Any]], settings: EngineConfig) -> Decided:
    """Choose machines for `pods`."""
    fleet = _fleet(len(pods))
    objects = msgspec.convert(pods, list[Pod])
    began = perf_counter()
    encoded = _roll_up(objects)
    rolled_up = perf_counter()
    needs = _needs(encoded)
    read = perf_counter()
    demand = Demand(needs, np.zeros(len(needs), np.int32), frozenset({0}))
    decision = decide(fleet, demand, CycleMemory(), settings, 0.0)
    decided = perf_counter()
    placements = decision.placements
    rows = [action.row for action in decision.actions]
    return Decided(
        rolled_up - began,
        read - rolled_up,
        decided - read,
        len(needs),
        len(rows),
        sum(fleet.flavours[fleet.flavour[row]].price_per_hour for row in rows),
        len(pods) - int(placements.pods.sum()),
        fleet,
        demand,
        placements,
    )


def faults(fleet: Fleet, demand: Demand, placements: Placements) -> Iterator[str]:
    """Why kube-scheduler would refuse placements."""
    used: dict[int, Counter[str]] = defaultdict(Counter)
    on: list[Counter[int]] = [Counter() for _ in demand.needs]
    for row, need, size, pods in zip(*(c.tolist() for c in placements), strict=True):
        on[need][row] += pods
        for name, amount in demand.needs[need].sizes[size].amounts:
            used[row][name] += amount * pods
    for row, amounts in used.items():
        room = fleet.flavours[fleet.flavour[row]].allocatable
        if any(amount > room.get(name, 0) for name, amount in amounts.items()):
            yield f"machine {row} holds more than its allocatable"
    for need, machines in zip(demand.needs, on, strict=True):
        kind, zones = _kind_of(need), Counter[str]()
        for row, pods in machines.items():
            zones[fleet.flavours[fleet.flavour[row]].labels[ZONE_LABEL]] += pods
        if _is_misplaced(kind, machines, zones):
            most = max(machines.values())
            yield f"{kind} pods: {dict(zones)}, at most {most} on a machine"


def _is_misplaced(kind: str, machines: Counter[int], zones: Counter[str]) -> bool:
    by_zone = [zones[zone] for zone in {zone for zone, _ in _OFFERINGS}]
    if kind in (HOST_SPREAD, HOST_ANTI_AFFINITY):
        return max(machines.values(), default=0) > 1
    if kind == ZONE_AFFINITY:
        return len(zones) > 1
    return kind == ZONE_SPREAD and max(by_zone) - min(by_zone) > 1


def _roll_up(pods: Sequence[Pod]) -> bytes:
    aggregate: Aggregate[str] = Aggregate()
    for pod in pods:
        spec = msgspec.convert(request_for(pod), RequestSpec)
        aggregate.put(pod.metadata.uid, demand_of(pod.metadata.namespace, spec))
    aggregate.mark_all_complete()
    needs = aggregate.content(0.0).needs
    return ClusterCapacityNeeds(cluster_id="cluster", needs=needs).SerializeToString()


def _needs(encoded: bytes) -> list[Need]:
    message = ClusterCapacityNeeds.FromString(encoded)
    return [need_from_wire(each, "need") for each in message.needs]


def _fleet(pods: int) -> Fleet:
    """As many cores of each instance type and offering as there are pods that keep apart."""
    flavours, counts = list[Flavour](), list[int]()
    for cores in range(1, _INSTANCE_TYPES + 1):
        for zone, capacity_type in _OFFERINGS:
            flavours.append(_flavour(cores, zone, capacity_type))
            counts.append(-(-pods // 5 // cores) + 1)
    flavour = np.repeat(np.arange(len(flavours), dtype=np.int32), counts)
    number = len(flavour)
    nothing, unknown = np.full(number, NONE, np.int32), np.full(number, np.nan)
    return Fleet(
        flavours=flavours,
        clusters=["cluster"],
        flavour=flavour,
        state=np.full(number, MachineState.SPECULATIVE, np.uint8),
        cluster=nothing,
        destination=nothing,
        last_claimed_by=nothing,
        priority=np.zeros(number, np.int32),
        interruption_bucket=np.full(number, penalty.ZERO, np.uint8),
        reclamation_bucket=np.full(number, penalty.ZERO, np.uint8),
        unused_since_seconds=unknown,
        headroom=np.zeros(number, np.bool_),
        disruption_cost=unknown,
        tie_break=np.arange(number),
    )


def _flavour(cores: int, zone: str, capacity_type: CapacityType) -> Flavour:
    """Less what Karpenter's instance types reserve for the kubelet."""
    allocatable = {
        "cpu": f"{1000 * cores - 100}m",
        "memory": f"{2048 * cores - 10}Mi",
        "pods": str(10 * cores),
    }
    labels = {INSTANCE_TYPE_LABEL: f"fake-it-{cores - 1}", ZONE_LABEL: zone}
    dollars = _DOLLARS_A_CORE * cores
    return Flavour(labels, capacity_type, dollars, 0.0, resources.parse_capacity(allocatable))


def _kind_of(need: Need) -> str:
    text = group_text(need.group)
    return next((kind for kind in KINDS if f'"{kind}' in text), PLAIN)
