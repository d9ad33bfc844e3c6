"""The load of a federation's callers, and the replicas that it takes."""

from __future__ import annotations

import pytest

from loaddriver.federated.course import Need
from tests.support.fedhpa_runs import CLUSTERS, QUIET, busier, course


def test_the_same_profile_and_seed_give_the_same_load_and_another_seed_other_moments() -> None:
    phases = {"more": busier(0.2, c2=0.925)}
    assert course(1, 5.0, **phases).changes == course(1, 5.0, **phases).changes
    assert course(1, 5.0, **phases).changes != course(2, 5.0, **phases).changes


def test_a_change_keeps_what_it_does_not_name_and_comes_at_its_share_of_the_phase() -> None:
    made = course(more=busier(0.2, c2=0.925))
    assert made.cores_at(119.9) == QUIET
    assert made.cores_at(120) == {**QUIET, "c2": 0.925}


def test_before_the_first_phase_there_is_its_load_already() -> None:
    assert course().cores_at(-30) == QUIET


def test_a_need_is_every_number_of_replicas_that_an_hpa_would_leave_alone() -> None:
    needs = course().needs({"c1": 0.425, "c2": 3.675, "c3": 0.925})
    assert needs["c2"] == Need(14, 17)  # 14.7 replicas' worth, a tenth either way
    assert needs["c3"] == Need(4, 5)


def test_less_load_than_its_part_of_min_makes_no_cluster_have_too_many() -> None:
    assert course().needs({"c1": 0.05, "c2": 0.05, "c3": 0.05})["c2"] == Need(1, 2)


def test_callers_stay_on_premise_until_all_its_places_are_taken() -> None:
    spike = {"c1": 5.4, "c2": 0.425, "c3": 0.425}
    assert course().taken(spike, is_full=False) == spike


def test_callers_of_a_full_cluster_on_premise_go_elsewhere_and_none_is_lost() -> None:
    spike = {"c1": 5.4, "c2": 0.425, "c3": 0.425}
    taken = course().taken(spike, is_full=True)
    assert taken["c1"] == pytest.approx(8 * 0.5 * 0.6)
    assert taken["c2"] == taken["c3"] == pytest.approx(0.425 + (5.4 - 2.4) / 2)
    assert sum(taken.values()) == pytest.approx(sum(spike.values()))


def test_a_spike_that_outgrows_the_places_needs_them_all_and_the_rest_elsewhere() -> None:
    needs = course().needs({"c1": 5.4, "c2": 0.425, "c3": 0.425})
    assert needs["c1"] == Need(8, 8)
    assert needs["c2"].low == 7  # 0.425 and half of 3 cores, at a quarter each, less a tenth


def test_phases_follow_each_other() -> None:
    made = course(more=busier(c2=1), still=busier(c2=2))
    assert [(span.name, span.begin, span.end) for span in made.spans] == [
        ("first", 0, 100),
        ("more", 100, 200),
        ("still", 200, 300),
    ]
    assert made.clusters == CLUSTERS
