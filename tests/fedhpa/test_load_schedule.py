"""The load of a federation's callers, and the replicas that it needs."""

from __future__ import annotations

import pytest

from loaddriver.fedhpa.load_schedule import ReplicaBounds
from tests.fedhpa.fedhpa_rig import CLUSTERS, QUIET, busier, schedule


def test_the_same_profile_and_seed_give_the_same_load_and_another_seed_other_moments() -> None:
    phases = {"more": busier(0.2, c2=0.925)}
    assert schedule(1, 5.0, **phases).changes == schedule(1, 5.0, **phases).changes
    assert schedule(1, 5.0, **phases).changes != schedule(2, 5.0, **phases).changes


def test_a_change_keeps_what_it_does_not_name_and_comes_at_its_share_of_the_phase() -> None:
    made = schedule(more=busier(0.2, c2=0.925))
    assert made.cores_at(119.9) == QUIET
    assert made.cores_at(120) == {**QUIET, "c2": 0.925}


def test_before_the_first_phase_there_is_its_load_already() -> None:
    assert schedule().cores_at(-30) == QUIET


def test_a_need_is_every_number_of_replicas_that_an_hpa_would_leave_alone() -> None:
    replica_bounds = schedule().replica_bounds({"c1": 0.425, "c2": 3.675, "c3": 0.925})
    assert replica_bounds["c2"] == ReplicaBounds(14, 17)  # 14.7 replicas' worth, a tenth either way
    assert replica_bounds["c3"] == ReplicaBounds(4, 5)


def test_less_load_than_its_part_of_min_makes_no_cluster_have_too_many() -> None:
    assert schedule().replica_bounds({"c1": 0.05, "c2": 0.05, "c3": 0.05})["c2"] == ReplicaBounds(
        1, 2
    )


def test_callers_stay_on_premise_until_it_is_full() -> None:
    spike = {"c1": 5.4, "c2": 0.425, "c3": 0.425}
    assert schedule().routed_load(spike, is_full=False) == spike


def test_callers_of_a_full_cluster_on_premise_go_elsewhere_and_none_is_lost() -> None:
    spike = {"c1": 5.4, "c2": 0.425, "c3": 0.425}
    routed_load = schedule().routed_load(spike, is_full=True)
    assert routed_load["c1"] == pytest.approx(8 * 0.5 * 0.6)
    assert routed_load["c2"] == routed_load["c3"] == pytest.approx(0.425 + (5.4 - 2.4) / 2)
    assert sum(routed_load.values()) == pytest.approx(sum(spike.values()))


def test_a_spike_that_outgrows_the_places_needs_them_all_and_the_rest_elsewhere() -> None:
    replica_bounds = schedule().replica_bounds({"c1": 5.4, "c2": 0.425, "c3": 0.425})
    assert replica_bounds["c1"] == ReplicaBounds(8, 8)
    assert (
        replica_bounds["c2"].low == 7
    )  # 0.425 and half of 3 cores, at a quarter each, less a tenth


def test_phases_follow_each_other() -> None:
    made = schedule(more=busier(c2=1), still=busier(c2=2))
    assert [(span.name, span.begin, span.end) for span in made.phase_windows] == [
        ("first", 0, 100),
        ("more", 100, 200),
        ("still", 200, 300),
    ]
    assert made.clusters == CLUSTERS
