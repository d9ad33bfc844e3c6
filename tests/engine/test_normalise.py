"""Gangs that fit on one machine fold, and folding never overstates what is feasible."""

from __future__ import annotations

import numpy as np
from engine_rig import (
    EVENLY_BY_ZONE,
    IN_FLIGHT,
    RACK,
    carried_out,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    said,
    same,
    speculative,
)
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.normalise import fold, normalise
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Spread

IN_RACK = {RACK: "r1"}


def gangs(count: int, cpu: int) -> list[tuple[str, Need]]:
    return [("east", need_of(cpu, same(), unit=1, group=f"gang-{n}")) for n in range(count)]


def test_small_gangs_become_one_plain_need_of_whole_gangs() -> None:
    """Five gangs of 2 on machines of 4 are one need for 10 whose unit is a gang."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    (folded,) = normalise(fleet, demand_of(fleet, gangs(5, 2))).needs
    assert folded.aggregate == {"cpu": 10}
    assert folded.largest == {"cpu": 2}
    assert folded.profile.same_key is None


def test_folded_gangs_take_as_many_machines_as_hold_them_whole() -> None:
    """Five gangs of 2 need three machines of 4, not five, and one more is ahead."""
    specs = [idle(f"m{n}", labels=IN_RACK) for n in range(6)]
    fleet = fleet_of(specs)
    decision = checked(fleet, normalise(fleet, demand_of(fleet, gangs(5, 2))))
    assert len(said(specs, decision)) == 3 + len(decision.headroom) == 4


def test_a_gang_larger_than_any_machine_keeps_its_common_domain() -> None:
    """The case that Same is for stays as it is."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    demand = demand_of(fleet, gangs(2, 5))
    assert normalise(fleet, demand).needs == demand.needs


def test_gangs_of_different_sizes_do_not_mix() -> None:
    """A machine's room is counted in whole gangs of one size."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    folded = normalise(fleet, demand_of(fleet, [*gangs(2, 2), *gangs(3, 3)]))
    assert [dict(need.aggregate) for need in folded.needs] == [{"cpu": 4}, {"cpu": 9}]


def test_machines_without_the_domain_label_are_no_room() -> None:
    """The scheduler puts no pod of a gang where the label is missing, folded or not."""
    fleet = fleet_of([idle("bare"), idle("racked", labels=IN_RACK)])
    (folded,) = normalise(fleet, demand_of(fleet, gangs(1, 2))).needs
    assert [(r.key, r.operator) for r in folded.profile.requirements] == [(RACK, Operator.EXISTS)]
    only_bare = fleet_of([idle("bare")])
    demand = demand_of(only_bare, gangs(1, 2))
    assert normalise(only_bare, demand).needs == demand.needs


def test_a_gang_stays_folded_while_its_machine_is_being_created() -> None:
    """Unfolding for a moment would buy a second set of machines for it."""
    specs = [
        speculative("big", cpu=8, labels=IN_RACK),
        *(speculative(f"small-{n}", cpu=2, labels=IN_RACK) for n in range(4)),
    ]
    fleet = fleet_of(specs)
    demand = normalise(fleet, demand_of(fleet, gangs(1, 8)))
    decision = checked(fleet, demand)
    assert said(specs, decision) == ["Provision big"]
    later = carried_out(fleet, demand, decision, IN_FLIGHT)
    again = normalise(later, demand_of(later, gangs(1, 8)))
    assert again.needs == demand.needs
    assert said(specs, checked(later, again)) == []


def test_gangs_that_differ_only_in_spread_fold_into_one_need() -> None:
    """Same outranks spread, so as plain needs they are the same."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    plain = need_of(2, same(), unit=1, group="a")
    spread = need_of(2, same(), unit=1, group="b", spread=EVENLY_BY_ZONE)
    (folded,) = normalise(fleet, demand_of(fleet, [("east", plain), ("east", spread)])).needs
    assert folded.aggregate == {"cpu": 4}


