"""A permanent fault does not affect others, and retries back off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.simulation.liveness import max_attempts
from bigfleet.simulation.runtime.permanent_faults import PermanentFaults, offering_of
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import bound, machines, pending, pods, run_scenario, world_spec

_S = MachineState
SPECULATIVE: dict[str, Any] = {"state": _S.SPECULATIVE, "capacity_type": CapacityType.ON_DEMAND}


def times(world: World, event: str, machine_id: str) -> int:
    """How often `event` happened to the machine."""
    return sum(
        entry.event == event and entry.fields.get("machine") == machine_id
        for entry in world.story.events
    )


def test_a_machine_that_never_boots_is_not_purchased_in_backoff() -> None:
    """What failed to boot and was given back rests; while it may not be booted it is not bought."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 3, "4"))
        await asyncio.sleep(1200)
        assert bound(world) == 2
        boots = times(world, "configure-sent", "m-000")
        assert 1 < boots <= max_attempts(1200)
        assert times(world, "create-sent", "m-000") == boots

    holds = {"idle_hold_seconds": {CapacityType.ON_DEMAND: 10.0}}
    broken = PermanentFaults(machine="m-000")
    given = world_spec(machines(3, **SPECULATIVE), engine=holds, broken=broken, cycle_seconds=10.0)
    run_scenario(given, scenario)


@pytest.mark.parametrize("fault", ["unready_cluster", "silent_operator", "absent_operator"])
def test_a_cluster_whose_machines_fail_does_not_block_others(fault: str) -> None:
    """However often its machines failed, who comes ten minutes later is served in five."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 6, "4"))
        await asyncio.sleep(600)
        world.clusters["west"].apply(pods("web", 3, "4"))
        await asyncio.sleep(300)
        assert pending(world, "west") == 0

    only: dict[str, Any] = {fault: "east"}
    broken = PermanentFaults(**only)
    run_scenario(
        world_spec(machines(6), "east", "west", broken=broken, cycle_seconds=10.0), scenario
    )


def test_other_offerings_are_purchased_while_one_is_sold_out() -> None:
    """The next best is bought at once, and the one that is sold out is seldom tried."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 6, "4"))
        await asyncio.sleep(1200)
        assert pending(world) == 0
        tries = max(times(world, "create-sent", m.id) for m in cheap)
        assert tries <= max_attempts(1200)

    cheap = machines(6, "cheap", **SPECULATIVE, price_per_hour=0.1)
    dear = machines(6, "dear", **SPECULATIVE, instance_type="large")
    broken = PermanentFaults(sold_out=offering_of(cheap[0]))
    run_scenario(world_spec([*cheap, *dear], broken=broken, cycle_seconds=10.0), scenario)
