"""Wire messages are validated once, and rejected as a whole when anything is invalid."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api import machine_codec, need_codec, overhead_codec
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.api.v1alpha1 import provider_pb2 as provider
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import PodGroup
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import (
    Need,
    NodeOverhead,
    Operator,
    Requirement,
    Spread,
    Taint,
    Toleration,
    profile,
    sizes_of,
)

ROLLUP = "cluster a, need 0"


def sound_need() -> capacity.CapacityNeed:
    return capacity.CapacityNeed(
        requirements=[
            capacity.NodeSelectorRequirement(
                key="zone", operator=capacity.NodeSelectorRequirement.IN, values=["b", "a"]
            )
        ],
        aggregate_resources={"cpu": "4", "memory": "8Gi", "pods": "8"},
        min_unit={"cpu": "500m"},
        priority=100,
        interruption_penalty_bucket=capacity.PENALTY_BUCKET_32,
        reclamation_penalty_bucket=capacity.PENALTY_BUCKET_64,
    )


def sound_machine() -> provider.Machine:
    return provider.Machine(
        id="m-1",
        state=provider.IDLE,
        host=provider.HostRef(provider="fake", ref="h-1"),
        capacity_type=provider.SPOT,
        price_per_hour=0.3,
        interruption_probability=0.3,
        resources=provider.Resources(resources={"cpu": "8", "memory": "32Gi"}),
    )


def _unknown_operator(n: capacity.CapacityNeed) -> None:
    n.requirements[0].operator = 77  # type: ignore[assignment]


def _unknown_bucket(n: capacity.CapacityNeed) -> None:
    n.interruption_penalty_bucket = 99  # type: ignore[assignment]


def _no_bucket(n: capacity.CapacityNeed) -> None:
    n.ClearField("reclamation_penalty_bucket")


def _bad_quantity(n: capacity.CapacityNeed) -> None:
    n.aggregate_resources["cpu"] = "four"


def _negative(n: capacity.CapacityNeed) -> None:
    n.min_unit["memory"] = "-1Gi"


def _absurd(n: capacity.CapacityNeed) -> None:
    n.aggregate_resources["memory"] = "9000E"


def _nothing(n: capacity.CapacityNeed) -> None:
    n.aggregate_resources.clear()


def _in_without_values(n: capacity.CapacityNeed) -> None:
    n.requirements[0].ClearField("values")


def _two_domains(n: capacity.CapacityNeed) -> None:
    for key in ("rack", "zone"):
        n.requirements.add(key=key, operator=capacity.NodeSelectorRequirement.SAME)


def _greater_than_nothing(n: capacity.CapacityNeed) -> None:
    n.requirements[0].operator = capacity.NodeSelectorRequirement.GREATER_THAN


def _empty_alternative(n: capacity.CapacityNeed) -> None:
    n.alternatives.add()


def _alternative_domain(n: capacity.CapacityNeed) -> None:
    same = capacity.NodeSelectorRequirement.SAME
    n.alternatives.add().requirements.add(key="rack", operator=same)


def _keyless_toleration(n: capacity.CapacityNeed) -> None:
    n.tolerations.add(value="x")


def _toleration_of_any_value_and_one(n: capacity.CapacityNeed) -> None:
    n.tolerations.add(key="a", operator=capacity.Toleration.EXISTS, value="x")


def _keyless_anti_affinity(n: capacity.CapacityNeed) -> None:
    n.anti_affinity_keys.append("")


def _negative_domains(n: capacity.CapacityNeed) -> None:
    hard = capacity.TopologySpread.DO_NOT_SCHEDULE
    n.spread.add(topology_key="zone", max_skew=1, when_unsatisfiable=hard, min_domains=-1)


def _sizes(n: capacity.CapacityNeed, *amounts: int) -> None:
    n.sizes.CopyFrom(capacity.PodSizes(resources=["cpu", "pods"], amounts=amounts, counts=[2]))


def _half_a_size(n: capacity.CapacityNeed) -> None:
    _sizes(n, 5)


def _no_pods_of_a_size(n: capacity.CapacityNeed) -> None:
    _sizes(n, 5, 1)
    n.sizes.counts[0] = 0


def _size_of_nothing(n: capacity.CapacityNeed) -> None:
    _sizes(n, 0, 0)


def _a_step_too_few(n: capacity.CapacityNeed) -> None:
    _sizes(n, 5, 1)
    n.sizes.steps.append(1000)


def _steps_beyond_any_machine(n: capacity.CapacityNeed) -> None:
    _sizes(n, 2**20, 1)
    n.sizes.steps.extend([2**24, 1])


def _no_step(n: capacity.CapacityNeed) -> None:
    _sizes(n, 5, 1)
    n.sizes.steps.extend([1, 0])


def _equal_sizes_of_too_many_pods(n: capacity.CapacityNeed) -> None:
    _sizes(n, 5, 1, 5, 1)
    n.sizes.counts[:] = [2**31 - 1, 1]


def _group_of_the_shards_own(n: capacity.CapacityNeed) -> None:
    n.group = "folded:rack"


def _additional_nowhere(n: capacity.CapacityNeed) -> None:
    n.group = "additional"
    n.requirements.add(key="rack", operator=capacity.NodeSelectorRequirement.SAME)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (_unknown_operator, "operator of zone"),
        (_unknown_bucket, "interruption_penalty_bucket"),
        (_no_bucket, "reclamation_penalty_bucket"),
        (_bad_quantity, "aggregate_resources: cpu"),
        (_negative, "min_unit: memory"),
        (_absurd, "aggregate_resources: memory"),
        (_nothing, "aggregate_resources"),
        (_in_without_values, "zone IN"),
        (_two_domains, "SAME"),
        (_additional_nowhere, "group"),
        (_group_of_the_shards_own, "group"),
        (_greater_than_nothing, "zone GREATER_THAN"),
        (_empty_alternative, "alternatives"),
        (_alternative_domain, "alternatives"),
        (_keyless_toleration, "tolerations"),
        (_toleration_of_any_value_and_one, "tolerations"),
        (_keyless_anti_affinity, "anti_affinity_keys"),
        (_negative_domains, "min_domains"),
        (_half_a_size, "sizes.amounts"),
        (_equal_sizes_of_too_many_pods, "sizes.counts"),
        (_no_pods_of_a_size, "sizes.counts"),
        (_size_of_nothing, "sizes.amounts"),
        (_a_step_too_few, "sizes.steps"),
        (_steps_beyond_any_machine, "sizes.amounts"),
        (_no_step, "sizes.steps"),
    ],
)
def test_an_invalid_need_is_rejected_with_the_field_named(
    spoil: Callable[[capacity.CapacityNeed], None], named: str
) -> None:
    """Every error begins with the place of the need and names the field."""
    message = sound_need()
    spoil(message)
    with pytest.raises(InvalidInput, match=named) as caught:
        need_codec.need_from_wire(message, ROLLUP)
    assert str(caught.value).startswith(ROLLUP)


def test_order_and_repeats_of_values_do_not_make_another_profile() -> None:
    """Equal demands have equal fingerprints however their sender wrote them."""
    first, second = sound_need(), sound_need()
    second.requirements[0].values[:] = ["a", "b", "a"]
    one, other = (need_codec.need_from_wire(m, ROLLUP) for m in (first, second))
    assert one.profile.fingerprint == other.profile.fingerprint


labels = st.text("abcdefghij./-", min_size=1, max_size=12)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(1, 2**40), min_size=1
)
requirement = st.one_of(
    st.builds(
        Requirement,
        labels,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(labels, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, labels, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        Requirement,
        labels,
        st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
        st.integers(-(2**63), 2**63 - 1).map(lambda number: (str(number),)),
    ),
)
terms = st.lists(requirement, min_size=1, max_size=2)
tolerations = st.builds(
    Toleration, labels, st.booleans(), st.just(""), st.sampled_from(["", "NoSchedule"])
)
spreads = st.builds(
    Spread,
    labels,
    st.integers(1, 9),
    st.booleans(),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
profiles = st.builds(
    profile,
    st.lists(requirement, max_size=4),
    st.lists(spreads, max_size=2),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(1, 27),
    st.integers(1, 27),
    alternatives=st.lists(terms, max_size=2),
    tolerations=st.lists(tolerations, max_size=2),
    anti_affinity=st.lists(labels, max_size=2),
    never_preempts=st.booleans(),
)
sizes = st.lists(st.tuples(amounts, st.integers(1, 2**29 - 1)), min_size=1, max_size=4).map(
    sizes_of
)


groups = labels.map(PodGroup)


@given(st.builds(Need, profiles, sizes.filter(bool), groups))
def test_needs_survive_the_wire(need: Need) -> None:
    """A need read back from its message equals the need that was written."""
    received = need_codec.need_from_wire(need_codec.need_to_wire(need), ROLLUP)
    assert received == need
    assert received.key == need.key


def test_amounts_are_sent_in_steps_that_make_them_short() -> None:
    """Most pods request whole mebibytes and tens of millicores."""
    sizes = sizes_of([({"cpu": 250, "memory": 2**20}, 3), ({"cpu": 1000, "memory": 3 * 2**19}, 1)])
    message = need_codec.sizes_to_wire(sizes)
    assert (list(message.steps), list(message.amounts)) == ([250, 2**19], [1, 2, 4, 3])
    assert need_codec.sizes_from_wire(message, ROLLUP) == sizes
    message.ClearField("steps")
    assert need_codec.sizes_from_wire(message, ROLLUP)[0].amounts == (("cpu", 1), ("memory", 2))


overheads = st.builds(
    overhead_codec.overhead_of,
    st.lists(requirement, max_size=3),
    st.lists(terms, max_size=2),
    st.lists(tolerations, max_size=2),
    amounts,
)


@given(st.lists(overheads, max_size=3))
def test_overheads_survive_the_wire(several: list[NodeOverhead]) -> None:
    """What DaemonSets take is read back as it was written, in one order whatever the sender's."""
    messages = overhead_codec.overheads_to_wire(several)
    expected = tuple(sorted(several))
    assert overhead_codec.overheads_from_wire(messages, "cluster a") == (expected, {})
    assert overhead_codec.overheads_from_wire(messages[::-1], "cluster a") == (expected, {})


