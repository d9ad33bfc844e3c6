"""Who loses a machine to whom, told by small fleets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_rig import (
    EVENLY_BY_ZONE,
    RACK,
    ZONE,
    Spec,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    said,
    same,
)
from engine_story import Story

from bigfleet.engine.decision import ActionKind, Decision
from bigfleet.engine.normalise import normalise
from bigfleet.engine.snapshot import Settings, VictimWeights
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Requirement

CRITICAL = 1_000_000
ONLY_IN_A = "west", need_of(4, Requirement(ZONE, Operator.IN, ("a",)), priority=CRITICAL)


def critical(cpu: int, **kwargs: object) -> tuple[str, Need]:
    """What cluster west must have."""
    return "west", need_of(cpu, priority=CRITICAL, group="critical", **kwargs)  # type: ignore[arg-type]


def batch(cpu: int, priority: int = 0, **kwargs: object) -> tuple[str, Need]:
    """What cluster east does with its machines."""
    group = f"batch-{priority}"
    return "east", need_of(cpu, priority=priority, group=group, **kwargs)  # type: ignore[arg-type]


def decided(
    specs: list[Spec], *needs: tuple[str, Need], settings: Settings | None = None
) -> Decision:
    fleet = fleet_of(specs)
    return checked(fleet, demand_of(fleet, needs), settings)


def orders(
    specs: list[Spec], *needs: tuple[str, Need], settings: Settings | None = None
) -> list[str]:
    """What is ordered for `needs`, which are in order of priority."""
    return said(specs, decided(specs, *needs, settings=settings))


# Supply that is on its way


def test_one_deficit_is_preempted_once_however_long_the_drain() -> None:
    """A victim counts for whom it drains. Otherwise each cycle would evict one more machine."""
    story = Story([configured(f"b{n}") for n in range(8)], critical(4), batch(32))
    assert story.cycle() == ["Preempt b0"]
    assert [story.cycle() for _ in range(10)] == [[]] * 10
    story.arrive()
    assert story.cycle() == ["Bootstrap b0"]
    story.arrive()
    assert story.cycle() == []
    assert story.short() == {1: {"cpu": 4}}


def test_a_second_victim_falls_only_for_a_second_deficit() -> None:
    """While one drains, a need that grew takes the difference."""
    specs = [configured(f"b{n}") for n in range(4)]
    story = Story(specs, critical(4), batch(16))
    story.cycle()
    story.demand = demand_of(story.fleet, [critical(8), batch(16)])
    assert story.cycle() == ["Preempt b1"]


def test_what_drains_for_nobody_comes_before_new_victims() -> None:
    """After a restart nobody remembers for whom a machine drains; it will be free all the same."""
    leaving = Spec("leaving", MachineState.DRAINING, cluster="east")
    assert orders([leaving, configured("b")], critical(4), batch(4)) == []


def test_a_victim_comes_to_its_preemptor_and_not_to_an_equal_that_came_earlier() -> None:
    """Or the preemptor would evict once more for the same deficit."""
    earlier = "north", need_of(4, priority=CRITICAL, group="earlier")
    specs = [configured("b0"), configured("b1"), configured("n", "north")]
    story = Story(specs, earlier, critical(4), batch(8))
    assert story.cycle() == ["Preempt b0"]
    grown = "north", need_of(8, priority=CRITICAL, group="earlier")
    story.demand = demand_of(story.fleet, [grown, critical(4), batch(8)])
    story.arrive()
    assert story.cycle() == ["Bootstrap b0", "Preempt b1"]
    assert [action.need for action in story.decision.actions] == [1, 0]


def test_a_higher_priority_may_have_what_is_kept_for_a_lower_one() -> None:
    """Being kept protects from equals only."""
    story = Story([configured("b")], ("west", need_of(4, priority=50)), batch(4))
    story.cycle()
    story.arrive()
    higher = "east", need_of(4, priority=60)
    story.demand = demand_of(story.fleet, [higher, ("west", need_of(4, priority=50))])
    story.fleet = replace(story.fleet, wanted_by=story.fleet.wanted_by + 1)
    assert story.cycle() == ["Bootstrap b"]
    assert story.short() == {1: {"cpu": 4}}


@pytest.mark.parametrize(("urgency", "orders"), [(60, []), (CRITICAL, ["Preempt m1"])])
def test_what_drains_for_a_lower_priority_is_taken_over_before_anyone_is_evicted(
    urgency: int, orders: list[str]
) -> None:
    """`m0` drains for priority 50 when a higher one comes. It takes `m0` over, and who serves 55
    notices nothing. Only where it may demand a shorter grace than the pods on `m0` were given, does
    it evict anew; then 55 takes `m0` over.
    """
    served, middle = batch(4, priority=55), ("west", need_of(4, priority=50))
    specs = [configured("m0", wanted_by=2), configured("m1", wanted_by=0)]
    lowest = batch(4)
    story = Story(specs, served, middle, lowest)
    assert story.cycle() == ["Preempt m0"]
    urgent = "west", need_of(4, priority=urgency)
    story.fleet = replace(story.fleet, wanted_by=story.fleet.wanted_by + 1)
    story.demand = demand_of(story.fleet, [urgent, served, middle, lowest])
    assert story.cycle() == orders
    assert [*story.short()] == [2, 3]
    assert story.cycle() == []
    story.arrive()
    assert "Bootstrap m0" in story.cycle()


def test_of_what_drains_for_lower_priorities_the_lowest_gives_way() -> None:
    """Who loses it looks for another one, lower still."""
    specs = [configured(f"m{n}") for n in range(3)]
    lower, middle = ("west", need_of(4, priority=40)), ("west", need_of(4, priority=50))
    lowest = batch(12)
    story = Story(specs, middle, lower, lowest)
    assert story.cycle() == ["Preempt m0", "Preempt m1"]
    urgent = "west", need_of(4, priority=60)
    story.fleet = replace(story.fleet, wanted_by=story.fleet.wanted_by + 1)
    story.demand = demand_of(story.fleet, [urgent, middle, lower, lowest])
    assert story.cycle() == ["Preempt m2"]
    assert [action.need for action in story.decision.actions] == [2]
    assert story.decision.claimed_by.tolist() == [1, 0, 2]


# Excess before eviction


def test_excess_is_taken_before_anyone_is_evicted() -> None:
    """Phase 1 knows what nobody counts; evicting `serving`, the better victim by its score, would
    be for nothing.
    """
    specs = [
        configured("excess", last_priority=500),
        configured("serving", wanted_by=1),
    ]
    decision = decided(specs, critical(4), batch(4))
    assert said(specs, decision) == ["Reclaim excess"]
    assert decision.actions[0].need == 0


@pytest.mark.parametrize(("priority", "taken"), [(50, ["Reclaim excess"]), (10, []), (5, [])])
def test_within_its_hold_excess_is_protected_like_what_it_served(
    priority: int, taken: list[str]
) -> None:
    """Its own pods often come back at once; only who could have evicted them may take it."""
    excess, need = configured("excess", last_priority=10), need_of(4, priority=priority)
    assert orders([excess], ("west", need), settings=Settings()) == taken


def test_after_its_hold_excess_is_anybodys() -> None:
    """It would be drained anyway; now it is known for whom."""
    decision = decided([configured("x", last_priority=10)], ("west", need_of(4, priority=5)))
    assert [(a.kind, a.need) for a in decision.actions] == [(ActionKind.RECLAIM, 0)]
    assert decision.claimed_by.tolist() == [0]


def test_excess_kept_back_by_the_cap_is_waited_for() -> None:
    """The cap costs a cycle, not somebody's pods."""
    specs = [configured("e0"), configured("e1"), configured("serving", wanted_by=1)]
    story = Story(specs, critical(8), batch(4))
    assert story.cycle() == ["Reclaim e0"]
    assert (story.decision.reclaims_capped, story.short()) == (1, {})
    assert story.cycle() == ["Reclaim e1"]
    story.arrive()
    assert story.cycle() == ["Bootstrap e0", "Bootstrap e1"]


