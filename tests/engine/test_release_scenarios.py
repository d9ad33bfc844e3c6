"""Reclaims, deletes and convergence, by examples with small fleets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Operator, Requirement
from tests.engine.engine_rig import (
    DONE,
    EVENLY_BY_ZONE,
    IN_FLIGHT,
    NO_HOLD,
    NOW,
    RACK,
    Spec,
    action_names,
    carried_out,
    checked,
    configured,
    decided,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
    zoned,
)
from tests.engine.engine_story import Story


def test_the_most_expensive_surplus_is_reclaimed_first_and_within_the_cap() -> None:
    """Price, then the less valuable; the rest waits for later cycles."""
    specs = [
        configured("cheap", price=1),
        configured("dear", price=3),
        configured("middling", price=2, last_penalty=2),
        configured("valuable", price=2, last_penalty=9),
    ]
    fleet = fleet_of(specs)
    settings = EngineConfig(reclaim_cap_fraction=0.5, reclaim_hold_seconds=0.0)
    decision = checked(fleet, demand_of(fleet, []), settings)
    assert action_names(specs, decision) == ["Reclaim dear", "Reclaim middling"]
    assert {a.grace_seconds for a in decision.actions} == {600}


def test_at_least_one_machine_of_each_cluster_goes_back() -> None:
    """The cap never stops a small cluster from shrinking, nor does one cluster use up another's."""
    specs = [configured(f"{c}{n}", c) for c in ("east", "west") for n in range(2)]
    assert decided(specs) == ["Reclaim east0", "Reclaim west0"]


def test_a_cluster_that_has_not_reported_loses_nothing() -> None:
    """A cluster that has not reported may still need its machines."""
    fleet = fleet_of([configured("e"), configured("w", "west")])
    decision = checked(fleet, demand_of(fleet, [], reported=["west"]))
    assert [a.row for a in decision.actions] == [1]


@pytest.mark.parametrize(
    ("capacity_type", "since", "gone"),
    [
        (CapacityType.SPOT, 9_930.0, True),
        (CapacityType.SPOT, 9_945.0, False),
        (CapacityType.ON_DEMAND, 9_390.0, True),
        (CapacityType.ON_DEMAND, 9_450.0, False),
        (CapacityType.ON_DEMAND, float("nan"), False),
        (CapacityType.RESERVED, 0.0, False),
        (CapacityType.BARE_METAL, 0.0, False),
    ],
)
def test_idle_machines_are_held_by_type(
    capacity_type: CapacityType, since: float, gone: bool
) -> None:
    """Spot for a minute, on-demand for ten; fixed and unknown for ever (it is 10,000 now)."""
    found = decided([idle("i", capacity_type=capacity_type, idle_since=since)])
    assert found == (["Delete i"] if gone else [])


def test_a_wanted_machine_is_not_given_back() -> None:
    """A claim of this cycle outweighs the hold."""
    old = idle("i", capacity_type=CapacityType.SPOT, idle_since=0.0)
    assert decided([old], need_of(4)) == ["Bootstrap i"]


def test_failed_is_no_dead_end() -> None:
    """A failed elastic machine is deleted; a fixed one waits for its repair."""
    specs = [
        Spec("spot", MachineState.FAILED, capacity_type=CapacityType.SPOT),
        Spec("metal", MachineState.FAILED, capacity_type=CapacityType.BARE_METAL),
    ]
    assert decided(specs) == ["Delete spot"]


def test_nothing_at_all_is_fine() -> None:
    """An empty fleet with and without demand."""
    assert decided([]) == []
    fleet = fleet_of([])
    needs = [need_of(4), need_of(4, same()), need_of(4, spread=EVENLY_BY_ZONE), need_of(0)]
    decision = checked(fleet, demand_of(fleet, [("east", need) for need in needs]))
    assert [(s.need, s.deficit) for s in decision.shortfalls] == [(n, {"cpu": 4}) for n in range(3)]


@pytest.mark.parametrize("outcome", [IN_FLIGHT, DONE])
def test_orders_given_once_are_not_given_again(outcome: dict[object, MachineState]) -> None:
    """In progress or finished, an action is not repeated."""
    specs = [*zoned("abcabc"), *(speculative(f"s{n}", labels={RACK: "a"}) for n in range(4))]
    fleet = fleet_of(specs)
    needs = [need_of(12, spread=EVENLY_BY_ZONE), need_of(8, same(), unit=2), need_of(7)]
    demand = demand_of(fleet, [("east", need) for need in needs])
    first = checked(fleet, demand)
    assert len(first.actions) >= 6
    assert action_names(specs, checked(carried_out(fleet, demand, first, outcome), demand)) == []  # type: ignore[arg-type]


def test_machines_are_reclaimed_only_after_they_were_surplus_for_the_hold() -> None:
    """What is surplus for a moment is kept: the next pods often need it. It is the number
    that counts, since which machine is surplus changes from one cycle to the next.
    """
    story = Story([configured(f"c{n}") for n in range(3)], ("east", need_of(8)))
    assert story.cycle() == []
    story.now = NOW + 29
    story.fleet = replace(story.fleet, last_claimed_by=np.array([NONE, 0, 0], np.int32))
    assert story.cycle() == []
    assert story.orders_within(5) == ["Reclaim c0"]


def test_a_surplus_that_ends_and_comes_back_is_held_anew() -> None:
    """A need that came and went meanwhile used the machine."""
    story = Story([configured("c")])
    story.cycle()
    story.now, story.demand = NOW + 20, demand_of(story.fleet, [("east", need_of(4))])
    assert story.cycle() == []
    story.now, story.demand = NOW + 40, demand_of(story.fleet, [])
    story.fleet = replace(story.fleet, last_claimed_by=np.array([NONE], np.int32))
    assert story.cycle() == []
    story.now = NOW + 70
    assert story.cycle() == ["Reclaim c"]


def test_an_empty_machine_that_an_additional_pod_waits_for_holds_back_no_other() -> None:
    """It must stay while the pod is pending; the machines behind it in order need not, also ones
    that are not empty.
    """
    here = need_of(1, Requirement(RACK, Operator.IN, ("a",)), group="additional")
    fetched = configured("a-fetched", labels={RACK: "a"}, price=9, last_claimed_by=0)
    story = Story([fetched, configured("b", disruption_cost=1.0)], ("east", here), settings=NO_HOLD)
    story.demand = replace(story.demand, fell_seconds={0: NOW})
    assert story.cycle() == ["Reclaim b"]


def test_of_machines_that_disturb_as_little_those_go_on_which_nothing_is_counted() -> None:
    """A gang that is not bound yet needs its machines, though they are empty and more expensive."""
    gang = need_of(8, same(), unit=2)
    here = [configured(f"a{n}", labels={RACK: "a"}, price=9, last_claimed_by=0) for n in range(2)]
    story = Story([*here, configured("b", labels={RACK: "b"})], ("east", gang), settings=NO_HOLD)
    assert story.cycle() == ["Reclaim b"]


def test_machines_that_must_stay_hide_few_of_those_that_need_not() -> None:
    """Every eighth is the only one for some pods; one decision finds most of the others."""
    specs = [configured(f"m{n}", labels={RACK: str(n)}, disruption_cost=1.0 + n) for n in range(32)]
    needs = [
        ("east", need_of(4, Requirement(RACK, Operator.IN, (str(n),)))) for n in (3, 11, 19, 27)
    ]
    settings = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=0.0)
    story = Story(specs, *needs, settings=settings)
    story.demand = replace(story.demand, fell_seconds={0: NOW})
    assert len(story.cycle()) == 21
