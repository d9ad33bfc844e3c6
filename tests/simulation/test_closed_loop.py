"""The closed loop: pods, roll-ups, decisions, machines, evictions."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from bigfleet.engine.decision import ActionType
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.simulation.runtime.faults import Delays
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    RACK,
    TYPE,
    ZONE,
    bound,
    machines,
    pending,
    pods,
    run_scenario,
    state_counts,
    world_spec,
)

_S = MachineState
SLOW = Latencies(create=Latency(30.0, 30.0), configure=Latency(3.0, 3.0))


def acted(world: World, since: int = 0) -> int:
    """Actions of all kinds since that cycle."""
    return sum(world.ordered(kind, since) for kind in ActionType)


async def churn(world: World, seconds: int, per_second: int = 1) -> None:
    """Delete that many pods a second, drawn from all; their controllers recreate them."""
    rng = random.Random(7)
    for _ in range(seconds):
        for cluster in world.clusters.values():
            for pod in rng.sample(sorted(cluster.pods.values(), key=lambda p: p.name), per_second):
                cluster.evict(pod)
        await asyncio.sleep(1.0)


def test_a_steady_load_converges_to_the_exact_fleet() -> None:
    """300 cycles under churn: the last 100 order nothing, all pods are bound, none is idle."""

    async def scenario(world: World) -> None:
        for cluster in world.clusters.values():
            cluster.apply(pods("web", 61, "500m", selector={ZONE: ("b",)}))
            cluster.apply(pods("api", 22, "1500m", selector={ZONE: ("a",)}))
        await churn(world, 200)
        quiet_from = len(world.cycles)
        await churn(world, 100)
        assert acted(world, quiet_from) == 0
        await asyncio.sleep(2)
        for name in world.clusters:
            assert pending(world, name) == 0
        exact = 3 * (math.ceil(61 / 8) + math.ceil(22 / 2))
        assert state_counts(world)["CONFIGURED"] == exact
        assert len(world.cycles) >= 300

    fleet = [*machines(40), *machines(40, "s", _S.SPECULATIVE, zone="b")]
    run_scenario(world_spec(fleet, "east", "west", "north"), scenario)


@pytest.mark.parametrize("managed", [False, True])
def test_only_what_is_recreated_elsewhere_is_moved_when_a_load_shrinks(managed: bool) -> None:
    """Pods with a controller gather on what they and a reserve of 5 % need; bare pods, which nobody
    would recreate, all stay, and with them every machine that has one.
    """

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        for number in range(60):
            cluster.apply(pods(f"job-{number}", 4, managed=managed))
        await asyncio.sleep(30)
        for number in range(0, 60, 2):
            cluster.apply(pods(f"job-{number}", 2, managed=managed))
        await asyncio.sleep(600)
        assert bound(world) == 180
        if managed:
            assert state_counts(world)["CONFIGURED"] == math.ceil(180 * 1.05 / 4)
        else:
            assert cluster.evicted == 0
            assert all(cluster.pods_on(node) for node in cluster.nodes)

    slowly = {"reclaim_cap_fraction": 0.1, "reclaim_hold_seconds": 0.0}
    run_scenario(world_spec(machines(60), engine=slowly), scenario)


def test_nothing_moves_after_the_first_fill() -> None:
    """With one request per pod, whether it is bound or not, demand stays as it is."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 120))
        await asyncio.sleep(60)
        reclaims, boots = world.ordered(ActionType.RECLAIM), world.ordered(ActionType.BOOTSTRAP)
        assert (reclaims, boots) == (0, 30)

    hasty = {"reclaim_hold_seconds": 0.0}
    run_scenario(world_spec(machines(60), engine=hasty), scenario)