# Whose turn it is to lose


def test_the_lowest_priority_loses_first() -> None:
    """The widest gap is the best score."""
    specs = [configured("low", wanted_by=2), configured("mid", wanted_by=1)]
    assert orders(specs, critical(4), batch(4, 500), batch(4, 10)) == ["Preempt low"]


def test_among_equal_priorities_the_lower_penalties_lose() -> None:
    """One term for interrupting pods, one for giving the machine up."""
    for name in ("interruption", "reclamation"):
        dear = batch(4, 10, **{name: penalty.bucket(100)})
        cheap = "east", need_of(4, priority=10, group="cheap")
        specs = [configured("dear", wanted_by=1), configured("cheap", wanted_by=2)]
        assert orders(specs, critical(4), dear, cheap) == ["Preempt cheap"]


def test_weights_can_put_penalties_before_priorities() -> None:
    """They are settings: here a cent of reclamation outweighs a gap of 490."""
    specs = [configured("valuable", wanted_by=2), configured("mid", wanted_by=1)]
    needs = critical(4), batch(4, 500), batch(4, 10, reclamation=penalty.bucket(100))
    weights = VictimWeights(reclamation=10.0)
    assert orders(specs, *needs, settings=Settings(victim_weights=weights)) == ["Preempt mid"]
    assert orders(specs, *needs) == ["Preempt valuable"]


