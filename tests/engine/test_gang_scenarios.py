"""Gangs over several machines and cycles: whole or not at all, and never in each other's way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import CycleMemory, Reservation
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.engine.state.last_decision import key_of
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from tests.engine.engine_pods import outcome, pods
from tests.engine.engine_rig import (
    NOW,
    RACK,
    UNLIMITED,
    Spec,
    action_names,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
)
from tests.engine.engine_story import Story


def rack(name: str, count: int, make: object = idle, **kwargs: object) -> list[Spec]:
    """`count` machines of 4 cores in one rack."""
    return [make(f"{name}{n}", labels={RACK: name}, **kwargs) for n in range(count)]  # type: ignore[operator]


def gang(cluster: str, machines: int, group: str = "gang", priority: int = 0) -> tuple[str, Need]:
    """A gang that fills so many machines of one rack."""
    return cluster, need_of(4 * machines, same(), unit=2, group=group, priority=priority)


def plain(cluster: str, machines: int, priority: int = 0) -> tuple[str, Need]:
    """Pods that run anywhere."""
    return cluster, need_of(4 * machines, group="plain", priority=priority)


def in_service(name: str, count: int, cluster: str = "east", **kwargs: object) -> list[Spec]:
    """Machines of `cluster` in one rack."""
    return [configured(f"{name}{n}", cluster, labels={RACK: name}, **kwargs) for n in range(count)]


# Whole or not at all


@pytest.mark.parametrize("prices", [(1.0, 2.0), (2.0, 1.0)])
def test_a_gang_is_counted_on_its_own_machines_first(prices: tuple[float, float]) -> None:
    """Its pods run there; the other one of its rack serves others."""
    others, own = prices
    specs = [
        configured("others", labels={RACK: "a"}, price=others, last_claimed_by=1),
        configured("own", labels={RACK: "a"}, price=own, last_claimed_by=0),
    ]
    found = outcome(specs, pods((3, 1), requirements=(same(),), group="gang"), pods((4, 1)))
    assert found.places == {"own": {0: 3}, "others": {1: 4}}


@pytest.mark.parametrize("prices", [(1.0, 2.0), (2.0, 1.0)])
def test_a_gang_with_machines_in_two_racks_chooses_as_if_it_had_none(
    prices: tuple[float, float],
) -> None:
    """The first rack by name, where all else is equal."""
    specs = [
        configured(rack, labels={RACK: rack}, price=price, last_claimed_by=0)
        for rack, price in zip("ab", prices, strict=True)
    ]
    found = outcome(specs, pods((3, 1), requirements=(same(),), group="gang"))
    assert found.places == {"a": {0: 3}}


def test_a_gang_goes_where_its_cluster_has_a_machine_though_another_rack_is_tighter() -> None:
    """It acquires one machine less."""
    here = configured("here", "west", labels={RACK: "b"})
    specs = [*rack("a", 3), *rack("b", 3), here]
    assert Story(specs, gang("west", 3)).cycle() == ["Bootstrap b0", "Bootstrap b1"]


def test_of_two_racks_of_its_cluster_a_gang_prefers_that_with_more_machines_of_its_own() -> None:
    """Most of its pods run there."""
    specs = [*in_service("a", 3, "west"), *in_service("b", 4, "west")]
    for own in (0, 3, 4):
        specs[own] = replace(specs[own], last_claimed_by=0)
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [gang("west", 3)]), UNLIMITED)
    assert decision.claimed_by.tolist() == [NONE, NONE, NONE, 0, 0, 0, NONE]


def test_a_gang_evicts_only_if_that_completes_it() -> None:
    """Two machines of a rack do not complete a gang of three."""
    story = Story(in_service("a", 2), gang("west", 3, priority=9), plain("east", 2))
    assert story.cycle() == []
    assert story.short() == {0: {"cpu": 12}}


def test_a_gang_goes_where_evictions_complete_it() -> None:
    """The rack with more free machines would hold it only in part."""
    specs = [*rack("a", 2), *rack("b", 1), *in_service("b-busy", 2)]
    specs[3:] = [replace(spec, labels={RACK: "b"}) for spec in specs[3:]]
    story = Story(specs, gang("west", 3, priority=9), plain("east", 2))
    who_loses_looks_again = ["Bootstrap a0", "Bootstrap a1"]
    assert story.cycle() == [
        "Bootstrap b0", *who_loses_looks_again, "Preempt b-busy0", "Preempt b-busy1",
    ]  # fmt: skip
    assert [story.cycle() for _ in range(3)] == [[]] * 3
    story.arrive()
    assert story.cycle() == ["Bootstrap b-busy0", "Bootstrap b-busy1"]


def test_a_gang_prefers_the_rack_where_fewest_are_evicted() -> None:
    """Both racks would complete it."""
    specs = [*rack("a", 1), *in_service("a-busy", 2), *rack("b", 2), *in_service("b-busy", 1)]
    specs = [replace(spec, labels={RACK: spec.name[0]}) for spec in specs]
    story = Story(specs, gang("west", 3, priority=9), plain("east", 3))
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap a0", "Preempt b-busy0"]


# Reservations


def test_what_a_gang_waits_for_is_not_taken_by_equals() -> None:
    """Its action was lost; an equal that is served earlier must not take the idle machine."""
    specs = [*rack("a", 3)]
    story = Story(specs, gang("west", 3))
    story.lose_actions()
    (reservation,) = story.cycle_memory.reservations
    assert (reservation.need.cluster, reservation.domain, reservation.since_seconds) == (
        "west", "a", NOW)  # fmt: skip
    story.demand = demand_of(story.fleet, [plain("east", 1), gang("west", 3)])
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    assert story.cycle() == ["Bootstrap a0", "Bootstrap a1", "Bootstrap a2"]
    assert [action.need for action in story.decision.actions] == [1, 1, 1]


def test_a_reservation_ends_when_the_gang_is_complete() -> None:
    """Not when it is ordered, but when all of it is in service."""
    story = Story(rack("a", 3), gang("west", 3))
    story.cycle()
    assert len(story.cycle_memory.reservations) == 1
    story.arrive()
    story.cycle()
    assert len(story.cycle_memory.reservations) == 0


def test_a_gang_keeps_its_reserved_rack_though_another_one_is_better_now() -> None:
    """Its reserved rack can still hold all of it; moving halfway would occupy two racks."""
    specs = [*rack("a", 2), *in_service("busy", 1), *(replace(s, state=MachineState.FAILED)
             for s in rack("b", 3))]  # fmt: skip
    specs[2] = replace(specs[2], labels={RACK: "a"})
    story = Story(specs, gang("west", 3, priority=9), plain("east", 1))
    assert story.cycle() == ["Bootstrap a0", "Bootstrap a1", "Preempt busy0"]
    repaired = story.fleet.state.copy()
    repaired[3:] = MachineState.IDLE
    story.fleet = replace(story.fleet, state=repaired)
    assert story.cycle() == ["Bootstrap b0"]  # the plain need's, which lost its machine
    assert [action.need for action in story.decision.actions] == [1]


def test_a_reserved_rack_outweighs_a_tighter_one() -> None:
    """Though none of its pods are there yet: its actions were lost, the machines are reserved."""
    broken = [replace(spec, state=MachineState.FAILED) for spec in rack("a", 3)]
    story = Story([*broken, *rack("b", 4)], gang("west", 3))
    assert story.lose_actions() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2"]
    repaired = np.full(7, MachineState.IDLE, np.uint8)
    story.fleet = replace(story.fleet, state=repaired)
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2"]


def test_a_reserved_rack_outweighs_one_where_its_cluster_has_room() -> None:
    """The machines there have been promised to it; those of its cluster become surplus."""
    specs = [*rack("b", 3), *in_service("a", 3, cluster="west")]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [gang("west", 3)])
    kept = CycleMemory((Reservation(key_of(fleet, demand, 0), "b", NOW - 10),))
    orders = action_names(specs, checked(fleet, demand, UNLIMITED, NOW, kept))
    assert orders[:3] == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2"]


def test_an_expired_reservation_lets_others_have_their_turn() -> None:
    """Others may use machines that a gang could not use in time; then it tries again."""
    story = Story(rack("a", 3), gang("west", 3), settings=EngineConfig(reservation_seconds=5))
    while story.now < NOW + 5:
        assert len(story.lose_actions()) == 3
    story.demand = demand_of(story.fleet, [gang("west", 3), plain("east", 1)])
    assert story.cycle() == ["Bootstrap a0"]
    assert [action.need for action in story.decision.actions] == [1]


def test_two_gangs_that_wait_keep_a_rack_each() -> None:
    """A later gang neither gets the first one's reserved machines nor stays without a domain; an
    equal plain need gets neither.
    """
    story = Story(
        [*rack("a", 3), *rack("b", 3)], gang("west", 3, "first"), gang("east", 3, "second")
    )
    story.lose_actions()
    reserved = {r.need.group: r.domain for r in story.cycle_memory.reservations}
    assert reserved == {"first": "a", "second": "b"}
    needs = [plain("north", 1), gang("west", 3, "first"), gang("east", 3, "second")]
    story.fleet = replace(story.fleet, clusters=[*story.fleet.clusters, "north"])
    story.demand = demand_of(story.fleet, needs)
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    assert story.cycle() == [f"Bootstrap {name}" for name in ("a0", "a1", "a2", "b0", "b1", "b2")]
    assert story.short() == {0: {"cpu": 4}}


# Two gangs in each other's way


def test_a_gang_placed_on_anothers_machines_leaves_its_own_to_that_one() -> None:
    """The first, whose machines are idle, is complete on those being created for the second.
    The idle ones then serve the second, or it would create as many again in another rack.
    """
    specs = [*rack("a", 8, speculative), *rack("b", 8, speculative)]
    story = Story(specs, gang("east", 3, "first"))
    assert story.cycle() == ["Provision a0", "Provision a1", "Provision a2"]
    needs = [gang("east", 3, "first"), gang("east", 3, "second")]
    story.demand = demand_of(story.fleet, needs)
    assert story.cycle() == ["Provision a3", "Provision a4", "Provision a5"]
    made = story.fleet.state.copy()
    made[:3] = MachineState.IDLE
    story.fleet = replace(story.fleet, state=made)
    assert story.cycle() == ["Bootstrap a0", "Bootstrap a1", "Bootstrap a2"]
    story.arrive()
    assert story.settle() == ["Bootstrap a3", "Bootstrap a4", "Bootstrap a5"]
    assert story.short() == {}


def test_two_halves_of_a_rack_become_one_complete_gang() -> None:
    """Two equal gangs hold half of it each, and neither fits elsewhere: the earlier one gets
    all of it. Otherwise both would deadlock.
    """
    specs = [
        *in_service("a", 2, "west", last_claimed_by=0),
        *in_service("b", 2, "east", last_claimed_by=1),
    ]
    specs = [replace(spec, labels={RACK: "r"}) for spec in specs]
    story = Story(specs, gang("west", 4, "first"), gang("east", 4, "second"))
    assert story.cycle() == ["Preempt b0", "Preempt b1"]
    story.arrive()
    assert story.settle() == ["Bootstrap b0", "Bootstrap b1"]
    assert story.short() == {1: {"cpu": 16}}


def test_priority_comes_before_arrival() -> None:
    """Then the later one gets it all."""
    specs = [
        *in_service("a", 2, "west", last_claimed_by=1),
        *in_service("b", 2, "east", last_claimed_by=0),
    ]
    specs = [replace(spec, labels={RACK: "r"}) for spec in specs]
    story = Story(specs, gang("east", 4, "late", priority=1), gang("west", 4, "early"))
    assert story.cycle() == ["Preempt a0", "Preempt a1"]
    story.arrive()
    story.settle()
    assert story.short() == {1: {"cpu": 16}}


def test_an_impossible_gang_yields_to_a_possible_one() -> None:
    """No rack can hold the first; its machines complete the second."""
    specs = [*in_service("a", 2, "west", last_claimed_by=0), *rack("b", 1)]
    specs = [replace(spec, labels={RACK: "r"}) for spec in specs]
    story = Story(specs, gang("west", 9, "giant"), gang("east", 2, "small"))
    assert story.cycle() == ["Bootstrap b0", "Preempt a0", "Preempt a1"]
    assert [action.need for action in story.decision.actions] == [0, 1, 1]
    story.arrive()
    story.settle()
    assert [*story.short()] == [0]


def test_a_complete_gang_yields_to_no_equal() -> None:
    """Nor does a plain need take an incomplete gang's machines."""
    whole = Story(in_service("a", 2), gang("west", 2, "first"), gang("east", 2, "second"))
    assert whole.cycle() == []
    broken = Story(in_service("a", 2), plain("west", 1), gang("east", 3))
    assert broken.cycle() == []


