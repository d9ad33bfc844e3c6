"""Preemption with evictions under disruption budgets; no victim is chosen twice."""

from __future__ import annotations

import asyncio

import pytest

from bigfleet.engine.decision import ActionType
from bigfleet.model.machine import MachineState
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


def test_critical_pods_displace_batch_pods() -> None:
    """Batch fills the fleet of another cluster; critical pods get just the machines they need, and
    the batch that lost its machines is short, calmly.
    """

    async def scenario(world: World) -> None:
        batch, critical = world.clusters["batch"], world.clusters["critical"]
        batch.apply(pods("batch", 40, priority=100))
        await asyncio.sleep(30)
        assert state_counts(world) == {"CONFIGURED": 10}
        critical.apply(pods("critical", 12, priority=1_000_000))
        await asyncio.sleep(60)
        assert pending(world, "critical") == 0
        assert world.ordered(ActionType.PREEMPT) == 3
        assert (bound(world, "batch"), batch.evicted) == (28, 12)
        quiet_from = len(world.cycles)
        await asyncio.sleep(60)
        assert sum(world.ordered(kind, quiet_from) for kind in ActionType) == 0
        golden(world, "priority_inversion")

    run_scenario(world_spec(machines(10), "batch", "critical"), scenario)


@pytest.mark.parametrize(
    ("priority", "grace"), [(1_000_100, 10), (600_100, 30), (200_100, 120), (1_100, 600)]
)
def test_the_grace_period_depends_on_the_priority_gap(priority: int, grace: int) -> None:
    """The more urgent the preemptor, the less time a victim has to leave."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("batch", 4, priority=100, max_unavailable=1))
        await asyncio.sleep(30)
        world.clusters["west"].apply(pods("urgent", 4, priority=priority))
        await asyncio.sleep(5)
        assert world.shard is not None
        assert world.ordered(ActionType.PREEMPT) == 1
        eviction = world.shard.cycle.evictions.of("m-000")
        assert eviction is not None
        assert (eviction.grace_seconds, eviction.preemptor_priority) == (grace, priority)

    run_scenario(world_spec(machines(1), "east", "west"), scenario)


def test_slow_victims_are_not_chosen_twice() -> None:
    """A disruption budget lets one pod go at a time and nothing has room for it, so the eviction
    lasts for its whole grace: in all that time nobody else is evicted for the same pods.
    """

    async def scenario(world: World) -> None:
        east, west = world.clusters["east"], world.clusters["west"]
        east.apply(pods("batch", 40, priority=100, max_unavailable=1))
        await asyncio.sleep(30)
        west.apply(pods("urgent", 8, priority=200_100))
        await asyncio.sleep(100)
        assert world.ordered(ActionType.PREEMPT) == 2
        assert east.evicted == 1, "the budget holds as long as the grace does"
        await asyncio.sleep(120)
        assert world.ordered(ActionType.PREEMPT) == 2
        assert pending(world, "west") == 0
        assert state_counts(world) == {"CONFIGURED": 10}

    run_scenario(
        world_spec(machines(10), "east", "west", delays=Delays(eviction=(1.0, 2.0))), scenario
    )


def test_a_restart_during_an_eviction_evicts_no_other_pods() -> None:
    """The next life of the shard knows whom the machine that is being emptied is for."""

    async def scenario(world: World) -> None:
        east, west = world.clusters["east"], world.clusters["west"]
        east.apply(pods("batch", 40, priority=100, max_unavailable=1))
        await asyncio.sleep(30)
        west.apply(pods("urgent", 4, priority=200_100))
        await asyncio.sleep(40)
        await world.kill_shard()
        await asyncio.sleep(5)
        world.start_shard()
        await asyncio.sleep(150)
        assert world.ordered(ActionType.PREEMPT) == 1
        assert pending(world, "west") == 0

    run_scenario(world_spec(machines(10), "east", "west"), scenario)


def test_idle_and_surplus_machines_are_used_before_preemption() -> None:
    """Preemption is the last resort."""

    async def scenario(world: World) -> None:
        east, west = world.clusters["east"], world.clusters["west"]
        east.apply(pods("batch", 40, priority=100))
        await asyncio.sleep(30)
        east.apply(pods("batch", 32, priority=100))
        await asyncio.sleep(2)
        west.apply(pods("urgent", 8, priority=1_000_000))
        await asyncio.sleep(60)
        assert world.ordered(ActionType.PREEMPT) == 0
        assert pending(world, "west") == 0

    run_scenario(world_spec(machines(10), "east", "west"), scenario)
