"""Where a federated workload's replicas go, with and without an autoscaler."""

from __future__ import annotations

from bigfleet.fedhpa.shares import ClusterBounds
from bigfleet.fedhpa.workload.placement import ClusterPlacement, divide_replicas, placement_by_list


def _place(name: str, has: int | None = None, **fields: object) -> ClusterPlacement:
    values: dict[str, object] = {
        "bounds": ClusterBounds(),
        "selected": True,
        "reachable": True,
        "ready": has or 0,
    }
    return ClusterPlacement(name=name, has=has, **{**values, **fields})  # type: ignore[arg-type]


def test_replicas_are_divided_evenly() -> None:
    assert divide_replicas(7, [_place("a"), _place("b"), _place("c")]).replicas == {
        "a": 3,
        "b": 2,
        "c": 2,
    }


def test_what_runs_stays_where_it_is_when_more_are_wanted() -> None:
    assert divide_replicas(7, [_place("a", 5), _place("b", 0)]).replicas == {"a": 5, "b": 2}


def test_surplus_replicas_are_removed_where_most_run() -> None:
    assert divide_replicas(4, [_place("a", 5), _place("b", 1)]).replicas == {"a": 3, "b": 1}


def test_preferences_bound_each_cluster() -> None:
    places = [
        _place("a", bounds=ClusterBounds(4, 9)),
        _place("b", bounds=ClusterBounds(0, 1)),
        _place("c"),
    ]
    assert divide_replicas(8, places).replicas == {"a": 4, "b": 1, "c": 3}


def test_an_unreachable_cluster_keeps_its_replicas_and_they_count() -> None:
    assert divide_replicas(8, [_place("a", 3, reachable=False), _place("b", 3)]).replicas == {
        "b": 5
    }


def test_a_cluster_not_selected_is_left_once_enough_is_ready_elsewhere() -> None:
    gone = _place("b", 3, selected=False)
    assert divide_replicas(3, [_place("a", 0), gone]).removed == []
    assert divide_replicas(3, [_place("a", 3), gone]).removed == ["b"]


def test_a_list_keeps_what_is_there_and_makes_one_where_nothing_is() -> None:
    found = placement_by_list(["a", "b"], 2, [_place("a", 5), _place("b"), _place("c")])
    assert found.replicas == {"a": None, "b": None}
    assert found.removed == []


def test_a_part_with_zero_replicas_gets_one_because_no_hpa_would_wake_it() -> None:
    assert placement_by_list(["a"], 1, [_place("a", 0)]).replicas == {"a": 1}


def test_it_is_removed_off_the_list_only_when_the_listed_ones_run_enough() -> None:
    assert placement_by_list(["a"], 2, [_place("a", 1), _place("c", 4)]).removed == []
    assert placement_by_list(["a"], 2, [_place("a", 2), _place("c", 4)]).removed == ["c"]


def test_what_runs_nothing_may_go_at_once() -> None:
    assert placement_by_list(["a"], 2, [_place("a"), _place("c", 0)]).removed == ["c"]


def test_with_an_empty_list_nothing_that_runs_is_removed() -> None:
    assert placement_by_list([], 1, [_place("a", 5)]).removed == []