def test_what_joins_for_an_incomplete_gang_is_its_own_as_much_as_what_serves_it() -> None:
    """If other pods were counted there until it has joined, the gang would be counted elsewhere
    then, and the machine released and acquired again in turn.
    """
    whole, broken = plain("east", 1), gang("east", 3)
    story = Story([*rack("a", 2), *rack("c", 1)], broken)
    assert story.cycle() == ["Bootstrap a0", "Bootstrap a1"]
    story.demand = demand_of(story.fleet, [whole, broken])
    story.fleet = replace(story.fleet, last_claimed_by=np.array([1, 1, NONE], np.int32))
    assert story.cycle() == ["Bootstrap c0"]
    story.arrive()
    assert story.settle() == []
    assert story.short() == {1: {"cpu": 4}}


# Numbers that once went wrong


def test_bound_gangs_stay_when_fresh_machines_appear() -> None:
    """24 gangs in service and 24 idle machines in better racks: nothing moves or is deleted."""
    bound = [spec for n in range(24) for spec in in_service(f"r{n:02}-", 2, last_claimed_by=n)]
    fresh = rack("a-fresh", 24, price=0.1)
    story = Story([*bound, *fresh], *(gang("east", 2, f"g{n:02}") for n in range(24)))
    assert story.cycle() == []