def test_the_pinned_lose_last_of_all() -> None:
    """Priority alone decides who gets machines, but pods that must not be interrupted wait at the
    end of the queue of victims, whatever their priority.
    """
    pinned = batch(4, 10, interruption=penalty.PINNED)
    specs = [configured("pinned", wanted_by=2), configured("mid", wanted_by=1)]
    assert orders(specs, critical(4), batch(4, 500), pinned) == ["Preempt mid"]
    assert orders([configured("pinned")], critical(4), pinned) == ["Preempt pinned"]


def test_equals_do_not_displace_each_other() -> None:
    """Nor do their penalties: priority is the only throttle."""
    for bucket in (penalty.ZERO, penalty.PINNED):
        wish = "west", need_of(4, interruption=bucket, reclamation=bucket)
        assert orders([configured("b")], ("east", need_of(4)), wish) == []


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
    specs = [configured("big", cpu=16, wanted_by=2), configured("small", cpu=4, wanted_by=1)]
    needs = critical(16), batch(4), ("east", need_of(16, priority=-5))
    assert orders(specs, *needs) == ["Preempt big"]


def test_machines_with_scarce_resources_are_evicted_last() -> None:
    """Plain pods do not drive GPU work out while there is another way."""
    gpu = {"nvidia.com/gpu": 8000}
    specs = [configured("gpu", more=gpu, wanted_by=2), configured("plain", wanted_by=1)]
    needs = critical(4), batch(4, 500), batch(4, 10, more={"nvidia.com/gpu": 1000})
    assert orders(specs, *needs) == ["Preempt plain"]


def test_nothing_is_taken_where_nobody_can_be_told() -> None:
    """Neither from a cluster that has not reported nor from one whose operator is away."""
    specs = [configured("a"), configured("b", "north")]
    fleet = fleet_of(specs)
    needs = [critical(8), batch(4), ("north", need_of(4))]
    unheard = demand_of(fleet, needs, reported=["east", "west"])
    assert said(specs, checked(fleet, unheard)) == ["Preempt a"]
    away = demand_of(fleet, needs, ["east", "west", "north"], unreachable=["east"])
    assert said(specs, checked(fleet, away)) == ["Preempt b"]


# Who loses looks again


def test_who_loses_a_machine_takes_a_free_one() -> None:
    """In the same cycle, where there is one that the preemptor could not use."""
    specs = [configured("in-a", labels={ZONE: "a"}), idle("in-b", labels={ZONE: "b"})]
    assert orders(specs, ONLY_IN_A, batch(4)) == ["Bootstrap in-b", "Preempt in-a"]


def test_who_loses_a_machine_takes_one_of_a_still_lower_priority() -> None:
    """Loss runs down the priorities in one cycle and ends there."""
    specs = [configured("x", labels={ZONE: "a"}), configured("y", "north", labels={ZONE: "b"})]
    lowest = "north", need_of(4, priority=-1)
    fleet = fleet_of(specs)
    needs = [ONLY_IN_A, batch(4), lowest]
    decision = checked(fleet, demand_of(fleet, needs, ["east", "west", "north"]))
    assert said(specs, decision) == ["Preempt x", "Preempt y"]
    assert [(s.need, dict(s.deficit)) for s in decision.shortfalls] == [(2, {"cpu": 4})]


def test_eviction_respects_the_skew() -> None:
    """A third machine in the crowded zone would be taken in vain."""
    specs = [configured(f"a{n}", labels={ZONE: "a"}) for n in range(3)]
    specs.append(configured("b", "west", labels={ZONE: "b"}))
    found = decided(specs, critical(16, spread=EVENLY_BY_ZONE), batch(12))
    assert sorted(said(specs, found)) == ["Preempt a0", "Preempt a1"]
    assert dict(found.shortfalls[0].deficit) == {"cpu": 7}


def test_small_gangs_share_what_they_take() -> None:
    """A machine that may be evicted proves that a gang fits on one, so gangs fold; otherwise each
    would evict a machine of its own.
    """
    specs = [configured(f"b{n}", cpu=16, labels={RACK: "r"}) for n in range(9)]
    gangs = [
        ("west", need_of(4, same(), unit=2, group=f"gang-{n}", priority=CRITICAL)) for n in range(8)
    ]
    fleet = fleet_of(specs)
    demand = normalise(fleet, demand_of(fleet, [*gangs, batch(144)]))
    assert said(specs, checked(fleet, demand)) == ["Preempt b0", "Preempt b1"]


def test_a_plain_need_takes_what_there_is() -> None:
    """Part of its pods is better than none; the rest is a shortfall."""
    story = Story([configured("b")], critical(100), batch(4))
    assert story.cycle() == ["Preempt b"]
    assert story.short() == {0: {"cpu": 96}, 1: {"cpu": 4}}