@pytest.mark.parametrize(
    ("overhead", "named"),
    [
        (capacity.NodeOverhead(resources={"cpu": "x"}), "node_overhead 0: resources: cpu"),
        (
            capacity.NodeOverhead(
                requirements=[
                    capacity.NodeSelectorRequirement(
                        key="rack", operator=capacity.NodeSelectorRequirement.SAME
                    )
                ]
            ),
            "SAME",
        ),
        (
            capacity.NodeOverhead(alternatives=[capacity.NodeSelectorTerm()]),
            "node_overhead 0: alternatives",
        ),
        (capacity.NodeOverhead(tolerations=[capacity.Toleration()]), "tolerations"),
    ],
)
def test_a_bad_overhead_is_left_out_with_the_field_named(
    overhead: capacity.NodeOverhead, named: str
) -> None:
    """One DaemonSet must not keep all others of its cluster from counting."""
    sound = capacity.NodeOverhead(resources={"cpu": "1"})
    taken, faults = overhead_codec.overheads_from_wire([overhead, sound], "cluster a")
    assert [dict(each.amounts) for each in taken] == [{"cpu": 1000}]
    assert list(faults) == [0]
    assert faults[0].startswith("cluster a")
    assert named in faults[0]


def test_too_many_overheads_are_rejected() -> None:
    """Each is matched with each instance type: a sender's fault must not stall a shard."""
    many = [capacity.NodeOverhead(resources={"cpu": "1"})] * 1001
    with pytest.raises(InvalidInput, match="more than 1000"):
        overhead_codec.overheads_from_wire(many, "cluster a")


