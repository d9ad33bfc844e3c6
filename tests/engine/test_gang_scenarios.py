"""Gangs over several machines and cycles: whole or not at all, and never in each other's way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.fit.normalise import normalise
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from tests.engine.engine_rig import (
    NOW,
    RACK,
    Spec,
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


AT_ONCE = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=0.0)


def plain(cluster: str, machines: int, priority: int = 0) -> tuple[str, Need]:
    """Pods that run anywhere."""
    return cluster, need_of(4 * machines, group="plain", priority=priority)


def at_work(name: str, count: int, cluster: str = "east", **kwargs: object) -> list[Spec]:
    """Machines of `cluster` in one rack."""
    return [configured(f"{name}{n}", cluster, labels={RACK: name}, **kwargs) for n in range(count)]


# Whole or not at all


def test_a_gang_evicts_nobody_in_vain() -> None:
    """Two machines of a rack do not make a gang of three whole."""
    story = Story(at_work("a", 2), gang("west", 3, priority=9), plain("east", 2))
    assert story.cycle() == []
    assert story.short() == {0: {"cpu": 12}}


def test_a_gang_goes_where_evictions_make_it_whole() -> None:
    """The rack with more free machines would hold it only in part."""
    specs = [*rack("a", 2), *rack("b", 1), *at_work("b-busy", 2)]
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
    """Both racks would make it whole."""
    specs = [*rack("a", 1), *at_work("a-busy", 2), *rack("b", 2), *at_work("b-busy", 1)]
    specs = [replace(spec, labels={RACK: spec.name[0]}) for spec in specs]
    story = Story(specs, gang("west", 3, priority=9), plain("east", 3))
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap a0", "Preempt b-busy0"]


# Reservations


def test_what_a_gang_waits_for_is_not_taken_by_equals() -> None:
    """Its order for an idle machine got lost; an equal that is served earlier must not have it."""
    specs = [*rack("a", 3)]
    story = Story(specs, gang("west", 3))
    story.lose_orders()
    (reservation,) = story.cycle_memory.reservations
    assert (reservation.need.cluster, reservation.domain, reservation.since_seconds) == (
        "west", "a", NOW)  # fmt: skip
    story.demand = demand_of(story.fleet, [plain("east", 1), gang("west", 3)])
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    assert story.cycle() == ["Bootstrap a0", "Bootstrap a1", "Bootstrap a2"]
    assert [action.need for action in story.decision.actions] == [1, 1, 1]


def test_a_reservation_ends_when_the_gang_is_whole() -> None:
    """Not when it is ordered, but when all of it is in service."""
    story = Story(rack("a", 3), gang("west", 3))
    story.cycle()
    assert len(story.cycle_memory.reservations) == 1
    story.arrive()
    story.cycle()
    assert len(story.cycle_memory.reservations) == 0


def test_a_gang_gathers_where_it_began_though_another_rack_looks_better_now() -> None:
    """Its reserved rack still can hold all of it; half a move would hold two racks."""
    specs = [*rack("a", 2), *at_work("busy", 1), *(replace(s, state=MachineState.FAILED)
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
    """Though nothing of the gang is there yet: its orders got lost, the machines wait for it."""
    broken = [replace(spec, state=MachineState.FAILED) for spec in rack("a", 3)]
    story = Story([*broken, *rack("b", 4)], gang("west", 3))
    assert story.lose_orders() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2"]
    repaired = np.full(7, MachineState.IDLE, np.uint8)
    story.fleet = replace(story.fleet, state=repaired)
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2"]


def test_an_expired_reservation_lets_others_have_their_turn() -> None:
    """Machines that a gang could not make use of in time go to who can, then it may try again."""
    story = Story(rack("a", 3), gang("west", 3), settings=EngineConfig(reservation_seconds=5))
    while story.now < NOW + 5:
        assert len(story.lose_orders()) == 3
    story.demand = demand_of(story.fleet, [gang("west", 3), plain("east", 1)])
    assert story.cycle() == ["Bootstrap a0"]
    assert [action.need for action in story.decision.actions] == [1]


def test_two_gangs_that_wait_keep_a_rack_each() -> None:
    """Whoever comes later neither gets what is kept for the first nor stays without a domain; an
    equal plain need gets neither.
    """
    story = Story(
        [*rack("a", 3), *rack("b", 3)], gang("west", 3, "first"), gang("east", 3, "second")
    )
    story.lose_orders()
    reserved = {r.need.group: r.domain for r in story.cycle_memory.reservations}
    assert reserved == {"first": "a", "second": "b"}
    needs = [plain("north", 1), gang("west", 3, "first"), gang("east", 3, "second")]
    story.fleet = replace(story.fleet, clusters=[*story.fleet.clusters, "north"])
    story.demand = demand_of(story.fleet, needs)
    story.fleet = replace(story.fleet, last_claimed_by=story.fleet.last_claimed_by + 1)
    assert story.cycle() == [f"Bootstrap {name}" for name in ("a0", "a1", "a2", "b0", "b1", "b2")]
    assert story.short() == {0: {"cpu": 4}}


# Two gangs in each other's way


def test_a_gang_that_counts_on_anothers_machines_leaves_its_own_to_that_one() -> None:
    """The first, whose machines wait idle, is whole on those that are being made for the second.
    The idle ones are for the second then, or it would buy as many again, in another rack.
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


