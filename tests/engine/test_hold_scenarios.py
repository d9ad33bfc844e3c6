"""Reclaims: disruption cost queries, the reclaim hold, and its backoff."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import ClusterMemory, CycleMemory, Reacquired, SurplusSince
from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig
from bigfleet.model.need import Need, Operator, Requirement, Size
from tests.engine.engine_pods import pods
from tests.engine.engine_random import random_case
from tests.engine.engine_rig import (
    DONE,
    EVENLY_BY_ZONE,
    NOW,
    RACK,
    UNLIMITED,
    ZONE,
    Spec,
    carried_out,
    checked,
    configured,
    idle,
    need_of,
    same,
)
from tests.engine.engine_story import Story

GPU = "gpu"


def unasked(name: str, *, price: float = 1.0) -> Spec:
    """A machine of which no operator has said what giving it back would disturb."""
    return configured(name, disruption_cost=math.nan, price=price)


def needs(story: Story, need: Need, *, fell: float | None = None) -> None:
    """From now on cluster east needs this alone, and its demand last changed so."""
    story.demand = replace(
        story.demand,
        needs=[need],
        cluster=np.zeros(1, np.int32),
        fell_seconds={} if fell is None else {0: fell},
    )


def reacquired(story: Story) -> list[tuple[int, int]]:
    """How many machines were acquired again, and how many times as long they are held."""
    (memory,) = story.cycle_memory.clusters
    return [(each.machines, each.hold_factor) for each in memory.reacquired]


# Asking first


def test_a_machine_is_asked_about_before_it_goes() -> None:
    """The simulation does not know what runs there."""
    story = Story([unasked("a"), unasked("b")], ("east", pods((4, 1))), settings=UNLIMITED)
    assert story.cycle() == []
    assert [*story.decision.disruption_cost_queries] == [0]
    assert story.decision.disruption_cost_queries[0].tolist() == [
        1,
        0,
    ]  # the one that is used least comes first
    story.fleet = replace(story.fleet, disruption_cost=np.array([math.nan, 0.0]))
    assert story.cycle() == ["Reclaim b"]


def test_the_least_used_machine_decides_whether_costs_are_queried() -> None:
    """Pods that only the large machine can hold fill it; the small one is empty, and could go."""
    specs = [
        configured(name, cpu=cpu, disruption_cost=math.nan) for name, cpu in (("a", 4), ("b", 20))
    ]
    story = Story(specs, ("east", pods((4, 5))), settings=UNLIMITED)
    story.cycle()
    assert story.decision.disruption_cost_queries[0][0] == 0


def test_a_machine_without_an_answer_stays_beside_one_that_goes() -> None:
    """Nobody knows what runs on it."""
    specs = [configured("empty", disruption_cost=0.0), unasked("unknown")]
    story = Story(specs, settings=UNLIMITED)
    story.demand = replace(story.demand, fell_seconds={0: NOW})
    assert story.cycle() == ["Reclaim empty"]


def test_no_cost_is_queried_while_the_other_machines_cannot_take_the_pods() -> None:
    """Full machines are not queried, nor is an unreachable cluster."""
    full = Story([unasked("a"), unasked("b")], ("east", pods((7, 1))))
    full.cycle()
    assert dict(full.decision.disruption_cost_queries) == {}
    away = Story([unasked("a"), unasked("b")], ("east", pods((1, 1))), unreachable=["east"])
    away.cycle()
    assert dict(away.decision.disruption_cost_queries) == {}


def test_empty_machines_go_first_then_those_that_disturb_least() -> None:
    """Whatever they cost, and whichever the simulation prefers to keep."""
    specs = [
        configured("dear", price=9, disruption_cost=3.0),
        configured("disturbs", price=8, disruption_cost=1.0),
        configured("empty", price=1, disruption_cost=0.0),
        configured("never", price=9, disruption_cost=math.inf),
        unasked("unknown", price=9),
    ]
    story = Story(specs, settings=replace(UNLIMITED, reclaim_cap_fraction=0.01))
    story.demand = replace(story.demand, fell_seconds={0: NOW})
    orders = []
    for _ in range(5):
        orders += story.cycle()
    assert orders == ["Reclaim empty", "Reclaim disturbs", "Reclaim dear"]


def test_a_machine_with_pods_stays_until_demand_falls() -> None:
    """Moving pods together costs evictions, which only a cluster that shrinks is worth."""
    specs = [configured("used", disruption_cost=1.0), configured("other", disruption_cost=math.inf)]
    story = Story(specs, ("east", pods((4, 1))), settings=UNLIMITED)
    assert story.cycle() == []
    needs(story, pods((4, 1)), fell=story.now)
    assert story.cycle() == ["Reclaim used"]


def test_after_an_acquisition_no_pods_are_moved_for_a_hold_even_if_demand_falls() -> None:
    """Where Jobs end all the time demand has always just fallen. In the ramp of mixed-50 a cluster
    bought eight machines in half a minute, released five small ones, and ten pods moved.
    """
    specs = [configured("used", disruption_cost=1.0), configured("other", disruption_cost=math.inf)]
    story = Story([*specs, idle("i")], ("east", pods((4, 1))),
                  settings=replace(UNLIMITED, reclaim_hold_seconds=30.0))  # fmt: skip
    needs(story, pods((4, 1)), fell=story.now)
    assert story.cycle() == []
    story.now += 25
    both = [pods((4, 1)), need_of(1, unit=1, group="additional")]
    story.demand = replace(story.demand, needs=both, cluster=np.zeros(2, np.int32))
    assert story.cycle() == ["Bootstrap i"]
    story.now += 10
    story.demand = replace(story.demand, fell_seconds={0: story.now})
    assert story.cycle() == []
    story.now += 25
    assert story.cycle() == ["Reclaim used"]


def test_demand_that_fell_before_the_last_acquisition_moves_no_pods() -> None:
    """Acquisitions since then show that the cluster grows."""
    specs = [configured("used", disruption_cost=1.0), configured("other", disruption_cost=math.inf)]
    story = Story([*specs, idle("i", cpu=9)], ("east", pods((1, 9))), settings=UNLIMITED)
    needs(story, pods((1, 9)), fell=NOW - 1)
    assert story.cycle() == ["Bootstrap i"]
    assert story.cycle() == []
    needs(story, pods((1, 1)), fell=story.now)
    assert story.cycle() == ["Reclaim used"]


def test_a_cluster_that_grows_moves_no_pods_although_some_of_them_end() -> None:
    """Where Jobs run, demand has always just fallen, also while more and more pods come."""
    specs = [
        configured("used", disruption_cost=1.0),
        configured("other", cpu=1000, disruption_cost=math.inf),
    ]
    story = Story(specs, settings=replace(UNLIMITED, reclaim_hold_seconds=20.0))
    for second in range(60):
        needs(story, pods((100 + second, 1)), fell=story.now)
        assert story.cycle() == []
    seconds = 0
    while story.cycle() == []:
        needs(story, pods((159, 1)), fell=story.now)
        seconds += 1
    assert 6 <= seconds <= 14  # when all that is compared is a third of a hold old


def test_pods_that_are_replaced_are_no_growth() -> None:
    """For a moment there are fewer of them."""
    specs = [
        configured("used", disruption_cost=1.0),
        configured("other", cpu=1000, disruption_cost=math.inf),
    ]
    story = Story(specs, settings=replace(UNLIMITED, reclaim_hold_seconds=20.0))
    orders = []
    for second in range(22):
        needs(story, pods((100 - 10 * (second % 3), 1)), fell=story.now)
        orders += story.cycle()
    assert orders == ["Reclaim used"]


def test_acquiring_beside_surplus_machines_holds_those_with_pods_for_one_more_hold() -> None:
    """It is for a pod that they cannot hold, and no sign of growth; but that pod may still wait."""
    specs = [configured("used", disruption_cost=1.0), configured("other", disruption_cost=math.inf)]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story([*specs, idle("i", cpu=9)], settings=held)
    needs(story, pods((2, 1)), fell=NOW)
    assert story.cycle() == []
    story.now = NOW + 10
    needs(story, pods((2, 1), (1, 9)), fell=NOW)
    assert story.cycle() == ["Bootstrap i"]
    story.arrive()
    for now in (NOW + 30, NOW + 39):
        story.now = now
        assert story.cycle() == []
    assert story.orders_within(5) == ["Reclaim used"]


def test_with_no_more_capacity_than_when_it_last_grew_a_machine_with_pods_stays_for_long() -> None:
    """kube-scheduler needed that much, whatever the count says. Ten minutes show that it no longer
    does.
    """
    specs = [configured(name, cpu=4, disruption_cost=1.0) for name in ("used", "other")]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story(specs, settings=held)
    needs(story, pods((3, 1)), fell=NOW)
    for ratio, seconds in ((2 * 4 / 3 - 0.1, 30), (2 * 4 / 3, 600)):
        memory = ClusterMemory("east", capacity_ratio=ratio * 1_000_000)
        story.cycle_memory, story.now = CycleMemory((), (), (memory,)), NOW
        assert story.cycle() == []
        story.now = NOW + seconds - 1
        assert story.lose_actions() == []
        assert story.lose_actions() == ["Reclaim used"]


def test_each_machine_with_pods_that_goes_leaves_less_to_spare_for_the_next() -> None:
    """One decision releases as much capacity as is spare, although more machines are surplus."""
    specs = [configured(name, cpu=4, disruption_cost=1.0) for name in "abcd"]
    story = Story(specs, settings=replace(UNLIMITED, reclaim_hold_seconds=30.0))
    needs(story, pods((3, 1)), fell=NOW)
    memory = ClusterMemory("east", capacity_ratio=(4 * 4 - 3) / 3 * 1_000_000)
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert story.cycle() == []
    story.now = NOW + 30
    assert story.orders_within(5) == ["Reclaim b"]


def test_an_empty_machine_goes_whatever_its_cluster_had_when_it_last_grew() -> None:
    """No pod is moved for it."""
    specs = [
        configured("empty", cpu=4, disruption_cost=0.0),
        configured("other", cpu=4, disruption_cost=math.inf),
    ]
    story = Story(specs, settings=replace(UNLIMITED, reclaim_hold_seconds=30.0))
    needs(story, pods((3, 1)), fell=NOW)
    memory = ClusterMemory("east", capacity_ratio=2 * 4 / 3 * 1_000_000)
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert story.cycle() == []
    story.now = NOW + 30
    assert story.cycle() == ["Reclaim empty"]


def test_what_a_pod_requests_for_itself_makes_no_other_machine_spare() -> None:
    """It found no place beside surplus machines, so that much more is needed for as many pods."""
    specs = [configured(name, cpu=4, disruption_cost=1.0) for name in ("used", "other")]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    plain, requested = pods((3, 1)), pods((1, 1), group="additional")
    story = Story([*specs, idle("i", cpu=2)], ("east", plain), ("east", requested), settings=held)
    memory = ClusterMemory(
        "east", surplus=(SurplusSince(1, NOW - 30),), capacity_ratio=2 * 4 / 3 * 1_000_000
    )
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert story.cycle() == ["Bootstrap i"]
    (memory,) = story.cycle_memory.clusters
    assert memory.capacity_ratio == pytest.approx(2.5 * 4 / 3 * 1_000_000)


@pytest.mark.parametrize(
    ("grown", "fell", "fallen"),
    [
        (None, None, False),
        (5.0, None, False),
        (5.0, 4.0, False),
        (5.0, 5.0, True),
        (None, 1.0, True),
    ],
)
def test_demand_has_fallen_if_it_did_since_machines_were_acquired_last(
    grown: float | None, fell: float | None, fallen: bool
) -> None:
    """Then machines with pods may be surplus, however much demand rose before."""
    memory = ClusterMemory("east", grown_seconds=grown)
    assert memory.has_fallen_since_it_grew(fell) is fallen


@pytest.mark.parametrize(
    ("pods_now", "is_growing"),
    [(120, True), (119, True), (110, False), (100, False)],
    ids=["at its highest", "one of its pods ended", "fallen", "as before"],
)
def test_a_cluster_whose_demand_as_a_whole_rises_grows_although_pods_end_meanwhile(
    pods_now: int, *, is_growing: bool
) -> None:
    """Where Jobs end all the time, some need has always just fallen."""
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story([configured("a", cpu=200)], settings=held)
    for seconds, number in ((0, 90), (10, 100), (20, 115), (30, 120), (31, pods_now)):
        story.now = NOW + seconds
        needs(story, pods((number, 1)), fell=NOW)
        story.cycle()
    east = story.fleet.clusters.index("east")
    assert (east in story.decision.growing) is is_growing


def test_a_machine_with_pods_goes_as_demand_falls_below_what_its_capacity_served() -> None:
    """As many machines as the fall explains, and no more: the last one may go beyond that."""
    specs = [configured(name, cpu=10, disruption_cost=1.0) for name in "abcd"]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story([*specs, idle("i", cpu=10)], ("east", pods((41, 1))), settings=held)
    assert story.cycle() == ["Bootstrap i"]
    story.arrive()
    story.fleet = replace(story.fleet, disruption_cost=np.ones(5))
    begin = story.now = story.now + 5
    needs(story, pods((26, 1)), fell=begin)  # 50 CPUs were needed for 41 pods: 32 for 26
    assert story.cycle() == []
    story.now = begin + 30
    assert len(story.orders_within(5)) == 2


def test_each_number_of_surplus_machines_has_its_own_hold() -> None:
    """Those that are found later do not wait for a hold that begins when the first ones go."""
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story([configured("a"), configured("b")], ("east", pods((4, 1))), settings=held)
    assert story.cycle() == []
    story.now = NOW + 20
    needs(story, pods(group="nothing"))
    assert story.cycle() == []
    story.now = NOW + 30
    assert len(story.cycle()) == 1
    story.now = NOW + 49
    assert story.cycle() == []
    assert len(story.orders_within(5)) == 1


def test_of_surplus_machines_that_become_fewer_only_the_rest_have_been_held() -> None:
    """Two were surplus, then for a moment only one."""
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story([configured("a"), configured("b")], settings=held)
    assert story.cycle() == []
    story.now = NOW + 10
    needs(story, pods((4, 1)))
    assert story.cycle() == []
    needs(story, pods(group="nothing"))
    assert story.cycle() == []
    story.now = NOW + 30
    assert len(story.cycle()) == 1
    assert story.cycle() == []


def test_an_empty_machine_stays_while_demand_has_just_grown() -> None:
    """The pods that it was created for are still pending."""
    story = Story([configured("c")], settings=replace(UNLIMITED, reclaim_hold_seconds=30.0))
    story.demand = replace(story.demand, rose_seconds={0: NOW})
    for _ in range(30):
        assert story.cycle() == []
    assert story.now == NOW + 30
    for _ in range(5):
        assert story.cycle() == []  # to spare since now, and for its hold from here on
    story.now = NOW + 60
    assert story.orders_within(10) == ["Reclaim c"]


def test_the_margin_asks_for_no_machine_that_is_not_there() -> None:
    """50 pods and ten that fill a GPU machine each: 5 % of 60 is one more GPU than there is."""
    gpus = [configured(f"g{n}", cpu=8, more={"gpu": 1}) for n in range(10)]
    specs = [configured("a", cpu=100), configured("b", cpu=100), *gpus]
    plain, large = pods((50, 1), priority=1), pods((10, 8), more={"gpu": 1})
    story = Story(specs, ("east", plain), ("east", large), settings=UNLIMITED)
    assert story.cycle() == ["Reclaim b"]


def test_a_reserve_of_the_pods_must_fit_on_what_stays() -> None:
    """5 % more of each plain size: 20 pods need room for 21."""
    for cpu, orders in ((20, []), (21, ["Reclaim b"])):
        specs = [configured("a", cpu=cpu, last_claimed_by=0), configured("b", cpu=cpu)]
        assert Story(specs, ("east", pods((20, 1))), settings=UNLIMITED).cycle() == orders


# Holding on


def test_acquiring_again_without_more_demand_doubles_the_hold() -> None:
    """Reclaiming on the simulated count flaps, because kube-scheduler packs worse."""
    specs = [configured("a", last_claimed_by=0), configured("c"), idle("i")]
    story = Story(specs, ("east", pods((4, 1))), settings=EngineConfig(idle_hold_seconds={}))
    story.cycle()
    story.now = NOW + 30
    assert story.cycle() == ["Reclaim c"]
    story.arrive()
    (memory,) = story.cycle_memory.clusters
    story.cycle_memory = CycleMemory((), (), (replace(memory, reclaimed_demand=2.0),))
    needs(story, pods((8, 1)))
    assert story.cycle() == ["Bootstrap c"]
    assert reacquired(story) == [(1, 2)]
    story.arrive()
    needs(story, pods((4, 1)))
    begin = story.now = story.now + 5
    assert story.cycle() == []
    story.now = begin + 59
    assert story.cycle() == []
    assert story.orders_within(5) == ["Reclaim c"]


def test_acquiring_again_holds_as_many_machines_for_longer_and_no_others() -> None:
    """One of three surplus machines stays, whichever would go last."""
    specs = [configured(name) for name in "abcd"]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story(specs, ("east", pods((4, 1))), settings=held)
    (need,) = story.demand.needs
    memory = ClusterMemory(
        "east",
        surplus=(SurplusSince(3, NOW - 30),),
        reacquired=(Reacquired(need.key[0], 1, 2, NOW),),
    )
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert len(story.cycle()) == 2
    story.now = NOW + 29
    assert story.cycle() == []
    assert len(story.orders_within(5)) == 1


def test_machines_that_the_acquiring_need_cannot_use_are_not_held_for_it() -> None:
    """A GPU machine that was bought again says nothing about machines without GPUs. But a GPU
    machine that was bought for a pod without one, as there was no other, is held like any other.
    """
    specs = [configured(name, last_claimed_by=1) for name in "ab"]
    specs += [configured(name, cpu=1, more={GPU: 1}, last_claimed_by=0) for name in "gh"]
    large, plain = pods((1, 1), more={GPU: 1}, priority=1), pods((4, 1))
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    for need, orders in ((large, ["Reclaim b"]), (plain, [])):
        story = Story(specs, ("east", large), ("east", plain), settings=held)
        memory = ClusterMemory(
            "east",
            surplus=(SurplusSince(2, NOW - 30),),
            reacquired=(Reacquired(need.key[0], 2, 2, NOW),),
        )
        story.cycle_memory = CycleMemory((), (), (memory,))
        assert story.cycle() == orders


def test_machines_that_the_acquiring_need_does_not_accept_are_not_held_for_it() -> None:
    """Its pods must run in another zone."""
    surplus = [configured(name, labels={ZONE: "b"}) for name in "cd"]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    for zone, orders in (("a", 2), ("b", 0)):
        need = pods((1, 1), requirements=(Requirement(ZONE, Operator.IN, (zone,)),))
        its = configured("its", labels={ZONE: zone}, disruption_cost=math.inf)
        story = Story([its, *surplus], ("east", need), settings=held)
        (need,) = story.demand.needs
        memory = ClusterMemory(
            "east",
            surplus=(SurplusSince(2, NOW - 30),),
            reacquired=(Reacquired(need.key[0], 2, 2, NOW),),
        )
        story.cycle_memory = CycleMemory((), (), (memory,))
        assert len(story.cycle()) == orders


def test_only_what_was_reclaimed_since_then_makes_the_hold_still_longer() -> None:
    """Several machines bought after one reclaim: all of them are held, but not four times as long,
    which is for machines that were bought, reclaimed and bought again.
    """
    story = Story([idle("i"), idle("j"), idle("k")], ("east", pods((4, 1))))
    memory = ClusterMemory("east", reclaimed_seconds=NOW - 5, reclaimed_demand=9.0)
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert len(story.cycle()) == 1
    assert reacquired(story) == [(1, 2)]
    needs(story, pods((8, 1)))
    assert len(story.cycle()) == 1
    assert reacquired(story) == [(2, 2)]
    (memory,) = story.cycle_memory.clusters
    again = replace(memory, reclaimed_seconds=story.now)
    story.cycle_memory, story.now = CycleMemory((), (), (again,)), story.now + 1
    needs(story, pods((12, 1)))
    assert len(story.cycle()) == 1
    assert reacquired(story) == [(3, 4)]


def test_acquiring_again_for_more_demand_does_not_extend_the_hold() -> None:
    """A machine was reclaimed as demand fell, and is acquired again as demand grows."""
    story = Story([configured("c"), idle("i")], settings=EngineConfig(idle_hold_seconds={}))
    story.cycle()
    story.now = NOW + 30
    assert story.cycle() == ["Reclaim c"]
    story.arrive()
    needs(story, pods((4, 1)))
    assert story.cycle() == ["Bootstrap c"]
    assert reacquired(story) == []


def test_the_longer_hold_ends_when_it_has_long_been_of_no_use() -> None:
    """And it grows up to 32 times, no further."""
    story = Story([idle("i", cpu=9)], ("east", pods((1, 9))))
    (need,) = story.demand.needs
    memory = ClusterMemory(
        "east",
        reclaimed_seconds=NOW,
        reclaimed_demand=1.0,
        reacquired=(Reacquired(need.key[0], 1, 32, NOW - 1),),
    )
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert story.cycle() == ["Bootstrap i"]
    assert reacquired(story) == [(2, 32)]
    seconds = 600 * 32 + 1
    for factor in (16, 8, 4, 2):
        story.now += seconds
        story.cycle()
        assert reacquired(story) == [(2, factor)]
        seconds = 600 * factor + 1
    story.now += seconds
    story.cycle()
    assert reacquired(story) == []


def test_acquiring_long_after_a_reclaim_does_not_extend_the_hold() -> None:
    """Its demand has changed since."""
    memory = ClusterMemory("east", reclaimed_seconds=NOW - 600)
    story = Story([idle("i")], ("east", pods((1, 1))))
    story.cycle_memory = CycleMemory((), (), (memory,))
    assert story.cycle() == ["Bootstrap i"]
    assert reacquired(story) == []


# While demand only grows


@pytest.mark.parametrize("seed", range(25))
def test_no_machine_is_reclaimed_while_demand_only_grows(seed: int) -> None:
    """Although each operator reports that all its machines could be reclaimed: a cluster that
    loses a machine loses it to a need, and empty ones stay for growth. (Machines that a gang left
    in a domain that it has outgrown are reclaimed so that the gang is complete again.)
    """
    fleet, demand = random_case(seed)
    flavours = [replace(flavour, limited=False) for flavour in fleet.flavours]
    unpromised = np.full(len(fleet), NONE, np.int32)
    fleet = replace(fleet, flavours=flavours, last_claimed_by=unpromised, backed_off=None)
    demand = replace(demand, fell_seconds={})
    draw, cycle_memory = np.random.default_rng(seed), CycleMemory()
    for cycle in range(6):
        now = NOW + 10 * cycle
        demand = replace(demand, rose_seconds=dict.fromkeys(range(len(fleet.clusters)), now))
        costs = draw.choice([0.0, 1.0, 5.0], len(fleet))
        decision = checked(
            replace(fleet, disruption_cost=costs), demand, EngineConfig(), now, cycle_memory
        )
        for action in decision.actions:
            if action.type is ActionType.RECLAIM and action.need == NONE:
                served = demand.needs[fleet.last_claimed_by[action.row]].profile
                assert (fleet.last_claimed_by[action.row] != NONE, served.same_key is None) == (
                    True,
                    False,
                )
        fleet, cycle_memory = carried_out(fleet, demand, decision, DONE), decision.cycle_memory
        demand = _grown(demand, draw)


def _grown(demand: Demand, draw: np.random.Generator) -> Demand:
    """More pods of some sizes."""
    more = [
        replace(
            need, sizes=tuple(Size(s.amounts, s.pods + int(draw.integers(3))) for s in need.sizes)
        )
        for need in demand.needs
    ]
    return replace(demand, needs=more)


def test_a_machine_that_must_stay_keeps_no_others() -> None:
    """The first candidate holds a gang that has no other place in its rack; those behind it go."""
    gang = pods((4, 1), requirements=(same(),))
    specs = [configured("gang", price=9, labels={RACK: "r"})]
    specs += [configured(name, labels={RACK: "s"}) for name in "abc"]
    story = Story(specs, ("east", gang), settings=UNLIMITED)
    assert story.cycle() == ["Reclaim a", "Reclaim b", "Reclaim c"]


def test_pods_that_spread_stay_in_their_zones() -> None:
    """Without the machine of a zone that zone is no domain, and one machine could hold them all."""
    specs = [configured(zone, cpu=9, labels={ZONE: zone}) for zone in "ab"]
    story = Story(
        specs,
        ("east", pods((4, 1), spread=EVENLY_BY_ZONE)),
        settings=EngineConfig(reclaim_hold_seconds=0.0),
    )
    assert story.settle() == []


def test_a_machine_that_the_pods_may_not_use_keeps_no_zone_for_them() -> None:
    """Nor is a zone with such machines alone a domain."""
    specs = [configured(zone, cpu=9, labels={ZONE: zone, RACK: "r"}) for zone in "ab"]
    specs.append(configured("other", cpu=9, labels={ZONE: "a"}, disruption_cost=math.nan))
    in_r = Requirement(RACK, Operator.IN, ("r",))
    spread = pods((4, 1), requirements=(in_r,), spread=EVENLY_BY_ZONE)
    story = Story(specs, ("east", spread), settings=EngineConfig(reclaim_hold_seconds=0.0))
    assert story.cycle() == []


def test_surplus_machines_are_looked_for_once_in_each_sixth_of_a_hold() -> None:
    """To look for them takes longer than the rest of a decision. Until the next time there are as
    many as before, and it is the turn of each cluster at another time.
    """
    names = [f"cluster-{number}" for number in range(40)]
    specs = [configured(f"{name}-{machine}", name) for name in names for machine in "ab"]
    held = replace(UNLIMITED, reclaim_hold_seconds=30.0)
    story = Story(specs, settings=held)
    story.demand = replace(story.demand, reported=frozenset(range(len(names))))
    assert story.cycle() == []
    assert len(story.decision.surplus) == len(names)
    searched = list[int]()
    for _ in range(5):
        assert story.cycle() == []
        searched.append(len(story.decision.surplus))
        assert {m.surplus[-1].machines for m in story.cycle_memory.clusters} == {2}
    assert sum(searched) == len(names)
    assert min(searched) > 0


def test_a_cluster_that_gives_up_machines_is_searched_by_the_next_decision() -> None:
    """The cap on reclaims is one for each decision, and more may be due."""
    capped = EngineConfig(reclaim_hold_seconds=30.0, reclaim_cap_fraction=0.01)
    story = Story([configured(name) for name in "abc"], settings=capped)
    assert story.cycle() == []
    story.now = NOW + 30
    assert [len(story.cycle()) for _ in range(3)] == [1, 1, 1]
