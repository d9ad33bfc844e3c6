"""How min and max are first divided, exactly as the seed specifies it."""

from __future__ import annotations

import pytest

from bigfleet.fedhpa.shares import ClusterBounds, Share
from tests.fedhpa.fleet_model import SimFleet, fleet


def _split(sim: SimFleet) -> dict[str, tuple[int, int]]:
    sim.reconcile()
    return {name: tuple(share) for name, share in sim.shares().items()}  # type: ignore[misc]


def test_both_are_divided_equally_and_the_first_get_the_odd_ones() -> None:
    assert _split(fleet((7, 10), "a", "b", "c")) == {"a": (3, 4), "b": (2, 3), "c": (2, 3)}


def test_a_small_min_reaches_fewer_clusters_and_max_is_divided_over_those() -> None:
    assert _split(fleet((2, 10), "a", "b", "c")) == {"a": (1, 5), "b": (1, 5)}
    assert _split(fleet((1, 10), "a", "b", "c")) == {"a": (1, 10)}


def test_a_cluster_that_does_not_answer_is_passed_over() -> None:
    sim = fleet((2, 10), "a", "b", "c")
    sim.cluster("a").reachable = False
    assert _split(sim) == {"b": (1, 5), "c": (1, 5)}


def test_where_the_target_runs_already_comes_before_where_it_does_not() -> None:
    sim = fleet((1, 10), "a", "b")
    sim.cluster("b").desired = 3
    members = sim.members()
    assert [m.ready for m in members] == [0, 3]
    assert [w.cluster for w in sim.plan().writes] == ["b"]


def test_preferences_override_the_equal_split() -> None:
    sim = fleet((9, 30), "a", "b", "c")
    sim.cluster("a").bounds = ClusterBounds(5, 8)
    sim.cluster("c").bounds = ClusterBounds(0, 3)
    assert _split(sim) == {"a": (5, 8), "b": (2, 19), "c": (2, 3)}


def test_a_preferred_min_demands_its_cluster_even_if_min_is_small() -> None:
    sim = fleet((2, 10), "a", "b", "c")
    sim.cluster("c").bounds = ClusterBounds(2)
    assert _split(sim) == {"c": (2, 10)}


def test_a_preferred_max_of_zero_keeps_a_cluster_out() -> None:
    sim = fleet((4, 8), "a", "b", "c")
    sim.cluster("b").bounds = ClusterBounds(0, 0)
    assert _split(sim) == {"a": (2, 4), "c": (2, 4)}


def test_preferences_beyond_max_are_named_and_the_others_are_met() -> None:
    sim = fleet((2, 5), "a", "b")
    sim.cluster("a").bounds = ClusterBounds(4)
    sim.cluster("b").bounds = ClusterBounds(3)
    [problem] = sim.plan().problems
    assert "cluster b" in problem
    assert "maxReplicas, 1" in problem
    assert _split(sim) == {"a": (4, 5)}


def test_max_that_no_cluster_may_have_is_reported_and_not_forced() -> None:
    sim = fleet((2, 20), "a", "b")
    for cluster in sim.clusters:
        cluster.bounds = ClusterBounds(0, 4)
    assert sim.plan().problems == ("12 of maxReplicas cannot be used by the clusters in use",)
    assert _split(sim) == {"a": (1, 4), "b": (1, 4)}


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
def test_the_users_order_decides_and_nothing_else(order: tuple[str, ...]) -> None:
    sim = fleet((2, 5), *order)
    assert _split(sim) == {order[0]: (1, 3), order[1]: (1, 2)}
    assert sim.shares()[order[0]] == Share(1, 3)
