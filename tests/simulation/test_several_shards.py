"""Several shards, leader changes of the coordinator, and domains that move."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, DomainName, RowChanges, put
from bigfleet.simulation.explorer import explore
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.trials.events import apply_event
from bigfleet.simulation.trials.workloads import Event
from bigfleet.simulation.world import World, running_world
from tests.simulation.shards_rig import SHARDS, assert_single_owner, owner, owners, two_racks
from tests.simulation.simulation_rig import (
    RACK,
    bound,
    machines,
    pending,
    pods,
    run_scenario,
    state_counts,
    world_spec,
)

SEEDS = (1, 2, 3)


async def assign(world: World, rack: str, shard: str) -> None:
    """Tell the coordinator to bring the rack to the shard."""
    assert world.coordinators is not None
    await world.coordinators.call_leader(
        lambda handlers, leader_term: handlers.assign(leader_term, (RACK, rack), shard)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_of_several_shards_converges(seed: int) -> None:
    """However its domains move and its coordinator fails: one master for each machine, nothing
    bought twice, and in the end everybody served.
    """
    assert explore(seed, "shards").problems == ()


def test_a_domain_that_moves_disrupts_no_pods() -> None:
    """Its free machines are the new owner's at once, those at work when they are drained."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 8))
        await asyncio.sleep(60)
        assert (bound(world, "east"), bound(world, "west")) == (8, 8)
        first = owner(world, "r1")
        other = next(name for name in world.hosts if name != first)
        await assign(world, "r1", other)
        await asyncio.sleep(60)
        assert owner(world, "r1") == owner(world, "r2") == other
        assert [cluster.evicted for cluster in world.clusters.values()] == [0, 0]
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 4))
        await asyncio.sleep(900)
        assert state_counts(world) == {"IDLE": 6, "CONFIGURED": 2}
        assert_single_owner(world)

    run_scenario(two_racks(4), scenario)


@pytest.mark.parametrize("state", [MachineState.IDLE, MachineState.SPECULATIVE])
def test_a_rack_moves_to_the_shard_whose_cluster_lacks_machines(state: MachineState) -> None:
    """Within a minute, without anybody's help, and nothing runs elsewhere then than before."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 4))
        await asyncio.sleep(60)
        before = owners(world, 2)
        world.clusters["east"].apply(pods("web", 20))
        await asyncio.sleep(60)
        assert (bound(world, "east"), bound(world, "west")) == (20, 4)
        assert len({*owners(world, 2).values()}) == 1
        assert world.clusters["west"].evicted == 0
        registry = world.coordinators.registry if world.coordinators else None
        assert registry is not None
        (moved,) = (row for row in registry.domains.values() if row.reason)
        assert moved.shard != before[moved.topology_value]
        assert "cluster east" in moved.reason
        assert_single_owner(world)

    capacity_type = (
        CapacityType.BARE_METAL if state is MachineState.IDLE else CapacityType.ON_DEMAND
    )
    run_scenario(two_racks(4, state=state, capacity_type=capacity_type), scenario)


def test_where_nobody_has_machines_to_spare_nothing_moves() -> None:
    """For five minutes: the shortfall stays, and what runs stays where it is."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 16))
        await asyncio.sleep(60)
        before = owners(world, 2)
        world.clusters["east"].apply(pods("web", 20))
        for _ in range(30):
            await asyncio.sleep(10)
            assert owners(world, 2) == before
            assert (pending(world, "east"), pending(world, "west")) == (4, 0)
        assert [cluster.evicted for cluster in world.clusters.values()] == [0, 0]

    run_scenario(two_racks(4), scenario)


def test_a_shard_that_joins_gets_its_even_part() -> None:
    """Also of racks with machines in use, and nobody who runs there notices. What moves then moves
    once.
    """

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 24))
        await asyncio.sleep(60)
        assert Counter(owners(world, 6).values()) == {"s-0": 3, "s-1": 3}
        world.hosts["s-2"].start()
        await asyncio.sleep(60)
        even = owners(world, 6)
        assert Counter(even.values()) == {"s-0": 2, "s-1": 2, "s-2": 2}
        assert_single_owner(world)
        for _ in range(40):
            await asyncio.sleep(10)
            assert owners(world, 6) == even
        assert (bound(world, "east"), bound(world, "west")) == (24, 24)
        assert [cluster.evicted for cluster in world.clusters.values()] == [0, 0]

    racks = [machines(4, f"{n}", rack=f"r{n + 1}") for n in range(6)]
    three = {**SHARDS, "shards": ("s-0", "s-1", "s-2"), "late_shards": ("s-2",)}
    run_scenario(world_spec(list(chain(*racks)), "east", "west", **three), scenario)


