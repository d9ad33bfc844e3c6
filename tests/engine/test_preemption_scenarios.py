"""Preemption, by examples with small fleets."""

from __future__ import annotations

import pytest

from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig, VictimWeights
from bigfleet.model import penalty
from bigfleet.model.need import Operator, Requirement
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    RACK,
    ZONE,
    action_names,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
)
from tests.engine.engine_story import Story
from tests.engine.engine_two_clusters import CRITICAL, batch, critical, decided, orders

ONLY_IN_A = "west", need_of(4, Requirement(ZONE, Operator.IN, ("a",)), priority=CRITICAL)


# Order of victims


def test_the_lowest_priority_loses_first() -> None:
    """The widest gap is the best score."""
    specs = [configured("low", last_claimed_by=2), configured("mid", last_claimed_by=1)]
    assert orders(specs, critical(4), batch(4, 500), batch(4, 10)) == ["Preempt low"]


def test_among_equal_priorities_the_lower_penalties_lose() -> None:
    """One term for interrupting pods, one for giving the machine up."""
    for name in ("interruption", "reclamation"):
        dear = batch(4, 10, **{name: penalty.bucket(100)})
        cheap = "east", need_of(4, priority=10, group="cheap")
        specs = [configured("dear", last_claimed_by=1), configured("cheap", last_claimed_by=2)]
        assert orders(specs, critical(4), dear, cheap) == ["Preempt cheap"]


def test_weights_can_put_penalties_before_priorities() -> None:
    """They are settings: here a cent of reclamation outweighs a gap of 490."""
    specs = [configured("valuable", last_claimed_by=2), configured("mid", last_claimed_by=1)]
    needs = critical(4), batch(4, 500), batch(4, 10, reclamation=penalty.bucket(100))
    weights = VictimWeights(reclamation=10.0)
    assert orders(specs, *needs, settings=EngineConfig(victim_weights=weights)) == ["Preempt mid"]
    assert orders(specs, *needs) == ["Preempt valuable"]


def test_the_pinned_lose_last_of_all() -> None:
    """Priority alone decides which need gets machines, but pods that must not be interrupted are at
    the end of the queue of victims, whatever their priority.
    """
    pinned = batch(4, 10, interruption=penalty.PINNED)
    specs = [configured("pinned", last_claimed_by=2), configured("mid", last_claimed_by=1)]
    assert orders(specs, critical(4), batch(4, 500), pinned) == ["Preempt mid"]
    assert orders([configured("pinned")], critical(4), pinned) == ["Preempt pinned"]


def test_equals_do_not_displace_each_other() -> None:
    """Nor do their penalties: priority is the only throttle."""
    for bucket in (penalty.ZERO, penalty.PINNED):
        equal = "west", need_of(4, interruption=bucket, reclamation=bucket)
        assert orders([configured("b")], ("east", need_of(4)), equal) == []


def test_a_clusters_own_machines_are_no_victims() -> None:
    """They count already; which of its pods run on them is the scheduler's business."""
    own = "east", need_of(4, priority=CRITICAL, group="critical")
    assert orders([configured("b")], own, batch(4)) == []


@pytest.mark.parametrize(
    ("gap", "seconds"),
    [(1, 600), (100_000, 600), (100_001, 120), (500_000, 120), (500_001, 30), (900_000, 30),
     (900_001, 10)],
)  # fmt: skip
def test_grace_shrinks_with_the_gap(gap: int, seconds: int) -> None:
    """More than 900,000: 10 s; 500,000: 30 s; 100,000: two minutes; else ten."""
    decision = decided([configured("b")], ("west", need_of(4, priority=gap)), batch(4))
    assert [a.grace_seconds for a in decision.actions] == [seconds]


def test_the_widest_gap_there_can_be_does_not_wrap() -> None:
    """From the lowest to the highest priority it takes more than 32 bits."""
    top, bottom = ("west", need_of(4, priority=2**31 - 1)), batch(4, -(2**31))
    assert [a.grace_seconds for a in decided([configured("b")], top, bottom).actions] == [10]


