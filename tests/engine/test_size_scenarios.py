"""Needs with several sizes: the requests of one size must not affect the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from bigfleet.engine.cycle_memory import CycleMemory, Reservation
from bigfleet.engine.decision import Decision
from bigfleet.engine.state.last_decision import key_of
from bigfleet.model import penalty
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.group import group_of_text
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need, Requirement, Spread, profile, sizes_of
from tests.engine.engine_rig import (
    NO_HOLD,
    NOW,
    RACK,
    ZONE,
    Spec,
    action_names,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    same,
)

GPU = "nvidia.com/gpu"


def need(
    *sizes: tuple[Mapping[str, int], int],
    requirements: tuple[Requirement, ...] = (),
    spread: tuple[Spread, ...] = (),
    anti_affinity: tuple[str, ...] = (),
    priority: int = 0,
    group: str = "",
) -> Need:
    """A need for so many pods of each size."""
    wanted = profile(
        requirements, spread, priority, penalty.ZERO, penalty.ZERO, anti_affinity=anti_affinity
    )
    return Need(wanted, sizes_of(sizes), group_of_text(group))


def pods_by_row(decision: Decision, index: int) -> Counter[int]:
    """How many pods of a need each machine has."""
    pods = Counter[int]()
    for row, of, _, number in zip(*(c.tolist() for c in decision.placements), strict=True):
        if of == index:
            pods[row] += number
    return pods


def test_a_gang_with_one_pod_a_machine_has_one_pod_of_all_sizes_together() -> None:
    """The limit is on the gang's pods, whatever their sizes: three pods need three machines."""
    specs = [
        configured("c", labels={RACK: "a"}),
        *(idle(f"i{at}", labels={RACK: "a"}) for at in range(3)),
    ]
    gang = need(
        ({"cpu": 1}, 2), ({"cpu": 2}, 1), requirements=(same(),), anti_affinity=(HOSTNAME_LABEL,)
    )
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [("east", gang)]))
    assert [*pods_by_row(decision, 0).values()] == [1, 1, 1]
    assert action_names(specs, decision) == ["Bootstrap i0", "Bootstrap i1"]


def test_a_machine_that_drains_for_the_cluster_helps_a_gang_once() -> None:
    """It is used already, so it must not be taken, too: the gang is incomplete, and
    evicts no pods."""
    specs = [
        Spec("d", MachineState.DRAINING, cluster="west", destination="east", labels={RACK: "a"}),
        configured("c", labels={RACK: "a"}),
        configured("w", "west", labels={RACK: "a"}),
    ]
    gang = need(({"cpu": 3}, 4), requirements=(same(),), priority=1_000)
    low = need(({"cpu": 4}, 1))
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [("east", gang), ("west", low)]))
    assert [shortfall.pods for shortfall in decision.shortfalls] == [2]
    assert action_names(specs, decision) == []


@pytest.mark.parametrize("machine", [idle, partial(configured, cluster="west")])
def test_a_gang_that_fits_first_fit_is_completed_at_once(machine: Callable[..., Spec]) -> None:
    """The pods of 3, 2 and 2, and 1 fit on one machine each. But the one of 4 is worth most for 3
    and 1, and then a pod of 2 has no place.
    """
    specs = [machine(f"m{cpu}", cpu=cpu, labels={RACK: "a"}) for cpu in (1, 3, 4)]
    gang = need(
        ({"cpu": 3}, 1), ({"cpu": 2}, 2), ({"cpu": 1}, 1), requirements=(same(),), priority=1_000
    )
    low = need(({"cpu": 1}, 8))
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [("east", gang), ("west", low)]))
    assert {name.split()[1] for name in action_names(specs, decision)} == {"m1", "m3", "m4"}
    assert [shortfall.need for shortfall in decision.shortfalls] == [1]


def test_a_gang_is_completed_by_several_equal_machines() -> None:
    """First fit needs both of each size; by what they are worth, two pods of 2 have no place."""
    specs = [
        idle(f"m{cpu}{name}", cpu=cpu, labels={RACK: "a"}) for cpu in (1, 3, 4) for name in "ab"
    ]
    gang = need(({"cpu": 3}, 2), ({"cpu": 2}, 4), ({"cpu": 1}, 2), requirements=(same(),))
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [("east", gang)]))
    assert len(decision.actions) == len(specs)
    assert decision.shortfalls == []


def test_a_gang_stays_within_its_ceiling_however_it_is_packed() -> None:
    """By what they are worth two machines are ordered, which leave a pod of 2 without a place;
    first fit would complete the gang with four, and three are allowed.
    """
    specs = [idle(f"m{at}", cpu=cpu, labels={RACK: "a"}) for at, cpu in enumerate((1, 1, 3, 4))]
    gang = need(({"cpu": 3}, 1), ({"cpu": 2}, 2), ({"cpu": 1}, 2), requirements=(same(),))
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", gang)])
    for machines, ordered in ((4, 4), (3, 0)):
        ceilings = {fleet.clusters.index("east"): Ceiling(machines=machines)}
        decision = checked(fleet, replace(demand, ceilings=ceilings))
        assert len(decision.actions) == ordered


def test_small_pods_of_a_spread_make_room_for_large_ones() -> None:
    """Large pods fit into one zone only; with a small one in the other, both of them may go there.
    Nothing has to be acquired.
    """
    specs = [
        configured("a", cpu=20, labels={ZONE: "a"}),
        configured("b", cpu=4, labels={ZONE: "b"}),
        idle("i", cpu=20, labels={ZONE: "a"}),
    ]
    spread = need(({"cpu": 8}, 2), ({"cpu": 1}, 1), spread=(Spread(ZONE, 1, True),))
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [("east", spread)]))
    assert pods_by_row(decision, 0) == {0: 2, 1: 1}
    assert action_names(specs, decision) == []


def test_an_impossible_size_does_not_make_scarce_machines_plain() -> None:
    """No machine has 64 GPUs; so the need's other pods leave the machine with one GPU to pods
    that can use it, though it is cheaper.
    """
    specs = [idle("gpu", price=0.1, more={GPU: 1}), idle("plain", price=1.0)]
    mixed = need(({"cpu": 1, GPU: 64}, 1), ({"cpu": 1}, 2))
    fleet = fleet_of(specs)
    decision = checked(fleet, demand_of(fleet, [("east", mixed)]))
    assert action_names(specs, decision) == ["Bootstrap plain"]
    assert [s.impossible[0].pods for s in decision.shortfalls] == [1]


def test_what_is_kept_for_a_need_is_not_deleted() -> None:
    """An idle machine that is promised stays for as long as the reservation does."""
    kind = CapacityType.ON_DEMAND
    specs = [
        configured("c"),
        idle("i", capacity_type=kind, last_claimed_by=0, idle_since=NOW - 5_000),
    ]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need(({"cpu": 2}, 1)))])
    cycle_memory = CycleMemory((Reservation(key_of(fleet, demand, 0), "", NOW - 10),))
    assert action_names(specs, checked(fleet, demand, NO_HOLD, NOW, cycle_memory)) == []
    assert action_names(specs, checked(fleet, demand)) == ["Delete i"]