def test_two_halves_of_a_rack_become_one_whole_gang() -> None:
    """Two equal gangs hold half of it each, and neither could go elsewhere: the earlier one gets
    all of it. Left alone, both would wait for ever.
    """
    specs = [
        *at_work("a", 2, "west", last_claimed_by=0),
        *at_work("b", 2, "east", last_claimed_by=1),
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
        *at_work("a", 2, "west", last_claimed_by=1),
        *at_work("b", 2, "east", last_claimed_by=0),
    ]
    specs = [replace(spec, labels={RACK: "r"}) for spec in specs]
    story = Story(specs, gang("east", 4, "late", priority=1), gang("west", 4, "early"))
    assert story.cycle() == ["Preempt a0", "Preempt a1"]
    story.arrive()
    story.settle()
    assert story.short() == {1: {"cpu": 16}}


def test_an_impossible_gang_gives_way_to_a_possible_one() -> None:
    """No rack will ever hold the first; what it gathered makes the second whole."""
    specs = [*at_work("a", 2, "west", last_claimed_by=0), *rack("b", 1)]
    specs = [replace(spec, labels={RACK: "r"}) for spec in specs]
    story = Story(specs, gang("west", 9, "giant"), gang("east", 2, "small"))
    assert story.cycle() == ["Bootstrap b0", "Preempt a0", "Preempt a1"]
    assert [action.need for action in story.decision.actions] == [0, 1, 1]
    story.arrive()
    story.settle()
    assert [*story.short()] == [0]


def test_a_whole_gang_gives_way_to_no_equal() -> None:
    """Nor does a plain need take an incomplete gang's machines."""
    whole = Story(at_work("a", 2), gang("west", 2, "first"), gang("east", 2, "second"))
    assert whole.cycle() == []
    broken = Story(at_work("a", 2), plain("west", 1), gang("east", 3))
    assert broken.cycle() == []


# Numbers that once went wrong


def test_bound_gangs_stay_when_fresh_machines_appear() -> None:
    """24 gangs in service and 24 idle machines in better racks: nobody moves, nothing goes back."""
    bound = [spec for n in range(24) for spec in at_work(f"r{n:02}-", 2, last_claimed_by=n)]
    fresh = rack("a-fresh", 24, price=0.1)
    story = Story([*bound, *fresh], *(gang("east", 2, f"g{n:02}") for n in range(24)))
    assert story.cycle() == []


def test_a_serving_domain_of_two_loses_to_an_idle_one_of_three_that_is_needed() -> None:
    """Staying put is for domains that can hold the gang. Once it is whole, what it left behind goes
    at once, or its bound pods would hold the others back. One that fits nowhere stays put.
    """
    specs = [*at_work("a", 2, last_claimed_by=0, disruption_cost=float("nan")), *rack("b", 3)]
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
    specs = [*at_work(serving, 3, last_claimed_by=0), *rack("0-tight", 2)]
    story = Story(specs, gang("east", 2))
    assert story.cycle() == []


def test_thousands_of_small_gangs_fold_to_one_need_a_profile() -> None:
    """2,400 gangs of four sizes and three profiles are three needs of four sizes each."""
    fleet = fleet_of(rack("r", 1, cpu=64))
    needs = [
        ("east", need_of(2 + n % 4, same(), unit=1, group=f"g{n}", priority=-(n % 3)))
        for n in sorted(range(2400), key=lambda n: n % 3)
    ]
    folded = normalise(fleet, demand_of(fleet, needs))
    assert [len(need.sizes) for need in folded.needs] == [4, 4, 4]
    assert sum(need.aggregate["cpu"] for need in folded.needs) == sum(
        need.aggregate["cpu"] for _, need in needs
    )


# What a gang leaves


def test_surplus_machines_of_a_gangs_domain_go_once_they_are_empty() -> None:
    """Where its pods run the count cannot know: the machine that must not go is counted first."""
    specs = at_work("a", 4, last_claimed_by=0)
    specs[2:] = [
        replace(specs[2], disruption_cost=float("inf")),
        replace(specs[3], last_claimed_by=NONE),
    ]
    story = Story(specs, gang("east", 2), settings=AT_ONCE)
    assert story.settle() == ["Reclaim a1", "Reclaim a3"]
    assert story.short() == {}


def test_a_gangs_pods_are_moved_within_their_domain_only() -> None:
    """One of its machines goes where the other has room for all of its pods; a roomy machine
    elsewhere is no reason.
    """
    here = at_work("a", 2, cpu=6, last_claimed_by=0)
    gang_of_8 = ("east", need_of(8, same(), unit=2))
    elsewhere = at_work("b", 2, cpu=6, last_claimed_by=NONE, disruption_cost=float("nan"))
    story = Story([*here, *elsewhere], gang_of_8, settings=AT_ONCE)
    assert story.settle() == []


def test_what_a_gang_left_behind_goes_at_once_although_another_gang_is_at_home_there() -> None:
    """A gang of two grew to four, for which its rack has no room; where it is whole now, its bound
    members hold back the others until they are evicted. No hold, no question.
    """
    settled = at_work("a", 4, last_claimed_by=0)
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
