"""A need's message is validated once, and rejected as a whole when anything is invalid."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import PodGroup
from bigfleet.model.need import Need, Spread, profile, sizes_of
from tests.api.need_strategies import amounts, labels, requirement, terms, tolerations

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
