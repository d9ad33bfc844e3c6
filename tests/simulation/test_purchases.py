"""The check of purchases detects needless ones."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bigfleet.engine import decide
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.machine import CapacityType, MachineEvent, MachineState
from bigfleet.model.need import NeedKey, sizes_of
from bigfleet.ports.provider import Fence
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.fleet import claims
from bigfleet.services.shard.fleet.assignment import bought_for
from bigfleet.services.shard.records.wants import Wants
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.convergence import convergence_problems, is_wasteful
from bigfleet.simulation.invariants.purchases import Purchases, unneeded_machines
from bigfleet.simulation.runtime.faults import Delays, FaultInjector, FaultRates
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.runtime.permanent_faults import PermanentFaults
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World, running_world
from tests.engine.engine_rig import checked, demand_of, fleet_of, need_of, speculative
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


@pytest.mark.parametrize(("bound", "reported"), [(19, 2), (20, 1), (60, 1)])
def test_a_cluster_may_keep_as_many_empty_machines_as_its_margin(bound: int, reported: int) -> None:
    """A twentieth of its pods may need them, and no more than a twentieth of its Nodes."""
    elastic = {"state": MachineState.CONFIGURED, "cluster": "east", "disruption_cost": math.nan}
    specs = [speculative(f"m-00{n}", **elastic) for n in range(2)]
    fleet = fleet_of(specs)
    demand, raw = demand_of(fleet, []), [spec.name.encode() for spec in specs]
    inputs = CycleInputs(fleet, raw, Wants(np.empty(0, np.int32), []), demand, 0.0, CycleMemory())
    result = CycleResult(inputs, fleet, demand, [], checked(fleet, demand), (), None)
    east = SimulatedCluster("east", lambda: 0.0)
    for machine in machines(2):
        east.join(machine)
    east.apply(pods("web", bound))
    found = [*unneeded_machines(result, {"east": east}, EngineConfig())]
    assert len(found) == reported


@pytest.mark.parametrize(("cpu", "twice"), [(2, False), (4, True)])
def test_a_second_machine_may_be_bought_for_pods_that_the_first_one_cannot_hold(
    cpu: int, twice: bool
) -> None:
    """A need of pods of one and of four CPUs has one on its way for the small pod."""
    need = replace(need_of(1), sizes=sizes_of([({"cpu": 1}, 1), ({"cpu": 4}, 1)]))
    specs = [speculative("m-000", state=MachineState.IDLE, cpu=cpu), speculative("m-001", cpu=8)]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need)])
    decided = checked(fleet, demand)
    unused = np.full(len(specs), NONE, np.int32)
    decided = replace(
        decided,
        actions=[Action(ActionType.PROVISION, 1, 0)],
        claimed_by=unused,
        headroom=frozenset(),
    )
    names, wants = [spec.name.encode() for spec in specs], Wants(unused, [])
    inputs = CycleInputs(fleet, names, wants, demand, 100.0, CycleMemory())
    result = CycleResult(inputs, fleet, demand, [NeedKey("east", *need.key)], decided, (), None)
    first = replace(machines(1)[0], shard_metadata=bought_for("east", need))
    injector = FaultInjector(0, FaultRates(), Delays(), PermanentFaults())
    purchases = Purchases({"east": SimulatedCluster("east", lambda: 0.0)}, injector)
    purchases.on_submitted(Fence("s", 1, 1), first, MachineEvent.CREATE, 10.0)
    problems = [*purchases.duplicate_purchases(result, {"m-000": first}, 100.0)]
    assert problems == ["m-001 is bought for a need of east that m-000 was bought for"] * twice