def test_a_stock_out_is_a_stable_shortfall() -> None:
    """The shortfall is reported in every cycle and changes nothing."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 100))
        world.clusters["east"].apply(pods("db", 9, "4", same_key=RACK))
        await asyncio.sleep(60)
        quiet_from = len(world.cycles)
        await churn(world, 60)
        assert acted(world, quiet_from) == 0
        assert {c.shortfalls for c in world.cycles[quiet_from:]} == {2}

    fleet = [m for r in range(4) for m in machines(4, f"r{r}", rack=f"r{r}")]
    run_scenario(world_spec(fleet), scenario)


def test_scattered_racks_do_not_move_gangs() -> None:
    """Gangs over several machines, racks of many sizes: once placed, they stay."""

    async def scenario(world: World) -> None:
        for number in range(12):
            world.clusters["east"].apply(pods(f"gang-{number}", 2 + number % 3, "4", same_key=RACK))
        await asyncio.sleep(60)
        quiet_from = len(world.cycles)
        await churn(world, 60)
        assert acted(world, quiet_from) == 0

    fleet = [m for r in range(9) for m in machines(4 + r % 3, f"r{r}", rack=f"r{r}")]
    run_scenario(world_spec(fleet), scenario)


def test_a_gang_that_fits_nowhere_is_a_stable_shortfall() -> None:
    """Eight machines over racks of four: one rack's worth is bound, the rest is short and asks for
    nothing more, and its neighbours notice nothing.
    """

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("big", 8, "4", same_key=RACK))
        world.clusters["east"].apply(pods("web", 16))
        await asyncio.sleep(60)
        quiet_from = len(world.cycles)
        await asyncio.sleep(300)
        assert acted(world, quiet_from) == 0
        cluster = world.clusters["east"]
        placed = [p for p in cluster.pods.values() if p.node and p.workload.name == "big"]
        assert len(placed) == 4
        assert pending(world) == 4
        assert world.cycles[-1].shortfalls == 1

    fleet = [m for r in range(3) for m in machines(4, f"r{r}", rack=f"r{r}")]
    run_scenario(world_spec(fleet), scenario)


def test_a_cordoned_machine_is_replaced_and_released_once_it_is_empty() -> None:
    """A Node that somebody cordoned counts for what still runs there, and no more."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 16))
        await asyncio.sleep(30)
        cluster.cordon("m-001")
        boots = world.ordered(ActionType.BOOTSTRAP)
        await asyncio.sleep(60)
        assert world.ordered(ActionType.BOOTSTRAP) == boots
        for pod in cluster.pods_on("m-001"):
            cluster.evict(pod)
        await asyncio.sleep(60)
        assert pending(world) == 0
        assert world.ordered(ActionType.BOOTSTRAP) - boots == 1
        assert "m-001" not in cluster.nodes
        quiet_from = len(world.cycles)
        await asyncio.sleep(60)
        assert acted(world, quiet_from) == 0
        assert world.cycles[-1].shortfalls == 0

    run_scenario(world_spec(machines(8), request_additional=False), scenario)


def test_a_machine_whose_node_was_deleted_is_released_and_replaced() -> None:
    """The operator reports it, since it would be paid for and counted for ever."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 16))
        await asyncio.sleep(30)
        cluster.leave("m-001")
        await asyncio.sleep(60)
        assert pending(world) == 0
        assert world.ordered(ActionType.RECLAIM) == 1
        assert state_counts(world) == {"IDLE": 4, "CONFIGURED": 4}
        assert set(cluster.nodes) == {m.id for m in world.in_state(MachineState.CONFIGURED)}

    run_scenario(world_spec(machines(8), request_additional=False), scenario)


def test_gangs_on_shared_racks_settle_while_machines_boot() -> None:
    """Machines take seconds to come, and kube-scheduler, which binds pods one by one, tears gangs
    that a count would keep together: what then waits gets a machine more, and after that there is
    silence.
    """

    async def scenario(world: World) -> None:
        for number in range(10):
            world.clusters["east"].apply(pods(f"gang-{number}", 3, "4", same_key=RACK))
            await asyncio.sleep(2)
        world.clusters["east"].apply(pods("web", 20))
        await asyncio.sleep(120)
        quiet_from = len(world.cycles)
        await asyncio.sleep(120)
        assert acted(world, quiet_from) == 0
        assert pending(world) == 0

    fleet = [m for r in range(8) for m in machines(7, f"r{r}", _S.SPECULATIVE, rack=f"r{r}",
             capacity_type=CapacityType.ON_DEMAND)]  # fmt: skip
    run_scenario(world_spec(fleet, latencies=SLOW, delays=Delays(boot=(2.0, 3.0))), scenario)


def test_surplus_machines_are_released_and_not_reacquired() -> None:
    """Reclaimed machines are held; then the elastic ones go, the others stay; none is rebought."""

    async def scenario(world: World) -> None:
        cluster = world.clusters["east"]
        cluster.apply(pods("web", 40))
        await asyncio.sleep(60)
        cluster.apply(pods("web", 8))
        await asyncio.sleep(50)
        assert state_counts(world) == {"IDLE": 8, "CONFIGURED": 2}
        bought = world.ordered(ActionType.PROVISION)
        await asyncio.sleep(300)
        assert state_counts(world) == {"SPECULATIVE": 6, "IDLE": 2, "CONFIGURED": 2}
        assert world.ordered(ActionType.PROVISION) == bought
        quiet_from = len(world.cycles)
        await asyncio.sleep(60)
        assert acted(world, quiet_from) == 0

    fleet = [
        *machines(4, "own"),
        *machines(6, "rented", _S.SPECULATIVE, capacity_type=CapacityType.ON_DEMAND,
                  price_per_hour=2.0),
    ]  # fmt: skip
    holds = {"idle_hold_seconds": {CapacityType.ON_DEMAND: 90.0}}
    run_scenario(world_spec(fleet, engine=holds), scenario)


def test_one_loss_costs_one_machine() -> None:
    """One lost machine is replaced by one, however long machines take to boot."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 40))
        await asyncio.sleep(120)
        before = world.ordered(ActionType.PROVISION)
        await world.provider.lose(world.in_state(_S.CONFIGURED)[0].id)
        await asyncio.sleep(120)
        assert world.ordered(ActionType.PROVISION) - before == 1
        assert world.ordered(ActionType.RECLAIM) == 0
        assert pending(world) == 0

    fleet = machines(30, "s", _S.SPECULATIVE, capacity_type=CapacityType.SPOT)
    run_scenario(world_spec(fleet, latencies=SLOW, delays=Delays(boot=(3.0, 3.0))), scenario)


