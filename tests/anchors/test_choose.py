"""Which groups get an anchor, and where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaddriver.anchors.choose import Group, choose
from loaddriver.anchors.free_capacity import Node
from tests.anchors.anchor_rig import node, shape, unfinished, waiting


def places(groups: list[Group], nodes: list[Node]) -> dict[str, str]:
    """Of each anchored group the node of its first pod."""
    return {anchor.group: anchor.places[0][1] for anchor in choose(groups, nodes).anchors}


def test_the_rack_with_the_least_sufficient_capacity_is_chosen() -> None:
    nodes = [node("n1", "r1", 9), node("n2", "r2", 4), node("n3", "r3", 3)]
    assert places([waiting("g", 4)], nodes) == {"g": "n2"}


def test_the_fullest_node_that_fits_is_chosen_and_then_the_first_by_name() -> None:
    nodes = [node("n1", "r1", 9), node("n4", "r1", 2), node("n3", "r1", 2), node("n2", "r1", 0)]
    assert places([waiting("g", 4)], nodes) == {"g": "n3"}


def test_each_pending_pod_gets_a_node_and_all_are_in_one_rack() -> None:
    nodes = [node("n1", "r1", 2), node("n2", "r1", 1), node("n3", "r2", 2)]
    [anchor] = choose([waiting("g", 3)], nodes).anchors
    assert anchor.rack == "r1"
    assert [(pod.name, on) for pod, on in anchor.places] == [
        ("g-0", "n2"),
        ("g-1", "n1"),
        ("g-2", "n1"),
    ]


def test_groups_are_served_in_order_of_arrival_and_then_by_name() -> None:
    groups = [waiting("c", 2), waiting("b", 2, arrived="1"), waiting("a", 2, arrived="1")]
    assert places(groups, [node("n1", "r1", 4)]) == {"c": "n1", "a": "n1"}


def test_capacity_counts_in_whole_pods_per_node_and_not_in_sums() -> None:
    """Two nodes of 3 have 6 CPUs and still hold only two pods of 2."""
    nodes = [node("n1", "r1", 3), node("n2", "r1", 3)]
    assert places([waiting("g", 3, cpu=2)], nodes) == {}
    assert places([waiting("g", 2, cpu=2)], nodes) == {"g": "n1"}


def test_every_resource_counts_and_so_do_pod_slots() -> None:
    assert places([waiting("g", 3)], [node("n1", "r1", 9, slots=2)]) == {}


def test_a_resource_that_no_node_has_does_not_fit() -> None:
    gpu = replace(shape(), requests=(("cpu", 1), ("nvidia.com/gpu", 1000)))
    assert places([waiting("g", 1, shape=gpu)], [node("n1", "r1", 9)]) == {}


def test_only_nodes_that_match_the_affinity_get_the_anchor_or_count_as_capacity() -> None:
    wrong_type_only = [node("n1", "r1", 9, kind="b")]
    mixed = [node("n1", "r1", 9, kind="b"), node("n2", "r1", 1)]
    assert places([waiting("g", 2)], wrong_type_only) == {}
    assert places([waiting("g", 2)], mixed) == {}
    assert places([waiting("g", 1)], mixed) == {"g": "n2"}


def test_an_unusable_node_neither_gets_the_anchor_nor_counts_as_capacity() -> None:
    nodes = [replace(node("n1", "r1", 9), usable=False), node("n2", "r1", 1)]
    assert places([waiting("g", 2)], nodes) == {}


def test_a_node_without_a_rack_is_not_a_rack() -> None:
    assert places([waiting("g", 1)], [node("n1", "", 9)]) == {}


def test_a_group_that_has_started_gets_no_anchor_even_when_all_its_pods_are_gone() -> None:
    group = replace(waiting("g", 2), started=True)
    assert places([group], [node("n1", "r1", 9)]) == {}


def test_a_nominated_group_keeps_its_reservation_and_is_not_nominated_again() -> None:
    groups = [replace(waiting("old", 3), nominated="r1"), waiting("new", 2)]
    assert places(groups, [node("n1", "r1", 4)]) == {}
    assert places(groups, [node("n1", "r1", 5)]) == {"new": "n1"}


def test_a_group_without_pending_pods_gets_no_anchor() -> None:
    assert places([replace(waiting("g", 2), pending=())], [node("n1", "r1", 9)]) == {}


def test_a_group_with_untried_pods_is_left_to_kube_scheduler() -> None:
    """It binds the pods that fit without an anchor."""
    assert places([waiting("g", 2, untried=1)], [node("n1", "r1", 9)]) == {}


def test_pods_not_created_yet_need_capacity_too() -> None:
    group = waiting("g", 4)
    group = replace(group, pending=group.pending[:1])
    assert places([group], [node("n1", "r1", 3)]) == {}


def test_the_reservation_of_an_unfinished_group_is_kept() -> None:
    groups = [unfinished("old", 4, "r1", placed=1), waiting("new", 3)]
    assert places(groups, [node("n1", "r1", 5)]) == {}


def test_a_rack_is_shared_if_it_fits_both_groups() -> None:
    """Capacity is reserved, not the rack: a small gang must not keep a large rack empty."""
    groups = [unfinished("old", 4, "r1", placed=1), waiting("new", 3)]
    assert places(groups, [node("n1", "r1", 6)]) == {"new": "n1"}


def test_an_unfinished_group_reserves_nothing_in_other_racks() -> None:
    groups = [unfinished("old", 4, "r2", placed=1), waiting("new", 3)]
    assert places(groups, [node("n1", "r1", 3), node("n2", "r2", 3)]) == {"new": "n1"}


def test_a_complete_group_reserves_nothing() -> None:
    groups = [unfinished("old", 4, "r1", placed=4), waiting("new", 3)]
    assert places(groups, [node("n1", "r1", 3)]) == {"new": "n1"}


def test_two_groups_of_one_round_do_not_get_the_same_capacity() -> None:
    groups = [waiting("a", 3), waiting("b", 3)]
    assert places(groups, [node("n1", "r1", 5)]) == {"a": "n1"}
    assert places(groups, [node("n1", "r1", 5), node("n2", "r2", 3)]) == {"a": "n2", "b": "n1"}


def test_a_group_that_fits_nowhere_reserves_nothing() -> None:
    groups = [waiting("a-huge", 9), waiting("b", 2)]
    assert places(groups, [node("n1", "r1", 3)]) == {"b": "n1"}


def test_a_rack_too_small_for_its_groups_gets_no_further_one() -> None:
    """Five pods are to come and four fit; a small pod that fits now would take their place."""
    groups = [unfinished("old", 6, "r1", placed=1, cpu=2), waiting("new", 1)]
    nodes = [node("n1", "r1", 5), node("n2", "r1", 5)]
    assert places(groups, nodes) == {}


@pytest.mark.parametrize(
    ("groups", "nodes", "reason"),
    [
        ([waiting("g", 2, untried=1)], [node("n1", "r1", 9)], "kube-scheduler has not yet tried 1"),
        ([waiting("g", 2)], [], "none of the 0 Ready, schedulable nodes in racks matches"),
        ([waiting("g", 2)], [node("n1", "r1", 9, kind="b")], "none of the 1 Ready, schedulable"),
        ([waiting("g", 2)], [node("n1", "r1", 0)], "none of the 1 nodes that match its node"),
        (
            [waiting("g", 4)],
            [node("n1", "r1", 3), node("n2", "r2", 2)],
            "no rack fits all 4 pods: the largest, r1, fits 3",
        ),
        (
            [unfinished("old", 6, "r1", placed=1, cpu=2), waiting("g", 1)],
            [node("n1", "r1", 5)],
            "every rack that it could use is too small for the groups started there",
        ),
    ],
)
def test_a_group_without_an_anchor_has_a_reason(
    groups: list[Group], nodes: list[Node], reason: str
) -> None:
    assert choose(groups, nodes).no_room["g"].startswith(reason)
