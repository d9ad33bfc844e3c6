"""Hosts with full disks, crashes at any write, and clock jumps."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from bigfleet.simulation.explorer import explore
from bigfleet.simulation.runtime.faults import Delays
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    bound,
    machines,
    pending,
    pods,
    run_scenario,
    state_counts,
    world_spec,
)

CYCLE: dict[str, Any] = {"cycle_seconds": 5.0}


def crash_at_write(world: World, number: int) -> None:
    """Of all that shard and provider write from now on, this write is their last."""
    occurs, count = world.injector.occurs, itertools.count(1)

    def meets(fault: str) -> bool:
        return next(count) == number if fault == "crash_at_write" else occurs(fault)

    world.injector.occurs = meets  # type: ignore[method-assign]


async def until_a_node_leaves(world: World) -> None:
    """Let time pass until the operator has begun to empty a Node."""
    nodes = world.clusters["east"].nodes.values()
    while not any(node.leaving for node in nodes):  # noqa: ASYNC110  virtual time
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("number", range(1, 11))
def test_a_machine_is_acquired_and_released_whichever_write_crashes(number: int) -> None:
    """Two machines join and one is given back; no crash leaves a machine without its Node."""

    async def scenario(world: World) -> None:
        crash_at_write(world, number)
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 8))
        await asyncio.sleep(100)
        assert (bound(world), len(cluster.nodes)) == (8, 2)
        cluster.apply(pods("web", 2))
        await asyncio.sleep(200)
        assert state_counts(world) == {"IDLE": 1, "CONFIGURED": 1}
        assert (bound(world), len(cluster.nodes)) == (2, 1)

    run_scenario(world_spec(machines(2), **CYCLE), scenario)


def test_the_operator_reports_evictions_lost_in_a_power_cut() -> None:
    """The shard forgets an eviction that was not flushed; the operator goes on, and says so."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 8))
        await asyncio.sleep(30)
        cluster.apply(pods("web", 2))
        await until_a_node_leaves(world)
        await world.kill_shard()
        world.files.cut_power()
        world.start_shard()
        await asyncio.sleep(200)
        assert state_counts(world) == {"IDLE": 1, "CONFIGURED": 1}
        assert (bound(world), len(cluster.nodes)) == (2, 1)

    run_scenario(world_spec(machines(2), delays=Delays(answer=(2.0, 2.0)), **CYCLE), scenario)


@pytest.mark.parametrize("ahead_seconds", [-3600.0, 3600.0])
@pytest.mark.parametrize("clock_name", ["shard_clock", "provider_clock"])
def test_a_clock_jump_of_an_hour_is_harmless(clock_name: str, ahead_seconds: float) -> None:
    """Who runs is left alone, and who comes ten minutes later is served within five."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 8))
        await asyncio.sleep(60)
        getattr(world, clock_name).ahead_seconds = ahead_seconds
        await asyncio.sleep(600)
        assert (cluster.evicted, bound(world)) == (0, 8)
        cluster.apply(pods("web", 16))
        await asyncio.sleep(300)
        assert (cluster.evicted, pending(world)) == (0, 0)

    run_scenario(world_spec(machines(6), **CYCLE), scenario)


@pytest.mark.parametrize("seed", [3, 14])
def test_a_world_on_unreliable_hosts_converges(seed: int) -> None:
    """Full disks, crashes at writes, power cuts and wrong clocks, then healed."""
    assert explore(seed, "harsh").problems == ()
