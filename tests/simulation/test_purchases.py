"""The check of purchases detects needless ones."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from bigfleet.engine import decide
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.services.shard.fleet import claims
from bigfleet.simulation.convergence import convergence_problems, is_wasteful
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World, running_world
from tests.simulation.simulation_rig import machines, pods, run_scenario, state_counts, world_spec

ELASTIC: dict[str, Any] = {
    "state": MachineState.SPECULATIVE,
    "capacity_type": CapacityType.ON_DEMAND,
}


def slow_to_buy() -> WorldSpec:
    """Each machine is there a minute after it was bought."""
    return world_spec(machines(4, **ELASTIC), latencies=Latencies(create=Latency(60.0, 60.0)))


async def restart_while_buying(world: World) -> None:
    """The shard dies when it has bought one machine, and comes again."""
    world.clusters["east"].apply(pods("web", 4))
    await asyncio.sleep(25)
    await world.kill_shard()
    world.start_shard()
    await asyncio.sleep(100)


def test_a_restart_during_a_purchase_purchases_nothing_twice() -> None:
    """The provider stores the need of each purchase."""

    async def scenario(world: World) -> None:
        await restart_while_buying(world)
        assert state_counts(world) == {"SPECULATIVE": 3, "CONFIGURED": 1}
        assert world.purchases.bought == 1 <= world.purchases.upper_bound()

    run_scenario(slow_to_buy(), scenario)


def test_a_shard_that_loses_the_need_of_a_purchase_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With that bug planted it buys the same again."""

    async def scenario() -> list[str]:
        async with running_world(slow_to_buy()) as world:
            await restart_while_buying(world)
            return world.safety.violations

    monkeypatch.setattr(claims, "from_metadata", lambda *_: None)
    assert any("was bought for" in sentence for sentence in run(scenario))


def test_an_unneeded_machine_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that releases nothing is billed for idle machines."""

    async def scenario() -> list[str]:
        holds = {"idle_hold_seconds": {CapacityType.ON_DEMAND: 20.0}}
        async with running_world(world_spec(machines(2, **ELASTIC), engine=holds)) as world:
            cluster = world.clusters["east"]
            cluster.apply(pods("web", 4))
            await asyncio.sleep(60)
            cluster.apply(pods("web", 0))
            await asyncio.sleep(300)
            assert is_wasteful(world)
            return [*convergence_problems(world, True)]

    monkeypatch.setattr(decide, "machines_to_delete", lambda *_: np.empty(0, np.intp))
    assert any("no need counts it" in sentence for sentence in run(scenario))
