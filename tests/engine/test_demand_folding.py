"""Gangs that fit on one machine fold, and folding never overstates what is feasible."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.need_columns import NeedColumns, need_columns_of
from bigfleet.model.group import FoldedGangs
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import (
    Need,
    NodeOverhead,
    Operator,
    Requirement,
    Spread,
    Toleration,
    profile,
)
from tests.engine.engine_pods import daemons, pods
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    IN_FLIGHT,
    RACK,
    ZONE,
    Spec,
    action_names,
    carried_out,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
)

IN_RACK = {RACK: "r1"}


def gangs(count: int, cpu: int) -> list[tuple[str, Need]]:
    return [("east", need_of(cpu, same(), unit=1, group=f"gang-{n}")) for n in range(count)]


def test_small_gangs_become_one_plain_need_of_whole_gangs() -> None:
    """Five gangs of 2 on machines of 4 are one need for 10 whose unit is a gang."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    (folded,) = fold(fleet, demand_of(fleet, gangs(5, 2))).demand.needs
    assert folded.aggregate == {"cpu": 10}
    assert folded.largest == {"cpu": 2}
    assert folded.profile.same_key is None


def test_folded_gangs_take_as_many_machines_as_hold_whole_gangs() -> None:
    """Five gangs of 2 need three machines of 4, not five, and one more as headroom."""
    specs = [idle(f"m{n}", labels=IN_RACK) for n in range(6)]
    fleet = fleet_of(specs)
    decision = checked(fleet, fold(fleet, demand_of(fleet, gangs(5, 2))).demand)
    assert len(action_names(specs, decision)) == 3 + len(decision.headroom) == 4


def test_a_gang_larger_than_any_machine_keeps_its_common_domain() -> None:
    """The case that Same is for stays as it is."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    demand = demand_of(fleet, gangs(2, 5))
    assert list(fold(fleet, demand).demand.needs) == list(demand.needs)


def test_gangs_of_different_sizes_are_sizes_of_one_need() -> None:
    """A machine may hold a gang of each."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    (folded,) = fold(fleet, demand_of(fleet, [*gangs(2, 2), *gangs(3, 3)])).demand.needs
    assert [(dict(size.amounts), size.pods) for size in folded.sizes] == [
        ({"cpu": 2}, 2), ({"cpu": 3}, 3),
    ]  # fmt: skip


def test_a_folded_need_stays_the_same_object_until_its_gangs_change() -> None:
    """So nothing is read again for it, however many gangs it stands for."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    before = demand_of(fleet, gangs(5, 2))
    columns = need_columns_of(before.needs)
    once = fold(fleet, replace(before, needs=columns)).demand.needs[0]
    assert fold(fleet, replace(before, needs=NeedColumns(columns, columns))).demand.needs[0] is once
    fewer = NeedColumns(columns[1:], columns)
    (changed,) = fold(fleet, replace(before, needs=fewer, cluster=before.cluster[1:])).demand.needs
    assert changed.aggregate == {"cpu": 8}


def test_machines_without_the_domain_label_are_no_room() -> None:
    """The scheduler puts no pod of a gang where the label is missing, folded or not."""
    fleet = fleet_of([idle("bare"), idle("racked", labels=IN_RACK)])
    (folded,) = fold(fleet, demand_of(fleet, gangs(1, 2))).demand.needs
    assert [(r.key, r.operator) for r in folded.profile.requirements] == [(RACK, Operator.EXISTS)]
    only_bare = fleet_of([idle("bare")])
    demand = demand_of(only_bare, gangs(1, 2))
    assert list(fold(only_bare, demand).demand.needs) == list(demand.needs)


def test_a_gang_of_one_host_whose_machines_are_all_in_use_is_short_and_not_impossible() -> None:
    """It waits for one of them; as a gang it could never be served."""
    specs = [configured("large", "west", cpu=8), idle("small", cpu=4)]
    fleet = fleet_of(specs)
    gang = pods((2, 4), requirements=(same(HOSTNAME_LABEL),), group="g")
    asked = demand_of(fleet, [("west", pods((1, 8), priority=9)), ("east", gang)])
    demand = fold(fleet, asked).demand
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == []
    (short,) = decision.shortfalls
    assert (dict(short.sizes[0].amounts), short.impossible) == ({"cpu": 8}, ())
    reason = Explainer(fleet, demand, decision).reason(short.need)
    assert reason is Reason.PRIORITY_STARVED


def test_a_gang_stays_folded_while_its_machine_is_being_created() -> None:
    """Unfolding for a moment would acquire a second set of machines for it."""
    specs = [
        speculative("big", cpu=8, labels=IN_RACK),
        *(speculative(f"small-{n}", cpu=2, labels=IN_RACK) for n in range(4)),
    ]
    fleet = fleet_of(specs)
    demand = fold(fleet, demand_of(fleet, gangs(1, 8))).demand
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == ["Provision big"]
    later = carried_out(fleet, demand, decision, IN_FLIGHT)
    again = fold(later, demand_of(later, gangs(1, 8))).demand
    assert list(again.needs) == list(demand.needs)
    assert action_names(specs, checked(later, again)) == []


def test_gangs_that_differ_only_in_spread_fold_into_one_need() -> None:
    """Same outranks spread, so as plain needs they are the same."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    plain = need_of(2, same(), unit=1, group="a")
    spread = need_of(2, same(), unit=1, group="b", spread=EVENLY_BY_ZONE)
    (folded,) = fold(fleet, demand_of(fleet, [("east", plain), ("east", spread)])).demand.needs
    assert folded.aggregate == {"cpu": 4}