def test_as_few_pods_as_possible_are_evicted() -> None:
    """A small victim that a large one makes superfluous stays, and of equals the smallest fits."""
    specs = [configured("big", cpu=16), configured("fitting", cpu=8), configured("small", cpu=4)]
    assert orders(specs, critical(8), batch(28)) == ["Preempt fitting"]
    specs = [
        configured("big", cpu=16, last_claimed_by=2),
        configured("small", cpu=4, last_claimed_by=1),
    ]
    needs = critical(16), batch(4), ("east", need_of(16, priority=-5))
    assert orders(specs, *needs) == ["Preempt big"]


def test_machines_with_scarce_resources_are_evicted_last() -> None:
    """Plain pods do not drive GPU work out while there is another way."""
    gpu = {"nvidia.com/gpu": 8000}
    specs = [configured("gpu", more=gpu, last_claimed_by=2), configured("plain", last_claimed_by=1)]
    needs = critical(4), batch(4, 500), batch(4, 10, more={"nvidia.com/gpu": 1000})
    assert orders(specs, *needs) == ["Preempt plain"]


def test_nothing_is_taken_from_an_unreachable_cluster() -> None:
    """Neither from a cluster that has not reported nor from one whose operator is away."""
    specs = [configured("a"), configured("b", "north")]
    fleet = fleet_of(specs)
    needs = [critical(8), batch(4), ("north", need_of(4))]
    not_reported = demand_of(fleet, needs, reported=["east", "west"])
    assert action_names(specs, checked(fleet, not_reported)) == ["Preempt a"]
    away = demand_of(fleet, needs, ["east", "west", "north"], unreachable=["east"])
    assert action_names(specs, checked(fleet, away)) == ["Preempt b"]


# Victims are served again


def test_a_need_that_loses_a_machine_takes_a_free_one() -> None:
    """In the same cycle, where there is one that the preemptor could not use."""
    specs = [configured("in-a", labels={ZONE: "a"}), idle("in-b", labels={ZONE: "b"})]
    assert orders(specs, ONLY_IN_A, batch(4)) == ["Bootstrap in-b", "Preempt in-a"]


def test_a_need_that_loses_a_machine_takes_one_of_a_still_lower_priority() -> None:
    """Loss runs down the priorities in one cycle and ends there."""
    specs = [configured("x", labels={ZONE: "a"}), configured("y", "north", labels={ZONE: "b"})]
    lowest = "north", need_of(4, priority=-1)
    fleet = fleet_of(specs)
    needs = [ONLY_IN_A, batch(4), lowest]
    decision = checked(fleet, demand_of(fleet, needs, ["east", "west", "north"]))
    assert action_names(specs, decision) == ["Preempt x", "Preempt y"]
    assert [(s.need, dict(s.deficit)) for s in decision.shortfalls] == [(2, {"cpu": 4})]


def test_eviction_respects_the_skew() -> None:
    """A third machine in the crowded zone would not help."""
    specs = [configured(f"a{n}", labels={ZONE: "a"}) for n in range(3)]
    specs.append(configured("b", "west", labels={ZONE: "b"}))
    found = decided(specs, critical(16, spread=EVENLY_BY_ZONE), batch(12))
    assert sorted(action_names(specs, found)) == ["Preempt a0", "Preempt a1"]
    assert dict(found.shortfalls[0].deficit) == {"cpu": 7}


def test_no_machine_is_taken_for_pods_that_find_places_on_others() -> None:
    """Headroom too small for any of the pods was a zone of its own, which held them back in the
    others. Once it is kept from the need, the cluster's machines hold more of them.
    """
    specs = [
        configured("a", "west", cpu=8, labels={ZONE: "a"}),
        configured("b", "west", cpu=4, labels={ZONE: "b"}),
        configured("h", "west", cpu=1, labels={ZONE: "c"}, headroom=True),
        configured("taken", labels={ZONE: "a"}, cpu=8, last_claimed_by=1),
    ]
    found = decided(specs, critical(16, unit=2, spread=EVENLY_BY_ZONE), batch(8))
    assert action_names(specs, found) == []
    assert dict(found.shortfalls[0].deficit) == {"cpu": 6}