def test_a_serving_domain_of_two_loses_to_an_idle_one_of_three_that_is_needed() -> None:
    """Only a domain that can hold the gang keeps it. Once it is complete, its former machines are
    reclaimed without hold, or bound pods would hold the others back. One that fits nowhere stays.
    """
    specs = [*in_service("a", 2, last_claimed_by=0, disruption_cost=float("nan")), *rack("b", 3)]
    story = Story(specs, gang("east", 3), settings=EngineConfig(reclaim_cap_fraction=1.0))
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2"]
    assert story.cycle() == []
    story.arrive()
    assert story.cycle() == ["Reclaim a0", "Reclaim a1"]
    impossible = Story(specs, gang("east", 9))
    assert impossible.cycle() == []
    assert impossible.short() == {0: {"cpu": 28}}


@pytest.mark.parametrize("serving", ["a", "b"])
def test_a_serving_domain_that_suffices_wins_whatever_its_name_and_size(serving: str) -> None:
    """A fresh domain that scores tighter or sorts lower does not relocate a healthy gang."""
    specs = [*in_service(serving, 3, last_claimed_by=0), *rack("0-tight", 2)]
    story = Story(specs, gang("east", 2))
    assert story.cycle() == []


def test_thousands_of_small_gangs_fold_to_one_need_a_profile() -> None:
    """2,400 gangs of four sizes and three profiles are three needs of four sizes each."""
    fleet = fleet_of(rack("r", 1, cpu=64))
    needs = [
        ("east", need_of(2 + n % 4, same(), unit=1, group=f"g{n}", priority=-(n % 3)))
        for n in sorted(range(2400), key=lambda n: n % 3)
    ]
    folded = fold(fleet, demand_of(fleet, needs)).demand
    assert [len(need.sizes) for need in folded.needs] == [4, 4, 4]
    assert sum(need.aggregate["cpu"] for need in folded.needs) == sum(
        need.aggregate["cpu"] for _, need in needs
    )