def folds(specs: list[Spec], gang: Need, overheads: tuple[NodeOverhead, ...] = ()) -> bool:
    """Whether some machine proves that east's gang fits on one."""
    fleet = fleet_of(specs)
    demand = replace(demand_of(fleet, [("east", gang)]), overheads={0: overheads})
    (served,) = fold(fleet, demand).demand.needs
    is_folded = served.profile.same_key is None
    assert served.group == (FoldedGangs(str(gang.profile.same_key)) if is_folded else gang.group)
    return is_folded


def test_another_clusters_machines_do_not_make_a_gang_fold() -> None:
    """What is bound elsewhere cannot serve, so it proves nothing."""
    gang = need_of(5, same(), priority=3)
    assert not folds([configured("theirs", "west", cpu=9, labels=IN_RACK, last_priority=3)], gang)
    assert folds([configured("ours", "east", cpu=9, labels=IN_RACK, last_priority=3)], gang)


def test_a_machine_of_a_lower_priority_makes_a_gang_fold() -> None:
    """It can be taken. Otherwise a hundred small gangs would evict a hundred machines."""
    low = configured("theirs", "west", cpu=9, labels=IN_RACK, last_priority=2)
    assert folds([low], need_of(5, same(), priority=3))
    leaving = Spec("theirs", MachineState.CONFIGURING, cluster="west", cpu=9, labels=IN_RACK)
    assert not folds([leaving], need_of(5, same(), priority=3))


@pytest.mark.parametrize(
    ("state", "proves"),
    [
        (MachineState.IDLE, True),
        (MachineState.SPECULATIVE, True),
        (MachineState.CREATING, True),
        (MachineState.DRAINING, True),
        (MachineState.FAILED, False),
        (MachineState.DELETING, False),
    ],
)
def test_what_is_or_will_be_free_makes_a_gang_fold(state: MachineState, proves: bool) -> None:
    """One that failed or is being deleted does not."""
    cluster = "west" if state is MachineState.DRAINING else ""
    assert folds([Spec("m", state, cluster=cluster, labels=IN_RACK)], need_of(4, same())) is proves


def test_room_for_a_gang_is_what_daemon_sets_leave() -> None:
    """Four cores, of which one is taken, do not hold a gang of four."""
    machine = [idle("m", labels=IN_RACK)]
    assert folds(machine, need_of(4, same()))
    assert not folds(machine, need_of(4, same()), (daemons(1),))
    assert folds(machine, need_of(3, same()), (daemons(1),))


