"""Crashes and lost responses at critical moments."""

from __future__ import annotations

import asyncio

import pytest

from bigfleet.engine.decision import ActionType
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.simulation.runtime.faults import Delays
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    bound,
    golden,
    machines,
    pending,
    pods,
    run_scenario,
    state_counts,
    world_spec,
)

_S = MachineState


async def until_event(world: World, event: str) -> None:
    """Wait until `event` is part of the story."""
    while all(entry.event != event for entry in world.story.events):  # noqa: ASYNC110  virtual time
        await asyncio.sleep(0.1)


def test_a_crash_between_acknowledgement_and_drain_leaves_no_empty_machine() -> None:
    """The Node is gone, the provider does not know, and the demand is back: the next life of the
    shard drains the machine all the same, and only then counts on it.
    """

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 8))
        await asyncio.sleep(20)
        cluster.apply(pods("web", 4))
        await until_event(world, "reclaim-sent")
        world.faults.request_lost = 1.0
        await until_event(world, "reclaim-acknowledged")
        await world.kill_shard()
        world.faults.request_lost = 0.0
        await asyncio.sleep(5)
        assert len(cluster.nodes) == 1
        assert state_counts(world)["CONFIGURED"] == 2
        cluster.apply(pods("web", 8))
        world.start_shard()
        await asyncio.sleep(60)
        assert pending(world) == 0
        assert len(cluster.nodes) == state_counts(world)["CONFIGURED"] == 2
        golden(world, "crash_before_drain")

    run_scenario(world_spec(machines(2), delays=Delays(answer=(1.0, 1.0))), scenario)


def test_a_lost_acknowledgement_is_requested_again() -> None:
    """The operator emptied the Node and its answer got lost: the instruction is repeated."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 8))
        await asyncio.sleep(20)
        world.faults.reclaim_unanswered = 1.0
        cluster.apply(pods("web", 4))
        await asyncio.sleep(45)
        world.faults.reclaim_unanswered = 0.0
        assert state_counts(world)["CONFIGURED"] == 2
        await asyncio.sleep(60)
        assert state_counts(world) == {"IDLE": 1, "CONFIGURED": 1}
        assert bound(world) == 4

    run_scenario(world_spec(machines(2)), scenario)


def test_a_shard_outage_does_not_affect_running_pods() -> None:
    """Five minutes without a shard: no eviction, no machine moves; then it goes on by itself."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 20))
        await asyncio.sleep(30)
        before = state_counts(world)
        await world.kill_shard()
        cluster.apply(pods("web", 24))
        await asyncio.sleep(300)
        assert (state_counts(world), cluster.evicted, bound(world)) == (before, 0, 20)
        world.start_shard()
        await asyncio.sleep(30)
        assert (cluster.evicted, bound(world)) == (0, 24)

    run_scenario(world_spec(machines(8)), scenario)


def test_a_momentarily_empty_listing_changes_nothing() -> None:
    """Full listings that lack nearly everything are doubted; when they are whole again nothing has
    been bought, and no pod was moved.
    """

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 48))
        await asyncio.sleep(30)
        quiet_from = len(world.cycles)
        world.provider.shows = 1
        await asyncio.sleep(290)  # the next full listing is due 300 s after the first
        assert "listing-suspect" in {entry.event for entry in world.story.events}
        world.provider.shows = None
        await asyncio.sleep(320)
        assert world.ordered(ActionType.BOOTSTRAP, quiet_from) == 0
        assert world.clusters["east"].evicted == 0

    run_scenario(world_spec(machines(24)), scenario)


def test_machines_that_stay_missing_are_replaced() -> None:
    """Half a minute of agreeing listings: then the missing machines are gone and replaced."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 48))
        await asyncio.sleep(290)
        world.provider.shows = 2
        await asyncio.sleep(60)
        assert len(world.shard.inventory if world.shard else ()) == 2

    run_scenario(world_spec(machines(24)), scenario)


async def _alone(world: World, seconds: float) -> None:
    """The operator is away for so long."""
    operator = world.operators["east"]
    operator.online = False
    operator.disconnect()
    await asyncio.sleep(seconds)
    operator.online = True


@pytest.mark.parametrize("shard_dies_too", [False, True])
def test_a_machine_that_leaves_unseen_leaves_no_node(shard_dies_too: bool) -> None:
    """Lost to the market while its cluster's operator was away, and while the shard was: when they
    speak again the dead Node goes, and no other.
    """

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 12))
        await asyncio.sleep(60)
        assert len(cluster.nodes) == 3
        if shard_dies_too:
            await world.kill_shard()
        away = asyncio.create_task(_alone(world, 30))
        await asyncio.sleep(1)
        await world.provider.lose("s-001")
        assert cluster.nodes["s-001"].dead
        cluster.apply(pods("web", 8))
        await away
        if shard_dies_too:
            world.start_shard()
        await asyncio.sleep(30)
        assert {node.name for node in cluster.nodes.values() if node.dead} == set()
        assert (len(cluster.nodes), pending(world)) == (2, 0)

    fleet = machines(6, "s", _S.SPECULATIVE, capacity_type=CapacityType.SPOT)
    run_scenario(world_spec(fleet), scenario)


def test_a_drain_that_ends_unseen_leaves_no_node() -> None:
    """A budget keeps pods until the grace of their eviction ends, while the operator is away; the
    dead Node goes when it is back.
    """

    async def scenario(world: World) -> None:
        east, west = world.clusters["east"], world.clusters["west"]
        east.apply(pods("batch", 16, priority=100, max_unavailable=0))
        await asyncio.sleep(30)
        west.apply(pods("urgent", 4, priority=1_000_000))
        await until_event(world, "drain-sent")
        away = asyncio.create_task(_alone(world, 120))
        await asyncio.sleep(60)
        assert [node.dead for node in east.nodes.values()].count(True) == 1
        assert bound(world, "west") == 4
        await away
        await asyncio.sleep(30)
        assert (len(east.nodes), pending(world)) == (3, 4)
        assert not any(node.dead for node in east.nodes.values())

    run_scenario(world_spec(machines(4), "east", "west"), scenario)