def test_steady_losses_bring_replacements_and_no_reclaims() -> None:
    """A loss every four seconds for two minutes: few reclaims per loss, and rest afterwards."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 80))
        await asyncio.sleep(120)
        for _ in range(30):
            await world.provider.lose(world.in_state(_S.CONFIGURED)[0].id)
            await asyncio.sleep(4)
        assert world.ordered(ActionType.RECLAIM) <= 0.25 * 30
        assert await world.converges(30, 300)
        assert pending(world) == 0

    fleet = machines(60, "s", _S.SPECULATIVE, capacity_type=CapacityType.SPOT)
    holds = {"idle_hold_seconds": {CapacityType.SPOT: 20.0}}
    run_scenario(
        world_spec(fleet, latencies=SLOW, delays=Delays(boot=(3.0, 3.0)), engine=holds), scenario
    )


def test_a_burst_of_losses_reclaims_nothing() -> None:
    """Half of the machines are lost at once and replaced, and nothing else moves."""

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 40))
        await asyncio.sleep(120)
        before = world.ordered(ActionType.PROVISION)
        for machine in world.in_state(_S.CONFIGURED)[:5]:
            await world.provider.lose(machine.id)
        await asyncio.sleep(120)
        assert world.ordered(ActionType.PROVISION) - before == 5
        assert world.ordered(ActionType.RECLAIM) == 0
        assert pending(world) == 0

    fleet = machines(30, "s", _S.SPECULATIVE, capacity_type=CapacityType.SPOT)
    run_scenario(world_spec(fleet, latencies=SLOW, delays=Delays(boot=(3.0, 3.0))), scenario)


@pytest.mark.parametrize(
    ("penalty", "goes_to"), [("0", "spot"), ("2", "spot"), ("4", "on-demand"), ("8", "on-demand")]
)
def test_interruption_penalty_routes_demand(penalty: str, goes_to: str) -> None:
    """1.0 + 0.05 x penalty against 0.3 + 0.3 x penalty: the dearer an interruption, the more it
    pays to be safe; the two cross at 2.8.
    """

    async def scenario(world: World) -> None:
        world.clusters["east"].apply(pods("web", 12, interruption_penalty=penalty))
        await asyncio.sleep(30)
        assert pending(world) == 0
        assert {m.instance_type for m in world.in_state(_S.CONFIGURED)} == {goes_to}

    fleet = [
        *machines(5, "o", _S.SPECULATIVE, capacity_type=CapacityType.ON_DEMAND,
                  interruption_probability=0.05, instance_type="on-demand"),
        *machines(5, "s", _S.SPECULATIVE, capacity_type=CapacityType.SPOT, price_per_hour=0.3,
                  interruption_probability=0.3, instance_type="spot"),
    ]  # fmt: skip
    run_scenario(world_spec(fleet), scenario)


_LONG = pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("cycles", [600, _LONG])
def test_a_long_run_leaks_nothing(cycles: int) -> None:
    """Churn, scaling and losses all along: then as many machines as at the start, none failed, none
    in between, and nobody remembers what is over.
    """

    async def scenario(world: World) -> None:
        rng = random.Random(3)
        for round_ in range(cycles // 10):
            for cluster in world.clusters.values():
                replicas = rng.randint(0, 40)
                cluster.apply(pods("web", replicas))
                cluster.apply(pods("gpu", replicas // 8, selector={TYPE: ("small",)}))
            if round_ % 7 == 0 and (at_work := world.in_state(_S.CONFIGURED)):
                await world.provider.lose(at_work[0].id)
            await asyncio.sleep(10)
        assert await world.converges(60, 600)
        assert len(world.cycles) >= cycles
        left = state_counts(world)
        assert sum(left.values()) == 40
        assert left.keys() <= {"SPECULATIVE", "CONFIGURED"}
        assert world.shard is not None
        cycle = world.shard.cycle
        assert (len(cycle.orders), len(cycle.evictions)) == (0, 0)

    fleet = machines(40, "s", _S.SPECULATIVE, capacity_type=CapacityType.SPOT)
    holds = {"idle_hold_seconds": {CapacityType.SPOT: 20.0}}
    run_scenario(world_spec(fleet, "east", "west", engine=holds), scenario)
