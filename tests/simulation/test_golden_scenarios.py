"""Scripted scenarios whose stories are golden files."""

from __future__ import annotations

import asyncio

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    RACK,
    golden,
    machines,
    pending,
    pods,
    run_scenario,
    state_counts,
    world_spec,
)

GPU = {"nvidia.com/gpu": "8"}
_S = MachineState


def test_a_stock_out_leaves_the_rest_short() -> None:
    """64 machines requested, 32 available: 32 are in use and 256 GPUs short, reported once."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("train", 64, "4", more=GPU))
        await asyncio.sleep(60)
        assert state_counts(world) == {"CONFIGURED": 32}
        assert pending(world) == 32
        golden(world, "capacity_stockout")

    run_scenario(world_spec(machines(32, amounts=GPU)), scenario)


def test_a_training_job_is_placed_in_one_cycle() -> None:
    """A gang of 64 machines goes to the one rack that holds all of it, in one decision."""
    fleet = [*machines(40, "a", rack="small"), *machines(70, "b", rack="large", zone="b")]

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("train", 64, "4", same_key=RACK))
        await asyncio.sleep(30)
        assert pending(world) == 0
        assert {m.labels[RACK] for m in world.in_state(_S.CONFIGURED)} == {"large"}
        assert len({c.at_seconds for c in world.cycles if c.actions}) == 1
        golden(world, "training_job_topology")

    run_scenario(world_spec(fleet), scenario)


def test_a_machine_that_does_not_boot_is_replaced() -> None:
    """Three requested, one fails to boot: three are in use, and the failed one has last_error."""

    async def scenario(world: World) -> None:
        world.injector.forced.add(("boot_failure", "m-001"))
        world.clusters["east"].apply(pods("web", 3, "4"))
        await asyncio.sleep(60)
        assert state_counts(world) == {"CONFIGURED": 3, "FAILED": 1}
        (failed,) = world.in_state(_S.FAILED)
        assert failed.last_error == "boot failure of m-001 (injected fault)"
        golden(world, "provider_configure_failure")

    run_scenario(world_spec(machines(4)), scenario)


def test_a_failed_drain_does_not_block_others() -> None:
    """All eight are withdrawn: seven become IDLE, the eighth FAILED."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 8, "4"))
        await asyncio.sleep(30)
        world.injector.forced.add(("drain_failure", "m-003"))
        world.clusters["east"].withdraw("web")
        await asyncio.sleep(60)
        assert state_counts(world) == {"IDLE": 7, "FAILED": 1}
        golden(world, "drain_failure_withdrawal")

    run_scenario(world_spec(machines(8)), scenario)


def test_withdrawn_machines_serve_the_next_cluster() -> None:
    """Machines that one cluster gives up serve the next, once it is believed; elastic ones go back
    after their hold.
    """
    fleet = [
        *machines(4, "own"),
        *machines(
            4, "rented", _S.SPECULATIVE, capacity_type=CapacityType.ON_DEMAND, price_per_hour=2.0
        ),
    ]

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 24))
        await asyncio.sleep(30)
        world.clusters["east"].withdraw("web")
        await asyncio.sleep(40)
        world.clusters["west"].apply(pods("web", 8))
        await asyncio.sleep(120)
        assert state_counts(world) == {"SPECULATIVE": 4, "IDLE": 2, "CONFIGURED": 2}
        golden(world, "withdrawal")

    holds = {"idle_hold_seconds": {CapacityType.ON_DEMAND: 60.0}}
    run_scenario(world_spec(fleet, "east", "west", engine=holds), scenario)