def test_machines_survive_the_wire() -> None:
    """A machine read back from its message equals the machine that was written."""
    machine = Machine(
        id="m-1",
        state=MachineState.CONFIGURED,
        instance_type="m6i.large",
        zone="a",
        capacity_type=CapacityType.SPOT,
        price_per_hour=0.25,
        interruption_probability=0.5,
        resources={"cpu": 8000, "memory": 2**25},
        allocatable={"cpu": 7900, "memory": 2**24},
        labels={"topology.bigfleet/rack": "a-1"},
        host="h-1",
        cluster="a",
        shard_metadata={"unknown/key": "kept"},
        taints=(Taint("gpu", "a100", "NoSchedule"), Taint("spot", "", "NoExecute")),
    )
    assert (
        machine_codec.machine_from_wire(machine_codec.machine_to_wire(machine, "fake")) == machine
    )


@pytest.mark.parametrize(
    "taints",
    [
        [{"key": "", "effect": "NoSchedule"}],
        [{"key": "a", "effect": "Never"}],
        [{"key": "a"}],
        [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
    ],
)
def test_a_taint_that_is_invalid_on_a_node_is_rejected(taints: list[dict[str, str]]) -> None:
    """A Node with it could not be registered, and pods would wait forever."""
    message = sound_machine()
    for taint in taints:
        message.taints.add(**taint)
    with pytest.raises(InvalidInput, match="machine m-1: taints"):
        machine_codec.machine_from_wire(message)


def test_without_allocatable_the_resources_count() -> None:
    """A provider that reports no allocatable offers all of its resources."""
    machine = machine_codec.machine_from_wire(sound_machine())
    assert machine.allocatable == machine.resources == {"cpu": 8000, "memory": 2**25}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", 42),
        ("state", 0),
        ("capacity_type", 9),
        ("price_per_hour", math.nan),
        ("price_per_hour", -1.0),
        ("interruption_probability", 1.5),
        ("cluster", "a"),
        ("id", ""),
    ],
)
def test_an_inconsistent_machine_is_rejected(field: str, value: object) -> None:
    """Unknown states, prices that are not numbers and violated invariants are rejected."""
    message = sound_machine()
    setattr(message, field, value)
    with pytest.raises(InvalidInput):
        machine_codec.machine_from_wire(message)
