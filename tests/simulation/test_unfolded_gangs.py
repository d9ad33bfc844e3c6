"""Gangs that would fit on one machine, where only smaller ones are free."""

from __future__ import annotations

import asyncio

from bigfleet.model.machine import MachineState
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    RACK,
    bound,
    machines,
    pods,
    run_scenario,
    world_spec,
)

SMALL, LARGE = machines(4, "m", rack="r1"), machines(4, "large", rack="r2", amounts={"cpu": "8"})


def test_gangs_for_which_no_large_machine_is_free_get_smaller_ones() -> None:
    """All machines that hold a whole gang are in use, and each takes two others of one rack."""

    async def scenario(world: World) -> None:
        east = world.clusters["east"]
        east.apply(pods("large", 4, cpu="7"))
        await asyncio.sleep(30)
        for name in ("a", "b"):
            east.apply(pods(name, 2, cpu="3", same_key=RACK, gang_members=2))
        await asyncio.sleep(180)
        assert bound(world, "east") == 8
        assert len(world.in_state(MachineState.CONFIGURED)) == 8

    run_scenario(world_spec([*SMALL, *LARGE]), scenario)