def test_a_gang_whose_members_repel_each_other_does_not_fold() -> None:
    """No machine takes two of them, though it has room; a single one repels no pod."""
    machine = [idle("m", cpu=9, labels=IN_RACK)]
    apart = {"requirements": (same(),), "anti_affinity": (HOSTNAME_LABEL,)}
    assert not folds(machine, pods((2, 1), **apart))  # type: ignore[arg-type]
    assert folds(machine, pods((1, 1), **apart))  # type: ignore[arg-type]


def test_a_gang_that_asks_for_what_no_machine_has_does_not_fold() -> None:
    """Nor does one of which a single member does."""
    machine = [idle("m", labels=IN_RACK)]
    assert not folds(machine, pods((2, 1), requirements=(same(),), more={"fpga": 1}))


def test_a_folded_gang_keeps_all_its_other_conditions() -> None:
    """Only the common domain is dropped, and with it the spread that it disables. On one host
    there is not even a label to look for.
    """
    tolerated, term = Toleration("batch", True, "", ""), (Requirement(ZONE, Operator.EXISTS),)
    gang = pods((2, 1), requirements=(same(HOSTNAME_LABEL),), spread=EVENLY_BY_ZONE, priority=7,
                alternatives=(term,), tolerations=(tolerated,), never_preempts=True,
                interruption=5, reclamation=6, group="[1]")  # fmt: skip
    fleet = fleet_of([idle("m", labels={ZONE: "a"})])
    (folded,) = fold(fleet, demand_of(fleet, [("east", gang)])).demand.needs
    assert folded.profile == profile(
        (), (), 7, 5, 6, alternatives=(term,), tolerations=(tolerated,), never_preempts=True
    )


def test_demand_without_gangs_is_returned_as_it_is() -> None:
    """The common case costs one look."""
    fleet = fleet_of([idle("m")])
    demand = demand_of(fleet, [("east", need_of(4))])
    assert list(fold(fleet, demand).demand.needs) == list(demand.needs)


def test_a_folded_need_stands_where_its_first_gang_stood() -> None:
    """Folding does not change the order of service."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    plain = ("east", need_of(7))
    first, second = gangs(2, 2)
    folded = fold(fleet, demand_of(fleet, [first, plain, second])).demand
    assert [need.aggregate["cpu"] for need in folded.needs] == [4, 7]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 6)), min_size=1, max_size=6),
    st.lists(st.integers(1, 8), min_size=1, max_size=8),
)
def test_every_gang_that_one_machine_holds_is_a_pod_of_the_folded_need(
    kinds: list[tuple[int, int]], machines: list[int]
) -> None:
    """No gang is lost, duplicated or split: each is placed on one machine or entirely short."""
    fleet = fleet_of([idle(f"m{n}", cpu=cpu, labels=IN_RACK) for n, cpu in enumerate(machines)])
    needs = [gang for count, cpu in kinds for gang in gangs(count, cpu)]
    demand = fold(fleet, demand_of(fleet, needs)).demand
    served = Counter[int]()
    for need in demand.needs:
        if isinstance(need.group, FoldedGangs):
            served.update({dict(size.amounts)["cpu"]: size.pods for size in need.sizes})
    sizes = Counter(need.aggregate["cpu"] for _, need in needs)
    assert served == {cpu: count for cpu, count in sizes.items() if cpu <= max(machines)}
    checked(fleet, demand)  # its invariants hold every pod to one machine with room for it


def test_needs_that_are_no_gangs_are_served_as_they_are() -> None:
    """However alike: they share machines anyway."""
    fleet = fleet_of([idle("m", labels=IN_RACK)])
    plain = [("east", need_of(2, spread=spread)) for spread in ((), (Spread(ZONE, 2, False),))]
    folded_demand = fold(fleet, demand_of(fleet, [*plain, *gangs(2, 1)]))
    assert list(folded_demand.demand.needs)[:2] == [need for _, need in plain]
    assert [*folded_demand.served_by] == [0, 1, 2, 2]
