"""What DaemonSets take of machines, on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api import overhead_codec
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import NodeOverhead
from tests.api.need_strategies import amounts, requirement, terms, tolerations

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
