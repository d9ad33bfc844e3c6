"""How a cluster's needs share machines, by examples with small fleets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Operator, Requirement, Size, Taint, Toleration
from tests.engine.engine_pods import daemons, outcome, places, pods
from tests.engine.engine_rig import (
    DONE,
    NOW,
    ZONE,
    Spec,
    action_names,
    carried_out,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    same,
    speculative,
)
from tests.engine.engine_story import Story

SMALL = [configured(f"small{n}", cpu=8, price=1) for n in range(4)]
HUGE = [speculative(f"huge{n}", cpu=64, price=10) for n in range(3)]


def test_a_huge_pod_among_small_ones_acquires_one_machine_and_moves_no_pods() -> None:
    """It is packed as what it is: the others neither grow with it nor leave where they are."""
    alone = outcome(SMALL, pods((28, 1)), settings=EngineConfig())
    both = outcome([*SMALL, *HUGE], pods((28, 1), (1, 50)), settings=EngineConfig())
    assert both.actions == ["Provision huge0"]
    assert both.places.pop("huge0") == {0: 1}
    assert (both.places, both.short) == (alone.places, {})


def test_an_impossible_pod_changes_nothing_for_the_others_and_is_reported_as_such() -> None:
    """Neither for the other sizes of its need nor for others; no machine could ever hold it."""
    others = pods((28, 1), (1, 5)), pods((3, 2), group="b")
    specs = [*SMALL, idle("spare", cpu=8)]
    before = outcome(specs, *others, settings=EngineConfig())
    fleet = fleet_of(specs)
    with_giant = pods((28, 1), (1, 5), (2, 9)), others[1]
    demand = demand_of(fleet, [("east", need) for need in with_giant])
    decision = checked(fleet, demand, EngineConfig())
    assert (action_names(specs, decision), places(specs, decision)) == (
        before.actions,
        before.places,
    )
    (shortfall,) = decision.shortfalls
    assert (shortfall.sizes, shortfall.impossible) == ((), (Size((("cpu", 9),), 2),))
    assert Explainer(fleet, demand, decision).need(0).reason is Reason.NO_MATCHING_SUPPLY


def test_pods_of_one_host_that_no_machine_holds_together_are_impossible() -> None:
    """Each alone would fit, which is of no use to them; the others are served."""
    together = pods((2, 3), requirements=(same(HOSTNAME_LABEL),), group="[1]")
    fleet = fleet_of([idle("i")])
    demand = demand_of(fleet, [("east", together), ("east", pods((1, 4)))])
    (shortfall,) = checked(fleet, demand).shortfalls
    assert (shortfall.sizes, shortfall.impossible) == ((), (Size((("cpu", 3),), 2),))


def test_a_pod_too_large_beside_the_daemon_sets_is_impossible() -> None:
    """It would fit on an empty machine without them."""
    found = outcome([idle("i", cpu=4)], pods((1, 4)), overheads=[daemons(1)])
    assert (found.actions, found.short) == ([], {0: 1})


def test_several_needs_share_one_machine() -> None:
    """Of one priority or of several, as kube-scheduler puts them there."""
    needs = pods((1, 3), priority=9), pods((2, 2)), pods((1, 1), group="b")
    found = outcome([idle(f"i{n}", cpu=8) for n in range(3)], *needs)
    assert found.actions == ["Bootstrap i0"]
    assert found.places == {"i0": {0: 1, 1: 2, 2: 1}}


def test_what_fits_beside_others_costs_nothing() -> None:
    """A need that arrives finds the room that others have left on their machines."""
    specs = [configured("c", cpu=8, last_claimed_by=0), idle("i", cpu=8)]
    found = outcome(specs, pods((5, 1)), pods((3, 1), group="late"))
    assert (found.actions, found.short) == ([], {})


def test_cpu_is_unusable_where_the_memory_is_exhausted() -> None:
    """Eight cores are of no use beside a pod that takes all the memory."""
    roomy = {"memory": 8}
    specs = [configured("c", cpu=8, more=roomy), idle("i", cpu=8, price=2, more=roomy)]
    found = outcome(specs, pods((1, 1, 8)), pods((4, 1, 1), group="b"))
    assert found.places == {"c": {0: 1}, "i": {1: 4}}


def test_pods_go_where_cpu_and_memory_are_used_alike() -> None:
    """One that is heavy on memory goes to the machine with the pods that are heavy on CPU."""
    specs = [configured(name, cpu=10, more={"memory": 10}) for name in "ab"]
    needs = pods((1, 8, 1), priority=2), pods((1, 7, 7), priority=1), pods((1, 1, 8))
    assert outcome(specs, *needs, settings=EngineConfig()).places == {
        "a": {0: 1, 2: 1},
        "b": {1: 1},
    }


def test_pod_slots_are_counted() -> None:
    """A kubelet takes so many pods, however small."""
    specs = [idle(f"i{n}", cpu=100, more={"pods": 3}) for n in range(3)]
    assert outcome(specs, pods((7, 1), more={"pods": 1})).places == {
        "i0": {0: 3}, "i1": {0: 3}, "i2": {0: 1},
    }  # fmt: skip


def test_what_hardly_any_machine_takes_is_placed_before_what_goes_anywhere() -> None:
    """Larger pods that could go elsewhere do not fill the only machines of the picky."""
    in_a = (Requirement(ZONE, Operator.IN, ("a",)),)
    specs = [configured(zone, labels={ZONE: zone}) for zone in "ab"]
    found = outcome(specs, pods((2, 2)), pods((4, 1), requirements=in_a))
    assert (found.places, found.short) == ({"a": {1: 4}, "b": {0: 2}}, {})


def test_scarce_machines_are_filled_last() -> None:
    """Plain pods go to a GPU machine of their cluster only when nothing else has room."""
    gpu = configured("a-gpu", more={"nvidia.com/gpu": 8}, last_claimed_by=0)
    specs = [gpu, configured("b")]
    assert outcome(specs, pods((4, 1)), settings=EngineConfig()).places == {"b": {0: 4}}
    assert outcome(specs, pods((5, 1)), settings=EngineConfig()).places == {
        "a-gpu": {0: 1},
        "b": {0: 4},
    }


def test_pods_are_consolidated_so_that_machines_become_surplus() -> None:
    """Where half of the pods have gone, half of the machines hold none."""
    specs = [configured(f"c{n}", cpu=8, more={"memory": 8}) for n in range(4)]
    found = outcome(specs, pods((16, 1, 1)), settings=EngineConfig())
    assert len(found.places) == 2


def test_where_consolidation_wastes_room_pods_are_balanced() -> None:
    """Consolidation leaves CPU on one machine and memory on the other."""
    specs = [configured(f"c{n}", cpu=8, more={"memory": 8}) for n in range(2)]
    found = outcome(specs, pods((2, 4, 2), (1, 3, 3), (2, 2, 3)), settings=EngineConfig())
    assert (found.actions, found.short) == ([], {})


def with_memory(spec: Spec, memory: int) -> Spec:
    """The machine with so much memory."""
    return replace(spec, more={"memory": memory})


def test_a_machine_that_a_large_pod_was_given_is_not_counted_for_a_small_one() -> None:
    """The small pod is placed earlier and fits there better; then another one would be bought for
    the large pod in every such fleet, and neither released.
    """
    zone = {ZONE: "a"}
    specs = [
        with_memory(configured("large", cpu=8, labels=zone, last_claimed_by=0), 8),
        with_memory(configured("small", cpu=2, labels=zone, last_claimed_by=1), 8),
        with_memory(idle("spare", cpu=8), 8),
        with_memory(idle("other", cpu=16, price=9), 16),
    ]
    in_zone = Requirement(ZONE, Operator.IN, ("a",))
    found = outcome(specs, pods((1, 8, 8)), pods((1, 2, 2), requirements=(in_zone,), group="b"))
    assert (found.actions, found.short) == ([], {})
    assert found.places == {"large": {0: 1}, "small": {1: 1}}


def test_own_machines_come_first_only_if_pods_are_left_otherwise() -> None:
    """Else two half-empty machines of two needs would never become one."""
    specs = [
        with_memory(configured("a", cpu=8, last_claimed_by=0), 8),
        with_memory(configured("b", cpu=8, last_claimed_by=1), 16),
    ]
    found = outcome(specs, pods((3, 1, 1)), pods((3, 1, 1), group="b"))
    assert len(found.places) == 1


def test_each_of_many_needs_keeps_its_own_machine_of_many_equal_ones() -> None:
    """Equal machines are told apart by the need that claimed them."""
    owner = [7 * n % 40 for n in range(40)]
    specs = [configured(f"m{n:02}", last_claimed_by=need) for n, need in enumerate(owner)]
    fleet = fleet_of(specs)
    needs = [("east", pods((1, 3), group=f"{n:02}")) for n in range(40)]
    assert checked(fleet, demand_of(fleet, needs)).claimed_by.tolist() == owner


def test_a_pod_that_waits_moves_no_others_to_machines_of_lower_priorities() -> None:
    """Those would lack them and get another one; the pod that waits is not helped by it."""
    specs = [
        with_memory(configured("own", cpu=4, last_claimed_by=1), 16),
        with_memory(configured("lower", cpu=10, last_claimed_by=2), 10),
        with_memory(idle("spare", cpu=10), 10),
        with_memory(configured("elsewhere", "west", cpu=16, last_claimed_by=0), 16),
    ]
    fleet = fleet_of(specs)
    needs = [
        ("west", pods((1, 16, 16), priority=9)),
        ("east", pods((4, 1, 1), (1, 16, 16), priority=5)),
        ("east", pods((10, 1, 1), group="b")),
    ]
    decision = checked(fleet, demand_of(fleet, needs))
    assert action_names(specs, decision) == []
    assert places(specs, decision) == {"own": {1: 4}, "lower": {2: 10}, "elsewhere": {0: 1}}
    assert [short.need for short in decision.shortfalls] == [1]


def test_a_pod_without_a_place_may_get_one_by_counting_all_pods_anew() -> None:
    """On the machine of a lower priority only the other pod has room, which is placed first."""
    specs = [
        with_memory(configured("own", cpu=8), 8),
        with_memory(configured("lower", cpu=8, last_claimed_by=2), 2),
    ]
    found = outcome(
        specs, pods((1, 8, 1), priority=5), pods((1, 1, 7), priority=5, group="b"), pods((1, 1, 1))
    )
    assert found.places == {"own": {1: 1, 2: 1}, "lower": {0: 1}}


def test_an_acquired_machine_serves_no_higher_priority() -> None:
    """They had their turn before it was acquired, and are still short."""
    specs = [idle("tainted-for-high", labels={ZONE: "b"}), configured("c", cpu=1)]
    high = pods((1, 3), requirements=(Requirement(ZONE, Operator.IN, ("a",)),), priority=9)
    found = outcome(specs, high, pods((3, 1)), settings=EngineConfig())
    assert found.places == {"c": {1: 1}, "tainted-for-high": {1: 2}}


@pytest.mark.parametrize(("labels", "room"), [({ZONE: "a"}, 3), ({}, 4)])
def test_daemon_sets_leave_less_of_the_machines_that_they_match(
    labels: dict[str, str], room: int
) -> None:
    """Machines are used and acquired for the cluster's own pods only."""
    in_a = daemons(1, Requirement(ZONE, Operator.IN, ("a",)))
    specs = [configured("c", labels=labels), idle("i", labels=labels)]
    found = outcome(specs, pods((8, 1)), overheads=[in_a], settings=EngineConfig())
    assert found.places == {"c": {0: room}, "i": {0: room}}
    assert sum(found.short.values()) == 8 - 2 * room


