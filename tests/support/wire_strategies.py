"""Whole roll-ups, and fleets, as a shard takes them: every field that is allowed, at its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from bigfleet.api.machine_codec import machine_from_wire, machine_to_wire
from bigfleet.api.v1alpha1 import capacity_pb2 as wire
from bigfleet.model import penalty
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import BOUND, HOSTLESS, CapacityType, Machine, MachineState
from bigfleet.model.need import MAX_PODS_OF_A_SIZE, MAX_SIZES_OF_A_NEED, Taint
from bigfleet.model.resources import MAX_MACHINE_UNITS

CLUSTERS = ("east", "west")
_S = MachineState
_REQUIREMENT = wire.NodeSelectorRequirement
_ZONE, _RACK = "topology.kubernetes.io/zone", "topology.bigfleet/rack"
_KEYS = st.sampled_from([_ZONE, _RACK, HOSTNAME_LABEL, "cores", "räck", "nowhere", "x" * 300])
_VALUES = st.sampled_from(["a", "b", "", "m-1", "0", "-7", str(2**63 - 1), "9" * 500, "\x00", "٣"])
_RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "unheard-of")
_LIMIT_32 = 2**31 - 1
_AMOUNTS = st.sampled_from([0, 1, 100, 1000, 4000, 2**20, 2**31, 2**42, MAX_MACHINE_UNITS])
_COUNTS = st.sampled_from([1, 1, 2, 3, 40, 4096, 10**6, MAX_PODS_OF_A_SIZE])
_TAINT = Taint("dedicated", "x", "NoSchedule")
_BUCKETS = st.sampled_from([penalty.ZERO, penalty.ZERO + 1, penalty.PINNED - 1, penalty.PINNED])
_PRIORITIES = st.sampled_from([0, 0, 5, _LIMIT_32, -_LIMIT_32 - 1])
_QUANTITIES = st.sampled_from(["0", "1", "1m", "4", "500Mi", "2Ti", "2Pi", "2305843009213693951m"])


def _some(of: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=most)


@st.composite
def _requirements(draw: st.DrawFn, most: int, least: int = 0) -> list[wire.NodeSelectorRequirement]:
    """Of all operators but SAME."""
    found = []
    for _ in range(draw(st.integers(least, most))):
        operator = draw(st.sampled_from([1, 2, 3, 4, 100, 101]))
        values: Sequence[str] = ()
        if operator in (_REQUIREMENT.IN, _REQUIREMENT.NOT_IN):
            values = draw(st.lists(_VALUES, min_size=1, max_size=3))
        elif operator >= _REQUIREMENT.GREATER_THAN:
            values = [draw(st.sampled_from(["0", "-7", str(2**63 - 1), str(-(2**63))]))]
        operator_value = _REQUIREMENT.Operator.ValueType(operator)
        found.append(_REQUIREMENT(key=draw(_KEYS), operator=operator_value, values=values))
    return found


@st.composite
def _tolerations(draw: st.DrawFn) -> list[wire.Toleration]:
    effects = st.sampled_from(["", "NoSchedule", "NoExecute", "odd"])
    exists = wire.Toleration(operator=wire.Toleration.EXISTS, effect=draw(effects))
    equal = wire.Toleration(key="dedicated", value=draw(_VALUES), effect=draw(effects))
    return draw(_some(st.sampled_from([exists, equal]), 2))


@st.composite
def _terms(draw: st.DrawFn) -> list[wire.NodeSelectorTerm]:
    number = draw(st.integers(0, 2))
    return [wire.NodeSelectorTerm(requirements=draw(_requirements(2, 1))) for _ in range(number)]


@st.composite
def _spread(draw: st.DrawFn) -> wire.TopologySpread:
    return wire.TopologySpread(
        topology_key=draw(_KEYS),
        max_skew=draw(st.sampled_from([1, 2, _LIMIT_32])),
        when_unsatisfiable=wire.TopologySpread.WhenUnsatisfiable.ValueType(
            draw(st.sampled_from([1, 1, 2]))
        ),
        min_domains=draw(st.sampled_from([0, 1, 3, _LIMIT_32])),
        ignores_node_affinity=draw(st.booleans()),
        honors_node_taints=draw(st.booleans()),
    )


@st.composite
def pod_sizes(draw: st.DrawFn) -> wire.PodSizes:
    """Up to three sizes, 64 or as many as there may be; some equal, each asks for something."""
    names = draw(st.lists(st.sampled_from(_RESOURCES), min_size=1, max_size=3, unique=True))
    few = draw(st.lists(st.tuples(*[_AMOUNTS] * len(names)), min_size=1, max_size=3))
    number = draw(st.sampled_from([len(few)] * 6 + [64, MAX_SIZES_OF_A_NEED]))
    rows = [[*few[at % len(few)]] for at in range(number)]
    for at, row in enumerate(rows):
        if at >= len(few):
            row[0] = min(row[0] + at, MAX_MACHINE_UNITS)
        if not any(row):
            row[-1] = 1
    counts = [draw(_COUNTS)] * number if number > 3 else [draw(_COUNTS) for _ in rows]
    if len({*map(tuple, rows)}) < number:  # joined, they may be no more than one size may have
        counts = [min(count, MAX_PODS_OF_A_SIZE // number) for count in counts]
    return wire.PodSizes(
        resources=names, amounts=[amount for row in rows for amount in row], counts=counts
    )


@st.composite
def needs(draw: st.DrawFn) -> wire.CapacityNeed:
    """One that makes sense by itself: as the plain part of the wire, or with sizes."""
    need = wire.CapacityNeed(
        requirements=draw(_requirements(2)),
        priority=draw(_PRIORITIES),
        spread=draw(_some(_spread(), 2)),
        interruption_penalty_bucket=wire.PenaltyBucket.ValueType(draw(_BUCKETS)),
        reclamation_penalty_bucket=wire.PenaltyBucket.ValueType(draw(_BUCKETS)),
        alternatives=draw(_terms()),
        tolerations=draw(_tolerations()),
        anti_affinity_keys=draw(_some(_KEYS, 2)),
        never_preempts=draw(st.booleans()),
        group=draw(st.sampled_from(["", "", "g", "[]", "additional", "\x00", "x" * 500])),
    )
    if need.group != "additional" and draw(st.booleans()):
        need.requirements.add(key=draw(_KEYS), operator=_REQUIREMENT.SAME)
    if draw(st.booleans()):
        need.sizes.CopyFrom(draw(pod_sizes()))
    else:
        amounts = draw(st.dictionaries(st.sampled_from(_RESOURCES), _QUANTITIES, max_size=3))
        need.aggregate_resources.update(amounts | {draw(st.sampled_from(_RESOURCES)): "1"})
        unit = draw(st.dictionaries(st.sampled_from(_RESOURCES), _QUANTITIES, max_size=2))
        need.min_unit.update(unit)
    return need


@st.composite
def overheads(draw: st.DrawFn) -> wire.NodeOverhead:
    """What a DaemonSet takes of the machines that it matches."""
    amounts = st.sampled_from(["0", "1m", "2", "8Gi", f"{MAX_MACHINE_UNITS // 1000}"])
    return wire.NodeOverhead(
        requirements=draw(_requirements(1)),
        alternatives=draw(_terms()),
        tolerations=draw(_tolerations()),
        resources=draw(st.dictionaries(st.sampled_from(_RESOURCES), amounts, max_size=2)),
    )


@st.composite
def limits(draw: st.DrawFn) -> list[wire.NodeLimit]:
    """Of some machines, whosever they are."""
    names = draw(st.sets(st.sampled_from([f"m-{number}" for number in range(8)]), max_size=3))
    return [
        wire.NodeLimit(
            machine_id=name,
            reason=draw(st.sampled_from(["Cordoned", "Missing", "odd"])),
            resources=draw(st.dictionaries(st.sampled_from(_RESOURCES), _QUANTITIES, max_size=2)),
            broken=draw(st.booleans()),
        )
        for name in sorted(names)
    ]


@st.composite
def rollups(draw: st.DrawFn, cluster: str) -> wire.ClusterCapacityNeeds:
    """One cluster's whole demand; its timestamp is for whoever sends it."""
    return wire.ClusterCapacityNeeds(
        cluster_id=cluster,
        needs=draw(_some(needs(), 5)),
        node_overheads=draw(_some(overheads(), 2)),
        node_limits=draw(limits()),
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[Machine]:
    """Up to eight machines in all states, as large and as dear as machines may be."""
    machine_classes = [draw(_machine_classes()) for _ in range(draw(st.integers(1, 3)))]
    return [
        _member(draw, f"m-{number}", draw(st.sampled_from(machine_classes)))
        for number in range(draw(st.integers(0, 8)))
    ]


@st.composite
def _machine_classes(draw: st.DrawFn) -> dict[str, Any]:
    amounts = st.dictionaries(st.sampled_from(_RESOURCES), _AMOUNTS, max_size=4)
    capacity = draw(amounts) | {"cpu": draw(st.sampled_from([4000, 64_000, MAX_MACHINE_UNITS]))}
    return {
        "instance_type": draw(st.sampled_from(["m5", "", "x" * 300])),
        "zone": draw(st.sampled_from(["a", "b", ""])),
        "capacity_type": draw(st.sampled_from(CapacityType)),
        "price_per_hour": draw(st.sampled_from([0.0, 5e-324, 0.2, 1e9, 1e308])),
        "interruption_probability": draw(st.sampled_from([0.0, 5e-324, 0.5, 1.0])),
        "resources": capacity,
        "allocatable": capacity,
        "labels": draw(st.dictionaries(_KEYS, _VALUES, max_size=3)),
        "taints": draw(st.sampled_from([(), (), (_TAINT,)])),
    }


def _member(draw: st.DrawFn, name: str, machine_class: dict[str, Any]) -> Machine:
    state = draw(st.sampled_from([_S.IDLE, _S.SPECULATIVE, _S.CONFIGURED, *_S]))
    machine = Machine(
        id=name,
        state=state,
        cluster=draw(st.sampled_from(CLUSTERS)) if state in BOUND else "",
        host="" if state in HOSTLESS else f"host-of-{name}",
        **machine_class,
    )
    return machine_from_wire(machine_to_wire(machine, "drawn"))
