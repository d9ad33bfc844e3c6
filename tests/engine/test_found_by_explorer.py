"""Defects of the engine found by the explorer's random fleets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.group import Additional, FoldedGangs
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Operator, Requirement, Spread
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    NO_HOLD,
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

_EVENLY_BY_HOST = (Spread(HOSTNAME_LABEL, 1, True),)


def test_headroom_is_not_acquired_again_because_another_need_is_short() -> None:
    """A pod of six CPU is unplaced, and the headroom for gangs, a machine still joining, is offered
    to it first; as it is too small, it stays headroom.
    """
    specs = [
        *(idle(f"m{n}", labels={RACK: "a"}) for n in range(5)),
        configured("large", "west", cpu=8, labels={RACK: "a"}, disruption_cost=math.nan),
    ]
    gangs = [("east", need_of(2, same(), unit=1, group=f"[{n}]")) for n in range(2)]
    needs = [*gangs, ("east", need_of(6, unit=6)), ("west", need_of(8, unit=8))]
    folded = fold(fleet_of(specs), demand_of(fleet_of(specs), needs)).demand
    names = [fleet_of(specs).clusters[number] for number in folded.cluster.tolist()]
    story = Story(specs, *zip(names, folded.needs, strict=True))
    assert story.cycle() == ["Bootstrap m0", "Bootstrap m1"]
    assert [story.cycle() for _ in range(3)] == [[]] * 3


@pytest.mark.parametrize(("cost", "taken"), [(0.0, ["Reclaim x"]), (math.inf, [])])
def test_a_machine_that_its_operator_keeps_is_not_surplus(cost: float, taken: list[str]) -> None:
    """Pods run there although none are placed, maybe of a higher priority."""
    specs = [configured("x", last_priority=10, disruption_cost=cost)]
    story = Story(specs, ("west", need_of(4, priority=50)), settings=EngineConfig())
    assert story.cycle() == taken


def test_pods_that_fit_elsewhere_leave_the_machines_of_a_lower_priority_alone() -> None:
    """Else the pod of 16 CPU would be short, have a machine acquired, and leave it again as soon as
    the small pods are counted elsewhere. Those that fit nowhere else come first, as always.
    """
    size: dict[str, Any] = {"cpu": 16, "more": {"memory": 16}}
    specs = [
        configured("x", last_claimed_by=0, **size),
        configured("y", last_claimed_by=1, **size),
        idle("m", **size),
    ]
    large = "east", need_of(16, unit=16, more={"memory": 16})
    assert Story(specs, ("east", need_of(12, unit=1, priority=9)), large).cycle() == []
    assert Story(specs, ("east", need_of(17, unit=1, priority=9)), large).cycle() == ["Bootstrap m"]


def test_pods_are_spread_over_the_headroom_that_gangs_have_got() -> None:
    """They were placed before the gang, when the headroom was no domain: eight on one machine."""
    specs = [
        configured("x", cpu=8, labels={RACK: "a"}),
        configured("h", cpu=6, labels={RACK: "a"}, headroom=True),
        *(idle(f"m{n}", cpu=1, labels={RACK: "a"}) for n in range(9)),
    ]
    evenly = need_of(12, unit=1, spread=_EVENLY_BY_HOST)
    needs = [("east", need_of(4, same(), unit=2, group="[0]")), ("east", evenly)]
    folded = fold(fleet_of(specs), demand_of(fleet_of(specs), needs)).demand
    story = Story(specs, *(("east", need) for need in folded.needs))
    assert len(story.cycle()) >= 7
    assert story.short() == {}


def test_an_order_is_given_back_if_its_pods_go_where_another_need_has_ordered() -> None:
    """The pods of `apart`, one a zone, are placed again once they may use the headroom: in zone a
    on the large machine that the additional need has ordered meanwhile. The small one stays idle.
    """
    in_c = {ZONE: "c", RACK: "c"}
    specs = [
        configured("g", cpu=1, labels=in_c, last_claimed_by=0),
        configured("k", labels=in_c, last_claimed_by=1),
        configured("h", labels=in_c, headroom=True),
        idle("small", cpu=1, price=0.1, labels={ZONE: "a"}),
        idle("large", cpu=64, labels={ZONE: "a"}),
    ]
    gang = need_of(1, Requirement(RACK, Operator.EXISTS), unit=1, priority=10)
    apart = need_of(3, unit=1)
    more = need_of(2, Requirement(ZONE, Operator.IN, ("a",)), unit=1)
    needs = [
        replace(gang, group=FoldedGangs(RACK)),
        replace(apart, profile=replace(apart.profile, anti_affinity=(ZONE,))),
        replace(more, group=Additional()),
    ]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need) for need in needs])
    assert action_names(specs, checked(fleet, demand, EngineConfig())) == ["Bootstrap large"]


@pytest.mark.parametrize(("priority", "others"), [(9, ()), (0, ()), (0, _EVENLY_BY_HOST)])
@pytest.mark.parametrize(("pods", "orders"), [(4, []), (5, ["Bootstrap m"])])
def test_pods_that_spread_leave_the_machines_of_needs_placed_later_alone(
    priority: int, others: tuple[Spread, ...], pods: int, orders: list[str]
) -> None:
    """Two on each of their own keep within the skew. One on each machine would leave none to the
    large pod, for which another would be acquired, over which they would spread in turn.
    """
    specs = [
        *(configured(f"own{n}", last_claimed_by=0) for n in range(2)),
        configured("later", last_claimed_by=1),
        idle("m"),
    ]
    spread = (Spread(HOSTNAME_LABEL, 2, True),)
    small = need_of(pods, unit=1, spread=spread, priority=priority)
    needs = [small, need_of(4, unit=4, spread=others)]
    assert Story(specs, *(("east", need) for need in needs)).cycle() == orders


def test_pods_that_spread_prefer_machines_of_their_own_priority() -> None:
    """Both machines are claimed by needs placed later. One of the two pods on the second would
    leave the large pod none, for which another would be acquired.
    """
    specs = [
        configured("shared", last_claimed_by=1),
        configured("lower", last_claimed_by=2),
        idle("m"),
    ]
    spread = (Spread(HOSTNAME_LABEL, 2, True),)
    needs = [
        need_of(2, unit=1, spread=spread, priority=9),
        need_of(1, unit=1, priority=9),
        need_of(4, unit=4),
    ]
    assert Story(specs, *(("east", need) for need in needs)).cycle() == []


@pytest.mark.parametrize(("size", "released"), [(15, 0), (14, 1)])
def test_a_machine_stays_if_its_pods_would_take_the_room_of_a_gang(
    size: int, released: int
) -> None:
    """Those of a higher priority are placed before the gang, both on one machine, and not in the
    room that it leaves on each: it would get the released machine again.
    """
    in_rack: dict[str, Any] = {"cpu": 16, "labels": {RACK: "a"}}
    specs = [
        configured("a", last_claimed_by=0, **in_rack),
        *(configured(name, last_claimed_by=1, **in_rack) for name in "bc"),
    ]
    urgent = need_of(2, unit=1, priority=9)
    gang = need_of(2 * size, same(), unit=size, group="gang")
    story = Story(specs, ("east", urgent), ("east", gang), settings=NO_HOLD)
    assert [order.split()[0] for order in story.settle()] == ["Reclaim"] * released


def test_pods_that_run_are_not_evacuated_beyond_their_skew() -> None:
    """They would fit into `y` if all were counted anew; as it is, they would go to zone b, and a
    machine of zone c would be acquired for them.
    """
    specs = [
        configured("x", cpu=2, labels={ZONE: "c"}, last_claimed_by=0),
        configured("y", labels={ZONE: "c"}, last_claimed_by=1, disruption_cost=math.nan),
        configured("z", cpu=8, labels={ZONE: "b"}, last_claimed_by=0, disruption_cost=math.nan),
        idle("m", cpu=2, labels={ZONE: "c"}),
    ]
    evenly = need_of(4, unit=1, spread=EVENLY_BY_ZONE, priority=9)
    story = Story(specs, ("east", evenly), ("east", need_of(4, unit=1)), settings=NO_HOLD)
    assert [story.cycle() for _ in range(3)] == [[]] * 3


def test_a_margin_takes_no_room_from_a_gang() -> None:
    """Else nothing would be surplus where a gang has all the room that there is for it."""
    in_rack: dict[str, Any] = {"labels": {RACK: "a"}}
    specs = [
        configured("a", cpu=20, last_claimed_by=0, **in_rack),
        *(configured(name, cpu=5, last_claimed_by=1, **in_rack) for name in "bc"),
        configured("unused", cpu=5),
    ]
    urgent = need_of(20, Requirement(RACK, Operator.EXISTS), unit=1, priority=9)
    gang = need_of(10, same(), unit=5, group="gang")
    story = Story(specs, ("east", urgent), ("east", gang), settings=NO_HOLD)
    assert story.settle() == ["Reclaim unused"]
