"""What a world buys is watched, and the watch can fail."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from bigfleet.engine import decide
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.services.provider.settings import Latencies, Latency
from bigfleet.services.shard import purpose
from bigfleet.simulation.loop import run
from bigfleet.simulation.plan import Plan
from bigfleet.simulation.rest import is_wasteful, unrest
from bigfleet.simulation.world import World, worlds
from tests.simulation.simulation_rig import census, machines, plan, play, pods

ELASTIC: dict[str, Any] = {
    "state": MachineState.SPECULATIVE,
    "capacity_type": CapacityType.ON_DEMAND,
}


def slow_to_buy() -> Plan:
    """Each machine is there a minute after it was bought."""
    return plan(machines(4, **ELASTIC), latencies=Latencies(create=Latency(60.0, 60.0)))


async def restart_while_buying(world: World) -> None:
    """The shard dies when it has bought one machine, and comes again."""
    world.clusters["east"].apply(pods("web", 4))
    await asyncio.sleep(25)
    await world.kill_shard()
    world.start_shard()
    await asyncio.sleep(100)


def test_a_shard_that_restarts_while_it_buys_buys_nothing_twice() -> None:
    """What was bought for whom is kept by the provider."""

    async def scene(world: World) -> None:
        await restart_while_buying(world)
        assert census(world) == {"SPECULATIVE": 3, "CONFIGURED": 1}
        assert world.money.bought == 1 <= world.money.most()

    play(slow_to_buy(), scene)


def test_a_shard_that_forgets_for_whom_it_bought_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With that bug planted it buys the same again."""

    async def scene() -> list[str]:
        async with worlds(slow_to_buy()) as world:
            await restart_while_buying(world)
            return world.safety.violations

    monkeypatch.setattr(purpose, "from_metadata", lambda *_: None)
    assert any("was bought for" in sentence for sentence in run(scene))


def test_a_machine_that_is_kept_for_nobody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that gives nothing back goes on paying, however long it rests."""

    async def scene() -> list[str]:
        holds = {"idle_hold_seconds": {CapacityType.ON_DEMAND: 20.0}}
        async with worlds(plan(machines(2, **ELASTIC), engine=holds)) as world:
            cluster = world.clusters["east"]
            cluster.apply(pods("web", 4))
            await asyncio.sleep(60)
            cluster.apply(pods("web", 0))
            await asyncio.sleep(300)
            assert is_wasteful(world)
            return [*unrest(world, True)]

    monkeypatch.setattr(decide, "releases", lambda *_: np.empty(0, np.intp))
    assert any("nobody needs it" in sentence for sentence in run(scene))
