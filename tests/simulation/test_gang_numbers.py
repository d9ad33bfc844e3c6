"""Gangs: the numbers that the folding of small ones was decided on, and what folding may not do."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.engine.decision import ActionType
from bigfleet.engine.fit.folding import fold
from bigfleet.model.group import ADDITIONAL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.services.shard.demand.needs import NeedsTable, RollUpOutcome
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.interning import Numbers
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    RACK,
    ZONE,
    bound,
    machines,
    pending,
    pods,
    run_scenario,
    state_counts,
    world_spec,
)

_S = MachineState


def test_idle_capacity_does_not_move_bound_gangs() -> None:
    """24 gangs are bound when a neighbour gives back a whole rack of idle machines: no machine is
    reclaimed or fetched, no pod moves.
    """

    async def scenario(world: World) -> None:
        east, west = world.clusters["east"], world.clusters["west"]
        west.apply(pods("web", 200, selector={ZONE: ("fresh",)}))
        for number in range(24):
            east.apply(pods(f"gang-{number:02}", 2, "4", same_key=RACK))
        await asyncio.sleep(60)
        assert (pending(world), bound(world)) == (0, 48)
        quiet_from = len(world.cycles)
        west.withdraw("web")
        await asyncio.sleep(120)
        assert state_counts(world) == {"IDLE": 50, "CONFIGURED": 48}
        assert east.evicted == 0
        assert world.ordered(ActionType.BOOTSTRAP, quiet_from) == 0
        assert world.ordered(ActionType.RECLAIM, quiet_from) == 50

    fleet = [m for r in range(12) for m in machines(4, f"r{r}", rack=f"r{r}")]
    fresh = machines(50, "fresh", rack="fresh", zone="fresh", price_per_hour=0.1)
    run_scenario(world_spec([*fleet, *fresh], "east", "west"), scenario)


def test_a_gang_that_outgrows_its_rack_moves_to_one_that_holds_it() -> None:
    """Two machines serve it where there are only two; a rack of three is idle, and three are
    needed: it ends up there, whole, and nothing is left behind.
    """

    async def scenario(world: World) -> None:
        east = world.clusters["east"]
        east.apply(pods("db", 2, "4", same_key=RACK))
        await asyncio.sleep(30)
        assert {m.labels[RACK] for m in world.in_state(_S.CONFIGURED)} == {"two"}
        east.apply(pods("db", 3, "4", same_key=RACK))
        await asyncio.sleep(120)
        assert pending(world) == 0
        assert {m.labels[RACK] for m in world.in_state(_S.CONFIGURED)} == {"three"}
        assert state_counts(world) == {"IDLE": 2, "CONFIGURED": 3}

    fleet = [*machines(2, "two", rack="two"), *machines(3, "three", rack="three", zone="b")]
    run_scenario(world_spec(fleet), scenario)


def test_a_gang_of_known_size_is_not_split_if_its_pods_arrive_slowly() -> None:
    """Its pods come five seconds apart, and the first would have gone to the cheap machine of a
    rack that has no other: nothing is bought before the third, and then one rack holds all.
    """

    async def scenario(world: World) -> None:
        east = world.clusters["east"]
        for size in (1, 2, 3):
            east.apply(pods("db", size, "4", same_key=RACK, gang_members=3))
            await asyncio.sleep(5)
            assert (world.ordered(ActionType.BOOTSTRAP) > 0) == (size == 3)
        await asyncio.sleep(55)
        assert (pending(world), east.evicted) == (0, 0)
        assert {m.labels[RACK] for m in world.in_state(_S.CONFIGURED)} == {"roomy"}
        assert world.ordered(ActionType.BOOTSTRAP) == 3

    narrow = machines(1, "narrow", rack="narrow", price_per_hour=0.1)
    run_scenario(world_spec([*narrow, *machines(3, "roomy", rack="roomy", zone="b")]), scenario)


def test_a_gang_that_stays_smaller_than_announced_is_served_as_it_is() -> None:
    """Half a minute after its last pod came: what keeps the others away may last."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("db", 2, "4", same_key=RACK, gang_members=3))
        await asyncio.sleep(25)
        assert world.ordered(ActionType.BOOTSTRAP) == 0
        await asyncio.sleep(60)
        assert (pending(world), bound(world)) == (0, 2)

    run_scenario(world_spec(machines(3)), scenario)


def _asked(fleet: list[Machine], cluster: SimulatedCluster) -> tuple[int, int]:
    """Needs as reported and as served, by way of the real roll-up, needs table and inventory."""
    numbers = Numbers()
    inventory, needs = Inventory(numbers), NeedsTable(numbers)
    inventory.apply(fleet, 0.0)
    rollup = ClusterCapacityNeeds(
        cluster_id=cluster.name,
        needs=cluster.requests.request_cache.aggregate.content(0.0).needs,
        timestamp_unix_nanos=1,
    )
    assert needs.replace(rollup, 0.0) == RollUpOutcome("", left_out=frozenset())
    asked = needs.demand()
    seen, _ = inventory.snapshot([])
    return len(asked.needs), len(fold(seen, asked).demand.needs)