def test_daemon_sets_take_nothing_of_machines_whose_taints_they_do_not_tolerate() -> None:
    """They do not run there."""
    specs = [configured("c", taints=(Taint("dedicated", "", "NoSchedule"),))]
    batch = pods((8, 1), tolerations=(Toleration("dedicated", True, "", ""),))
    assert outcome(specs, batch, overheads=[daemons(1)]).places == {"c": {0: 4}}


def test_daemon_sets_of_one_cluster_take_nothing_of_anothers_machines() -> None:
    """A machine has less for one cluster than for the other."""
    specs = [idle(f"i{n}") for n in range(4)]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", pods((4, 1))), ("west", pods((4, 1)))])
    demand = replace(demand, overheads={0: (daemons(1),)})
    decision = checked(fleet, demand, EngineConfig())
    assert [action.need for action in decision.actions] == [0, 0, 1]
    assert decision.shortfalls == []


def test_five_hundred_sizes_fit_the_machines_acquired_for_them() -> None:
    """The acquired machines suffice in the next cycle: there are no further actions."""
    draw = np.random.default_rng(5)
    kinds = [(16, 32), (16, 64), (16, 128), (4, 16)]
    specs = [
        speculative(
            f"m{n}-{cpu}-{memory}",
            cpu=cpu * 1000,
            price=cpu / 16 + memory / 64,
            more={"memory": memory * 1000, "pods": 110},
        )
        for n in range(60)
        for cpu, memory in kinds
    ]
    lots = [(int(n), int(c), int(m)) for n, c, m in zip(
        draw.integers(1, 4, 500), draw.integers(50, 900, 500), draw.integers(100, 3000, 500),
        strict=True)]  # fmt: skip
    fleet, need = fleet_of(specs), pods(*lots, more={"pods": 1})
    demand = demand_of(fleet, [("east", need)])
    first = checked(fleet, demand)
    assert first.shortfalls == []
    later = checked(
        carried_out(fleet, demand, first, DONE), demand, cycle_memory=first.cycle_memory
    )
    assert (later.shortfalls, later.actions) == ([], [])