def test_another_clusters_machines_do_not_make_a_gang_fold() -> None:
    """What is bound elsewhere cannot serve, so it proves nothing."""
    fleet = fleet_of([configured("theirs", "west", cpu=9, labels=IN_RACK)])
    demand = demand_of(fleet, gangs(1, 5))
    assert normalise(fleet, demand).needs == demand.needs
    own = fleet_of([configured("ours", "east", cpu=9, labels=IN_RACK)])
    assert normalise(own, demand_of(own, gangs(1, 5))).needs[0].profile.same_key is None


def test_a_machine_that_could_be_bought_makes_a_gang_fold() -> None:
    """Speculative supply serves too."""
    fleet = fleet_of([speculative("s", labels=IN_RACK)])
    assert normalise(fleet, demand_of(fleet, gangs(1, 4))).needs[0].profile.same_key is None


def test_demand_without_gangs_is_returned_as_it_is() -> None:
    """The common case costs one look."""
    fleet = fleet_of([idle("m")])
    demand = demand_of(fleet, [("east", need_of(4))])
    assert normalise(fleet, demand) is demand


def test_a_folded_need_stands_where_its_first_gang_stood() -> None:
    """Folding does not change who is served first."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    plain = ("east", need_of(7))
    first, second = gangs(2, 2)
    folded = normalise(fleet, demand_of(fleet, [first, plain, second]))
    assert [need.aggregate["cpu"] for need in folded.needs] == [4, 7]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 6)), min_size=1, max_size=6),
    st.lists(st.integers(1, 8), min_size=1, max_size=8),
)
def test_claimed_machines_hold_every_folded_gang_whole(
    kinds: list[tuple[int, int]], machines: list[int]
) -> None:
    """Where a folded need is covered, its machines really hold that many whole gangs."""
    fleet = fleet_of([idle(f"m{n}", cpu=cpu, labels=IN_RACK) for n, cpu in enumerate(machines)])
    needs = [gang for count, cpu in kinds for gang in gangs(count, cpu)]
    demand = normalise(fleet, demand_of(fleet, needs))
    decision = checked(fleet, demand)
    short = {shortfall.need for shortfall in decision.shortfalls}
    for index, need in enumerate(demand.needs):
        if need.profile.same_key is None and index not in short:
            one = need.largest["cpu"]
            rows = (decision.claimed_by == index).nonzero()[0]
            assert sum(machines[row] // one for row in rows) * one >= need.aggregate["cpu"]
    assert all(a.need != NONE for a in decision.actions)
    assert (fleet.state == MachineState.IDLE).all()


SOFTLY, TIGHTLY = Spread("zone", 2, False), Spread("rack", 1, False)


def test_needs_that_differ_only_in_preferred_spread_are_served_as_one() -> None:
    """Three times half a machine is two machines, not three; a hard spread stays apart."""
    alike = [("east", need_of(2, unit=1, spread=spread)) for spread in ((), (SOFTLY,), (TIGHTLY,))]
    others = [
        ("east", need_of(2, unit=1, spread=EVENLY_BY_ZONE)),
        ("east", need_of(2, unit=1, reclamation=9)),
        ("west", need_of(2, unit=1, spread=(SOFTLY,))),
    ]
    fleet = fleet_of([idle(f"m{n}") for n in range(9)])
    folding = fold(fleet, demand_of(fleet, [*alike, *others]))
    assert [need.aggregate["cpu"] for need in folding.demand.needs] == [6, 2, 2, 2]
    assert [*folding.served_by] == [0, 0, 0, 1, 2, 3]
    decision = checked(fleet, folding.demand)
    assert np.bincount(decision.claimed_by[decision.claimed_by != NONE])[0] == 2


def test_pods_of_several_sizes_stay_apart_whatever_spread_they_prefer() -> None:
    """Small ones would be counted in whole units of the largest."""
    needs = [("east", need_of(8, unit=2)), ("east", need_of(8, unit=3, spread=(SOFTLY,)))]
    fleet = fleet_of([idle(f"m{n}") for n in range(9)])
    demand = demand_of(fleet, needs)
    folding = fold(fleet, demand)
    assert folding.demand.needs == demand.needs
    assert [*folding.served_by] == [0, 1]
