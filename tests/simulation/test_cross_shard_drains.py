"""Machines in use that move to a shard whose clusters need them more."""

from __future__ import annotations

import asyncio

import pytest

from bigfleet.simulation.world import World
from tests.simulation.shards_rig import assert_single_owner, owners, two_racks
from tests.simulation.simulation_rig import bound, pending, pods, run_scenario


async def fill(world: World, low: int, high: int) -> tuple[str, str]:
    """Fill both racks: one cluster with pods of the priority `high`, the other with `low` ones. The
    cluster with the high ones, then the other.
    """
    for cluster in world.clusters.values():
        cluster.apply(pods("early", 1))
    await asyncio.sleep(30)
    east, west = world.clusters["east"], world.clusters["west"]
    east.apply(pods("web", 31, priority=high))
    west.apply(pods("batch", 31, priority=low))
    await asyncio.sleep(60)
    assert (bound(world, "east"), bound(world, "west")) == (32, 32)
    return "east", "west"


@pytest.mark.parametrize("cpu", ["1", "4"])
def test_pods_of_a_lower_priority_yield_to_another_shards(cpu: str) -> None:
    """Within a minute, as many machines as are needed and no more; their rack changes hands, and
    the reason is in the story of each machine.
    """

    async def scenario(world: World) -> None:
        needs, yields = await fill(world, low=0, high=1_000_000)
        world.clusters[needs].apply(pods("more", 8 // int(cpu), cpu=cpu, priority=1_000_000))
        await asyncio.sleep(60)
        assert pending(world, needs) == 0
        assert world.clusters[yields].evicted == 8
        assert world.coordinators is not None
        registry = world.coordinators.registry
        assert registry is not None
        (moved,) = (row for row in registry.domains.values() if row.reason)
        assert f"cluster {needs} of shard {moved.shard} lacked machines" in moved.reason
        decided = [each for each in world.story.events if each.event == "decided"]
        told = [each for each in decided if each.fields.get("note") == moved.reason]
        assert len({each.fields["machine"] for each in told}) == 2
        assert {each.fields["action"] for each in told} == {"Preempt"}
        await asyncio.sleep(300)
        assert world.clusters[yields].evicted == 8
        assert_single_owner(world)

    run_scenario(two_racks(8), scenario)


@pytest.mark.parametrize("low", [5, 6])
def test_pods_of_the_same_or_a_higher_priority_stay(low: int) -> None:
    """For five minutes nothing moves, and the shortfall stays."""

    async def scenario(world: World) -> None:
        needs, yields = await fill(world, low=low, high=5)
        world.clusters[needs].apply(pods("more", 4, priority=5))
        before = owners(world, 2)
        for _ in range(30):
            await asyncio.sleep(10)
            # Only the pod without a priority may yield to those beside it.
            assert 3 <= pending(world, needs) <= 5
            assert owners(world, 2) == before
        assert world.clusters[yields].evicted == 0

    run_scenario(two_racks(8), scenario)


def test_what_moved_for_a_higher_priority_comes_back_when_it_is_free() -> None:
    """Idle machines of others serve those who yielded; the reclaim margin keeps one back."""

    async def scenario(world: World) -> None:
        needs, yields = await fill(world, low=0, high=1_000_000)
        world.clusters[needs].apply(pods("more", 8, priority=1_000_000))
        await asyncio.sleep(60)
        assert pending(world, yields) == 8
        world.clusters[needs].apply(pods("more", 0, priority=1_000_000))
        await asyncio.sleep(400)
        assert pending(world, yields) <= 4
        assert_single_owner(world)

    run_scenario(two_racks(8), scenario)


def test_a_shard_that_dies_while_it_drains_for_another_resumes() -> None:
    """What it has accepted is on its disk."""

    async def scenario(world: World) -> None:
        needs, yields = await fill(world, low=0, high=1_000_000)
        donor = next(n for n, host in world.hosts.items() if yields in host.held.clusters)
        world.clusters[needs].apply(pods("more", 8, priority=1_000_000))
        for _ in range(600):
            await asyncio.sleep(0.1)
            if world.hosts[donor].held.drains:
                break
        assert world.hosts[donor].held.drains
        await world.hosts[donor].kill()
        world.hosts[donor].start()
        await asyncio.sleep(90)
        assert pending(world, needs) == 0
        assert world.clusters[yields].evicted == 8
        assert_single_owner(world)

    run_scenario(two_racks(8), scenario)
