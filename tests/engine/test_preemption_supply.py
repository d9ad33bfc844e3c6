"""Machines taken before an eviction: those that drain already, and surplus ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bigfleet.engine.cycle_memory import CycleMemory, Reservation
from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey, Operator, Requirement, Spread
from tests.engine.engine_pods import places, pods
from tests.engine.engine_rig import (
    NOW,
    RACK,
    ZONE,
    Spec,
    action_names,
    configured,
    demand_of,
    idle,
    need_of,
    speculative,
)
from tests.engine.engine_story import Story
from tests.engine.engine_two_clusters import CRITICAL, batch, critical, decided, orders

# Supply that is on its way


def test_one_deficit_is_preempted_once_however_long_the_drain() -> None:
    """A draining machine counts for its requester. Otherwise each cycle would drain one more."""
    story = Story([configured(f"b{n}") for n in range(8)], critical(4), batch(32))
    assert story.cycle() == ["Preempt b0"]
    assert [story.cycle() for _ in range(10)] == [[]] * 10
    story.arrive()
    assert story.cycle() == ["Bootstrap b0"]
    story.arrive()
    assert story.cycle() == []
    assert story.short() == {1: {"cpu": 4}}


@pytest.mark.parametrize("spread", [(), (Spread(HOSTNAME_LABEL, 4, True),)])
def test_pods_of_equal_priority_are_not_counted_first_on_what_drains_for_others(
    spread: tuple[Spread, ...],
) -> None:
    """The small ones fit on `x` as well; without `leaving`, the large one would evict once more."""
    specs = [
        configured("x", labels={RACK: "a"}),
        Spec("leaving", MachineState.DRAINING, cluster="west", last_claimed_by=1,
             labels={RACK: "a", ZONE: "z"}, disruption_cost=math.nan),
        configured("b", "west", labels={ZONE: "z"}),
        configured("b2", "west", labels={ZONE: "z", RACK: "c"}),
    ]  # fmt: skip
    in_a, in_z = Requirement(RACK, Operator.IN, ("a",)), Requirement(ZONE, Operator.IN, ("z",))
    small = "east", need_of(4, in_a, unit=1, priority=CRITICAL, spread=spread)
    large = "east", need_of(4, in_z, unit=4, priority=CRITICAL)
    assert Story(specs, small, large, ("west", need_of(8, unit=4))).cycle() == []


def test_a_second_victim_falls_only_for_a_second_deficit() -> None:
    """While one drains, a need that grew takes the difference."""
    specs = [configured(f"b{n}") for n in range(4)]
    story = Story(specs, critical(4), batch(16))
    story.cycle()
    story.demand = demand_of(story.fleet, [critical(8), batch(16)])
    assert story.cycle() == ["Preempt b1"]


def test_machines_draining_without_a_requester_come_before_new_victims() -> None:
    """After a restart the requester is unknown; the machine will be free all the same."""
    leaving = Spec("leaving", MachineState.DRAINING, cluster="east")
    assert orders([leaving, configured("b")], critical(4), batch(4)) == []


def test_a_victim_comes_to_its_preemptor_and_not_to_an_equal_that_came_earlier() -> None:
    """Otherwise the preemptor would evict once more for the same deficit."""
    earlier = "north", need_of(4, priority=CRITICAL, group="earlier")
    specs = [configured("b0"), configured("b1"), configured("n", "north")]
    story = Story(specs, earlier, critical(4), batch(8))
    assert story.cycle() == ["Preempt b0"]
    grown = "north", need_of(8, priority=CRITICAL, group="earlier")
    story.demand = demand_of(story.fleet, [grown, critical(4), batch(8)])
    story.arrive()
    assert story.cycle() == ["Bootstrap b0", "Preempt b1"]
    assert [action.need for action in story.decision.actions] == [1, 0]


def test_a_victim_comes_to_its_preemptor_though_an_earlier_need_is_counted_there_too() -> None:
    """Pods of the same cluster and priority do not share a machine, and the second of them fits
    beside those for which a large one drains. The machine stays the preemptor's all the same:
    otherwise an equal would take it, and the preemptor would evict once more for the same deficit.
    """
    memory = {"memory": 8}
    small = "west", pods((1, 1, 1), anti_affinity=(HOSTNAME_LABEL,), priority=CRITICAL)
    two_small = "west", pods((2, 1, 1), anti_affinity=(HOSTNAME_LABEL,), priority=CRITICAL)
    north = "north", pods((4, 1, 1), priority=CRITICAL, group="earlier")
    large = "west", pods((4, 1, 1), priority=CRITICAL, group="large")
    victims = "east", pods((16, 1, 1))
    specs = [
        configured("w", "west", cpu=1, more=memory),
        *(configured(f"b{n}", cpu=8, more=memory) for n in range(2)),
        configured("n", "north", more=memory),
    ]
    story = Story(specs, small, north, large, victims)
    assert story.cycle() == ["Preempt b0"]
    story.demand = demand_of(story.fleet, [two_small, north, large, victims])
    assert story.cycle() == []
    assert places(specs, story.decision)["b0"] == {0: 1, 2: 4}
    assert story.decision.claimed_by.tolist() == [0, 2, 3, 1]
    grown = "north", pods((8, 1, 1), priority=CRITICAL, group="earlier")
    story.demand = demand_of(story.fleet, [two_small, grown, large, victims])
    story.arrive()
    assert story.cycle() == ["Bootstrap b0", "Preempt b1"]
    assert [action.need for action in story.decision.actions] == [2, 1]


def test_what_is_created_for_a_lower_priority_is_claimed_by_a_higher_one_counted_there() -> None:
    """As any other machine is."""
    low = "east", need_of(2)
    story = Story([speculative("s")], low)
    assert story.cycle() == ["Provision s"]
    story.demand = demand_of(story.fleet, [("east", need_of(1, priority=9)), low])
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    assert story.cycle() == []
    assert story.decision.claimed_by.tolist() == [0]


def test_a_higher_priority_may_have_what_is_kept_for_a_lower_one() -> None:
    """A reservation protects from equals only."""
    story = Story([configured("b")], ("west", need_of(4, priority=50)), batch(4))
    story.cycle()
    story.arrive()
    higher = "east", need_of(4, priority=60)
    story.demand = demand_of(story.fleet, [higher, ("west", need_of(4, priority=50))])
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    assert story.cycle() == ["Bootstrap b"]
    assert story.short() == {1: {"cpu": 4}}


@pytest.mark.parametrize(("urgency", "orders"), [(60, []), (CRITICAL, ["Preempt m1"])])
def test_what_drains_for_a_lower_priority_is_taken_over_before_anyone_is_evicted(
    urgency: int, orders: list[str]
) -> None:
    """`m0` drains for priority 50 when a higher one arrives. It takes `m0` over, and priority 55
    is unaffected. Only if it may demand a shorter grace period than the pods on `m0` have, does
    it evict again; then 55 takes `m0` over.
    """
    served, middle = batch(4, priority=55), ("west", need_of(4, priority=50))
    specs = [configured("m0", last_claimed_by=2), configured("m1", last_claimed_by=0)]
    lowest = batch(4)
    story = Story(specs, served, middle, lowest)
    assert story.cycle() == ["Preempt m0"]
    urgent = "west", need_of(4, priority=urgency)
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    story.demand = demand_of(story.fleet, [urgent, served, middle, lowest])
    assert story.cycle() == orders
    assert [*story.short()] == [2, 3]
    assert story.cycle() == []
    story.arrive()
    assert "Bootstrap m0" in story.cycle()


def test_of_machines_draining_for_lower_priorities_the_lowest_yields() -> None:
    """The need that loses it looks for another one of a still lower priority."""
    specs = [configured(f"m{n}") for n in range(3)]
    lower_priority, middle = ("west", need_of(4, priority=40)), ("west", need_of(4, priority=50))
    lowest = batch(12)
    story = Story(specs, middle, lower_priority, lowest)
    assert story.cycle() == ["Preempt m0", "Preempt m1"]
    urgent = "west", need_of(4, priority=60)
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    story.demand = demand_of(story.fleet, [urgent, middle, lower_priority, lowest])
    assert story.cycle() == ["Preempt m2"]
    assert [action.need for action in story.decision.actions] == [2]
    assert story.decision.claimed_by.tolist() == [1, 0, 2]


# Excess before eviction


def test_surplus_is_taken_before_pods_are_evicted() -> None:
    """Phase 1 knows unclaimed machines; evicting `serving`, the better victim by its score, would
    be needless.
    """
    specs = [
        configured("excess", last_priority=500),
        configured("serving", last_claimed_by=1),
    ]
    decision = decided(specs, critical(4), batch(4))
    assert action_names(specs, decision) == ["Reclaim excess"]
    assert decision.actions[0].need == 0


@pytest.mark.parametrize(("priority", "taken"), [(50, ["Reclaim excess"]), (10, []), (5, [])])
def test_within_its_hold_surplus_keeps_the_priority_that_it_served(
    priority: int, taken: list[str]
) -> None:
    """Its pods often return soon; only a need that could have evicted them may take it."""
    excess, need = configured("excess", last_priority=10), need_of(4, priority=priority)
    assert orders([excess], ("west", need), settings=EngineConfig()) == taken


def test_after_its_hold_any_need_may_take_a_surplus_machine() -> None:
    """It would be drained anyway; now it has a requester."""
    decision = decided([configured("x", last_priority=10)], ("west", need_of(4, priority=5)))
    assert [(a.type, a.need) for a in decision.actions] == [(ActionType.RECLAIM, 0)]
    assert decision.claimed_by.tolist() == [0]


def test_surplus_held_back_by_the_cap_is_waited_for() -> None:
    """The cap costs a cycle, but no evictions."""
    specs = [configured("e0"), configured("e1"), configured("serving", last_claimed_by=1)]
    story = Story(specs, critical(8), batch(4))
    assert story.cycle() == ["Reclaim e0"]
    assert (story.decision.reclaims_capped, story.short()) == (1, {})
    assert story.cycle() == ["Reclaim e1"]
    story.arrive()
    assert story.cycle() == ["Bootstrap e0", "Bootstrap e1"]


def test_a_need_that_waited_too_long_for_a_drain_passes_once() -> None:
    """For one cycle it acquires and takes nothing; what drains for it stays its own."""
    waiting = need_of(8, group="waiting")
    leaving = Spec("leaving", MachineState.DRAINING, cluster="east", last_claimed_by=0)
    specs = [leaving, idle("i"), configured("b", last_claimed_by=2)]
    story = Story(specs, ("west", waiting), ("west", need_of(4)), batch(4, -5))
    key = NeedKey("west", *waiting.key)
    story.cycle_memory = CycleMemory((Reservation(key, "", NOW - 900),))
    assert story.cycle() == ["Bootstrap i"]
    assert [action.need for action in story.decision.actions] == [1]
    assert story.decision.claimed_by.tolist() == [0, 1, 2]
    assert story.short() == {0: {"cpu": 4}}


def test_a_need_that_never_preempts_takes_unclaimed_machines_only() -> None:
    """preemptionPolicy Never: neither a lower priority's machine nor what drains for one."""
    never_preempting = "west", pods((12, 1), never_preempts=True, priority=CRITICAL)
    specs = [
        Spec("leaving", MachineState.DRAINING, cluster="east"),
        Spec("awaited", MachineState.DRAINING, cluster="west", last_claimed_by=1),
        configured("excess"),
        configured("serving", last_claimed_by=2),
    ]
    story = Story(specs, never_preempting, ("east", need_of(4, group="waits")), batch(4))
    assert story.cycle() == ["Reclaim excess"]
    assert story.short() == {0: {"cpu": 4}}
    mine = story.decision.claimed_by == 0
    assert [spec.name for spec, its in zip(specs, mine, strict=True) if its] == [
        "leaving",
        "excess",
    ]