def test_a_machine_that_got_pods_while_others_were_looked_at_is_not_surplus() -> None:
    """The same with two machines in one zone, one of which has no pods at first: a need of a lower
    priority, but a higher one than the machine served before, must not take it.
    """
    unknown = float("nan")
    specs = [
        configured("a", "west", cpu=8, labels={ZONE: "a"}),
        configured("b", "west", cpu=2, labels={ZONE: "b"}, disruption_cost=unknown),
        configured("c", "west", cpu=2, labels={ZONE: "b"}, disruption_cost=unknown),
        configured("h", "west", cpu=1, labels={ZONE: "c"}, headroom=True),
        configured("taken", labels={ZONE: "a"}, cpu=8, last_claimed_by=1),
        configured("far", "north", cpu=1, disruption_cost=unknown),
    ]
    later = "north", need_of(2, Requirement(ZONE, Operator.IN, ("b",)), unit=2, priority=9)
    spreads, fleet = critical(16, unit=2, spread=EVENLY_BY_ZONE), fleet_of(specs)
    needs = demand_of(fleet, [spreads, batch(8, 20), later], ["east", "west", "north"])
    assert checked(fleet, needs).actions == []


def test_small_gangs_share_what_they_take() -> None:
    """A machine that may be preempted shows that a gang fits on one, so gangs fold; otherwise each
    would preempt a machine of its own.
    """
    specs = [configured(f"b{n}", cpu=16, labels={RACK: "r"}) for n in range(9)]
    gangs = [
        ("west", need_of(4, same(), unit=2, group=f"gang-{n}", priority=CRITICAL)) for n in range(8)
    ]
    fleet = fleet_of(specs)
    demand = fold(fleet, demand_of(fleet, [*gangs, batch(144)])).demand
    assert action_names(specs, checked(fleet, demand)) == ["Preempt b0", "Preempt b1"]


def test_a_gang_that_preempts_keeps_its_places_on_machines_that_another_orders_again() -> None:
    """The second gang starts over when it is its turn, and the first is on one of its machines."""
    specs = [
        idle("a", labels={ZONE: "a"}),
        idle("b", cpu=3, labels={ZONE: "b"}),
        configured("victim", labels={ZONE: "b"}, last_claimed_by=3),
        configured("large", cpu=8, labels={ZONE: "b"}, last_claimed_by=2),
    ]
    in_b = same(ZONE), Requirement(ZONE, Operator.IN, ("b",))
    first = "west", need_of(5, same(ZONE), unit=1, group="first", priority=CRITICAL)
    second = "west", pods((1, 2), (1, 8), requirements=in_b, group="second", priority=CRITICAL)
    large = "east", need_of(8, unit=8, group="large", priority=CRITICAL)
    found = decided(specs, first, second, large, batch(4))
    assert action_names(specs, found) == ["Bootstrap b", "Bootstrap a", "Preempt victim"]
    assert [shortfall.need for shortfall in found.shortfalls] == [1]


def test_what_a_taken_machine_has_left_serves_the_clusters_other_needs() -> None:
    """No pods are evicted for pods that fit beside those of the preemptor."""
    specs = [configured("big", cpu=8, last_claimed_by=2), configured("small", last_claimed_by=2)]
    later = "west", need_of(3, unit=3, priority=CRITICAL, group="later")
    assert orders(specs, critical(5, unit=5), later, batch(12)) == ["Preempt big"]


def test_a_plain_need_takes_what_there_is() -> None:
    """Part of its pods is better than none; the rest is a shortfall."""
    story = Story([configured("b")], critical(100), batch(4))
    assert story.cycle() == ["Preempt b"]
    assert story.short() == {0: {"cpu": 96}, 1: {"cpu": 4}}
