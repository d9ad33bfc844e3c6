"""Quotas whose parts move to the shard that lacks them."""

from __future__ import annotations

import asyncio
from itertools import chain

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.services.coordinator.rows import Quota
from bigfleet.simulation.hosts.provider import NAME
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import bound, machines, pending, pods, run_scenario, world_spec


def speculative(racks: int, *late: str) -> WorldSpec:
    """As many shards as racks of eight machines that can be purchased, two clusters."""
    racks_of = [
        machines(
            8,
            f"{number}",
            MachineState.SPECULATIVE,
            rack=f"r{number + 1}",
            capacity_type=CapacityType.ON_DEMAND,
        )
        for number in range(racks)
    ]
    names = tuple(f"s-{number}" for number in range(racks))
    return world_spec(
        list(chain(*racks_of)),
        "east",
        "west",
        shards=names,
        late_shards=late,
        coordinators=("c-0",),
    )


async def divide(world: World, **per_shard: int) -> None:
    """Set the quota of the only region."""
    parts = {name.replace("_", "-"): part for name, part in per_shard.items()}
    quota = wire.QuotaAllocation(provider=NAME, region="a", per_shard=parts)
    assert world.coordinators is not None
    await world.coordinators.call_leader(
        lambda handlers, leader_term: handlers.set_quota(leader_term, quota)
    )


def row(world: World) -> Quota:
    """The quota as the leader has it."""
    registry = world.coordinators.registry if world.coordinators else None
    assert registry is not None
    return registry.quotas[NAME, "a"]


def in_existence(world: World) -> int:
    """The number of purchased machines."""
    machines_now = world.provider.machines().values()
    return sum(machine.state is not MachineState.SPECULATIVE for machine in machines_now)


def test_a_shard_that_has_used_up_its_quota_gets_what_another_does_not_use() -> None:
    """Within a minute; never more machines than the whole quota."""

    async def scenario(world: World) -> None:
        await asyncio.sleep(20)
        await divide(world, s_0=4, s_1=8)
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 8))
        await asyncio.sleep(60)
        served_by = {c: n for n, host in world.hosts.items() for c in host.held.clusters}
        small = next(cluster for cluster, shard in served_by.items() if shard == "s-0")
        world.clusters[small].apply(pods("web", 28))
        for _ in range(60):
            await asyncio.sleep(1)
            assert in_existence(world) <= 12
        assert bound(world, small) == 28
        assert row(world).per_shard == {"s-0": 7, "s-1": 5}
        assert f"cluster {small} of shard s-0 lacked machines" in row(world).reasons["s-0"]

    run_scenario(speculative(2), scenario)


def test_where_no_quota_is_left_nothing_moves() -> None:
    """For five minutes, and the shortfall stays."""

    async def scenario(world: World) -> None:
        await asyncio.sleep(20)
        await divide(world, s_0=4, s_1=4)
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 16))
        await asyncio.sleep(60)
        world.clusters["east"].apply(pods("web", 24))
        for _ in range(30):
            await asyncio.sleep(10)
            assert row(world).per_shard == {"s-0": 4, "s-1": 4}
            assert (pending(world, "east"), pending(world, "west")) == (8, 0)
            assert in_existence(world) == 8

    run_scenario(speculative(2), scenario)


def test_a_shard_that_joins_gets_its_even_part_of_a_quota() -> None:
    async def scenario(world: World) -> None:
        await asyncio.sleep(20)
        await divide(world, s_0=9, s_1=9)
        await asyncio.sleep(20)
        world.hosts["s-2"].start()
        await asyncio.sleep(30)
        assert row(world).per_shard["s-2"] == row(world).slice_of("s-2") == 6
        assert sum(row(world).per_shard.values()) == 18

    run_scenario(speculative(3, "s-2"), scenario)