# What a gang leaves


def test_surplus_machines_of_a_gangs_domain_go_once_they_are_empty() -> None:
    """The simulation does not know where its pods run: the machine that must stay is used first."""
    specs = in_service("a", 4, last_claimed_by=0)
    specs[2:] = [
        replace(specs[2], disruption_cost=float("inf")),
        replace(specs[3], last_claimed_by=NONE),
    ]
    story = Story(specs, gang("east", 2), settings=UNLIMITED)
    assert story.settle() == ["Reclaim a1", "Reclaim a3"]
    assert story.short() == {}


def test_a_gangs_pods_are_moved_within_their_domain_only() -> None:
    """One of its machines is reclaimed if the other holds all of its pods; a large machine
    elsewhere is no reason.
    """
    here = in_service("a", 2, cpu=6, last_claimed_by=0)
    gang_of_8 = ("east", need_of(8, same(), unit=2))
    elsewhere = in_service("b", 2, cpu=6, last_claimed_by=NONE, disruption_cost=float("nan"))
    story = Story([*here, *elsewhere], gang_of_8, settings=UNLIMITED)
    assert story.settle() == []


def test_machines_a_gang_left_are_reclaimed_although_another_gang_is_in_that_rack() -> None:
    """A gang of two outgrew its rack; now that it is complete in another one, its bound
    members hold back the others until they are evicted. So there is no hold and no query.
    """
    settled = in_service("a", 4, last_claimed_by=0)
    left = [
        replace(spec, name=f"a-old{n}", last_claimed_by=1, idle_since=NOW)
        for n, spec in enumerate(settled[:2])
    ]
    specs = [*settled, *left, *rack("b", 4)]
    story = Story(
        specs,
        gang("east", 4, "settled"),
        gang("east", 4, "grown"),
        settings=EngineConfig(reclaim_hold_seconds=3600.0, reclaim_cap_fraction=1.0),
    )
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2", "Bootstrap b3"]
    assert story.cycle() == []
    story.arrive()
    assert story.cycle() == ["Reclaim a-old0", "Reclaim a-old1"]


def test_a_gang_whose_members_may_not_share_a_rack_is_impossible() -> None:
    """All in one rack and no two in one: nothing is acquired for it, and it is reported."""
    specs = [configured("a", labels={RACK: "r1"}), idle("b", labels={RACK: "r1"})]
    torn = pods((2, 1), requirements=(same(),), anti_affinity=(RACK,))
    story = Story(specs, ("east", torn))
    assert story.cycle() == []
    (shortfall,) = story.decision.shortfalls
    assert [size.pods for size in shortfall.impossible] == [2]