async def test_small_gangs_fold_to_one_need_of_each_profile() -> None:
    """2,400 gangs of 6 profiles and 4 sizes are 6 needs, not 2,400: one of each profile, in which
    each gang is a pod.
    """
    cluster = SimulatedCluster("east", lambda: 0.0)
    for number in range(2400):
        priority, size = number % 6, 3 + number // 6 % 4
        cluster.apply(pods(f"gang-{number}", size, "500m", priority=priority, same_key=RACK))
    assert _asked(machines(10), cluster) == (2400, 6)


async def test_only_gangs_that_fit_on_a_machine_fold() -> None:
    """Those that need several stay gangs, one need each."""
    cluster = SimulatedCluster("east", lambda: 0.0)
    for number in range(40):
        cluster.apply(pods(f"small-{number}", 4, "1", same_key=RACK))
        cluster.apply(pods(f"large-{number}", 5, "1", same_key=RACK))
    assert _asked(machines(10), cluster) == (80, 41)


def test_small_gangs_share_machines() -> None:
    """60 gangs of four pods, ten pods to a machine: every pod is bound, nothing is short, and there
    is one machine more than whole gangs need, not one for each gang.
    """

    async def scenario(world: World) -> None:
        for number in range(60):
            world.clusters["east"].apply(pods(f"gang-{number}", 4, "1", same_key=RACK))
        await asyncio.sleep(60)
        assert pending(world) == 0
        assert world.cycles[-1].shortfalls == 0
        assert state_counts(world)["CONFIGURED"] == math.ceil(60 / 2) + 1
        quiet_from = len(world.cycles)
        await asyncio.sleep(60)
        assert sum(world.ordered(kind, quiet_from) for kind in ActionType) == 0

    fleet = [
        m for r in range(8) for m in machines(10, f"r{r}", rack=f"r{r}", amounts={"cpu": "10"})
    ]
    run_scenario(world_spec(fleet), scenario)


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["500m", "1", "3"])), max_size=12),
    st.integers(1, 12),
)
def test_folding_never_exceeds_what_the_scheduler_can_place(
    gangs: list[tuple[int, str]], count: int
) -> None:
    """Whatever gangs share whatever machines: where nothing is short, every pod finds its place."""

    async def scenario(world: World) -> None:
        for number, (size, cpu) in enumerate(gangs):
            world.clusters["east"].apply(
                pods(f"gang-{number}", size, cpu, same_key=RACK, priority=number % 2)
            )
        await asyncio.sleep(120)
        if world.cycles[-1].shortfalls == 0:
            assert pending(world) == 0

    run_scenario(world_spec(machines(count)), scenario)


@pytest.mark.parametrize(("clusters", "machines_each"), [(4, 120)])
def test_many_gangs_in_many_clusters_settle(clusters: int, machines_each: int) -> None:
    """129 needs a cluster, 93 % of them gangs: quiet, and 99 % bound; the rest are gangs whose rack
    others have filled to its last machine, and which ask there for one more in vain.
    """

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            for number in range(120):
                size = 3 + number % 6
                cluster.apply(pods(f"gang-{number}", size, "250m", same_key=RACK))
            for number in range(9):
                cluster.apply(pods(f"web-{number}", 20, "500m", priority=number))
        await asyncio.sleep(60)
        quiet_from = len(world.cycles)
        await asyncio.sleep(30)
        assert sum(world.ordered(kind, quiet_from) for kind in ActionType) == 0
        latest = world.shard.cycle.latest if world.shard else None
        assert latest is not None
        short = [latest.demand.needs[each.need] for each in latest.decision.shortfalls]
        assert all(need.group == ADDITIONAL for need in short)
        for name, cluster in world.clusters.items():
            assert pending(world, name) <= 0.01 * len(cluster.pods)

    names = [f"c{number}" for number in range(clusters)]
    fleet = [
        m
        for r in range(clusters * machines_each // 40)
        for m in machines(40, f"r{r}", rack=f"r{r}")
    ]
    run_scenario(world_spec(fleet, *names), scenario)


_TWO_RACKS = [
    *machines(1, "a", rack="a"),
    *machines(2, "b", rack="b", price_per_hour=2.0),
    *machines(1, "c", rack="a", price_per_hour=3.0),
]


def test_a_gang_that_others_would_block_has_headroom() -> None:
    """Each of two gangs of three has a machine with four places, and the second begins on the place
    that the first left: the machine that is one ahead in that rack takes its other pods.
    """

    async def scenario(world: World) -> None:
        for name in ("first", "second"):
            world.clusters["east"].apply(pods(name, 3, same_key=RACK, gang_members=3))
        await asyncio.sleep(300)
        assert pending(world) == 0
        assert world.clusters["east"].evicted == 0

    run_scenario(
        world_spec(_TWO_RACKS, scheduler_looks_ahead=False, request_additional=False), scenario
    )