def test_an_additional_pod_gets_a_machine_and_the_others_keep_theirs() -> None:
    """No existing machine counts for it, and its new machine counts for no other need."""
    specs = [configured("c", cpu=8), idle("i", cpu=8)]
    fleet = fleet_of(specs)
    needs = [("east", pods((4, 1))), ("east", pods((1, 1), group="additional"))]
    demand = demand_of(fleet, needs)
    first = checked(fleet, demand, EngineConfig())
    assert places(specs, first) == {"c": {0: 4}, "i": {1: 1}}
    later = carried_out(fleet, demand, first, DONE)
    again = checked(later, demand, EngineConfig(), NOW + 1, first.cycle_memory)
    assert (action_names(specs, again), places(specs, again)) == ([], {"c": {0: 4}, "i": {1: 1}})


def test_a_machine_acquired_for_additional_pods_stays_theirs() -> None:
    """Also while other pods are placed beside them, or they would request the next one."""
    here = pods((1, 1), group="additional")
    story = Story(
        [configured("c"), idle("i"), idle("more")], ("east", pods((4, 1))), ("east", here)
    )
    assert story.settle() == ["Bootstrap i"]
    story.demand = replace(story.demand, needs=[pods((6, 1)), here])
    assert story.settle() == []
    assert places(story.specs, story.decision) == {"c": {0: 4}, "i": {0: 2, 1: 1}}
    assert story.settle() == []