def test_a_shard_that_joins_does_not_get_the_rack_of_a_gang() -> None:
    """Its gang may need another machine there."""

    async def scenario(world: World) -> None:
        east = world.clusters["east"]
        east.apply(pods("gang", 3, cpu="3", same_key=RACK, gang_members=3))
        await asyncio.sleep(30)
        assert Counter(m.labels[RACK] for m in world.in_state(MachineState.CONFIGURED)) == {"r1": 3}
        east.apply(pods("web", 5, cpu="4"))
        await asyncio.sleep(30)
        assert len(world.in_state(MachineState.CONFIGURED)) == 8
        world.hosts["s-1"].start()
        await asyncio.sleep(60)
        assert owners(world, 2) == {"r1": "s-0", "r2": "s-1"}

    fleet = [*machines(4, "m", rack="r1"), *machines(4, "n", rack="r2")]
    run_scenario(world_spec(fleet, **SHARDS, late_shards=("s-1",)), scenario)


def test_shards_serve_their_clusters_without_a_coordinator() -> None:
    """Restarts of shards included: what they own is on their disks."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 4))
        await asyncio.sleep(60)
        assert world.coordinators is not None
        await world.coordinators.stop()
        for host in world.hosts.values():
            await host.kill()
            host.start()
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 12))
        await asyncio.sleep(120)
        assert (pending(world, "east"), pending(world, "west")) == (0, 0)
        assert_single_owner(world)

    run_scenario(two_racks(4), scenario)


def test_a_shard_that_lost_its_disk_owns_the_same_again() -> None:
    """Nobody who runs there notices, and who comes later is served."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 4))
        await asyncio.sleep(60)
        lost = next(iter(world.hosts.values()))
        await lost.kill()
        lost.files.wipe()
        lost.start()
        await asyncio.sleep(60)
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 12))
        await asyncio.sleep(120)
        assert [cluster.evicted for cluster in world.clusters.values()] == [0, 0]
        assert (pending(world, "east"), pending(world, "west")) == (0, 0)
        assert_single_owner(world)

    run_scenario(two_racks(4), scenario)


def test_the_domains_of_a_lost_shard_move_to_the_others() -> None:
    """Once somebody has said that it is dead: its machines, and the clusters that it served."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 4))
        await asyncio.sleep(60)
        event = Event(0.0, "shard lost", next(iter(world.hosts)))
        await apply_event(world, event)
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 16))
        await asyncio.sleep(200)
        assert (pending(world, "east"), pending(world, "west")) == (0, 0)
        assert_single_owner(world)

    run_scenario(two_racks(4), scenario)


def test_an_operation_in_flight_keeps_its_domain() -> None:
    """Its answer was not awaited, so it may yet arrive: until it cannot, no other shard owns the
    machine, or it would be ordered by two.
    """

    async def scenario(world: World) -> None:
        clusters = world.clusters.values()
        for cluster in clusters:
            cluster.apply(pods("web", 4))
        await asyncio.sleep(60)
        world.faults.request_late = 1.0
        for cluster in clusters:
            cluster.apply(pods("web", 8))
        await asyncio.sleep(3)
        for cluster in clusters:
            cluster.apply(pods("web", 4))
        world.faults.request_late = 0.0
        for rack in ("r1", "r2"):
            other = next(name for name in world.hosts if name != owner(world, rack))
            await assign(world, rack, other)
        await asyncio.sleep(120)
        assert_single_owner(world)

    bought: dict[str, Any] = {"capacity_type": CapacityType.ON_DEMAND}
    run_scenario(two_racks(3, state=MachineState.SPECULATIVE, **bought), scenario)


def test_a_domain_assigned_before_its_release_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A domain that moves at once has two owners."""

    def move(
        _: Registry, name: DomainName, to: str, instruction_id: domains.NewInstructionId
    ) -> RowChanges:
        return put(Domain(*name, to, DomainState.ASSIGNING, instruction_id()))

    async def scenario() -> list[str]:
        async with running_world(two_racks(2)) as world:
            await asyncio.sleep(30)
            first = owner(world, "r1")
            await assign(world, "r1", next(name for name in world.hosts if name != first))
            await asyncio.sleep(30)
            return world.safety.violations

    monkeypatch.setattr(domains, "move", move)
    assert f"{RACK}=r1 is owned by s-0 and s-1" in run(scenario)
