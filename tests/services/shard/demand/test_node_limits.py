"""Machines whose Nodes take no new pods, as operators report them to a live shard."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.limit_codec import LimitReason, limits_from_wire, limits_to_wire
from bigfleet.api.v1alpha1.capacity_pb2 import NodeLimit
from bigfleet.commands import shard_queries
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, profile, sizes_of_aggregate
from bigfleet.observe import metrics
from tests.support.shard_rig import FakeOperator, Rig, cycles, machine, need, shard, short

_S = MachineState


def pods(count: int) -> Need:
    """So many pods of one CPU."""
    return Need(profile((), (), 0, 1, 1), sizes_of_aggregate({"cpu": count * 1000}, {"cpu": 1000}))


def cordoned(machine_id: str = "m-1", cpu: str = "3", **more: object) -> NodeLimit:
    """Pods there hold so much CPU."""
    limit = NodeLimit(machine_id=machine_id, reason="Cordoned", message="kubectl cordon")
    limit.resources.update({"cpu": cpu} if cpu else {})
    limit.MergeFrom(NodeLimit(**more))  # type: ignore[arg-type]
    return limit


def broken(machine_id: str = "m-1", reason: str = "Missing") -> NodeLimit:
    """Nothing runs there any more."""
    return NodeLimit(machine_id=machine_id, reason=reason, broken=True)


def provider() -> MemoryProvider:
    """One machine at work for the cluster, of four CPUs, and one idle."""
    machines = [machine("m-1", _S.CONFIGURED, "east"), machine("m-2")]
    return MemoryProvider(machines, auto_finish=True)


async def reclaimed(operator: FakeOperator, machine_id: str) -> int:
    """Wait for the instruction to empty the machine; the grace that it gives."""
    found = await operator.receives(lambda m: machine_id in m.reclaim_instruction.nodes)
    return found.reclaim_instruction.grace_period_seconds


def limited(reason: LimitReason) -> float:
    value = metrics.REGISTRY.get_sample_value(
        "bigfleet_shard_limited_machines", {"reason": reason.value}
    )
    assert value is not None
    return value


async def serves(rig: Rig, machine_id: str) -> int:
    """How many pods the last decision counts on the machine."""
    await cycles(rig, 2)
    result = rig.shard.cycle.latest
    assert result is not None
    placed = result.decision.placements
    rows = [result.machine_id(row) == machine_id for row in placed.row.tolist()]
    return sum(n for n, here in zip(placed.pods.tolist(), rows, strict=True) if here)


async def test_a_pod_more_than_a_cordoned_machine_runs_gets_another_machine(
    tmp_path: Path,
) -> None:
    """What runs there stays counted there, so that just one machine is fetched."""
    async with shard(provider(), tmp_path) as rig:
        operator = await rig.operator()
        operator.reports = False
        await operator.roll_up(pods(3), limits=[cordoned()])
        assert await serves(rig, "m-1") == 3
        assert not short(rig)
        await operator.roll_up(pods(4), limits=[cordoned()])
        await operator.receives_state("m-2", _S.CONFIGURED)
        assert (await serves(rig, "m-1"), await serves(rig, "m-2")) == (3, 1)
        assert limited(LimitReason.CORDONED) == 1


async def test_without_the_limit_the_machine_counts_in_full_again(tmp_path: Path) -> None:
    """A roll-up replaces all limits that its cluster reported before."""
    async with shard(MemoryProvider([machine("m-1", _S.CONFIGURED, "east")]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(pods(4), limits=[cordoned()])
        await cycles(rig, 2)
        assert short(rig)
        await operator.roll_up(pods(4))
        assert await serves(rig, "m-1") == 4
        assert limited(LimitReason.CORDONED) == 0


async def test_a_broken_machine_is_replaced_and_given_back_after_a_short_grace(
    tmp_path: Path,
) -> None:
    """Nobody is asked what that would disturb: its pods cannot end in an orderly way."""
    async with shard(provider(), tmp_path) as rig:
        operator = await rig.operator()
        operator.reports = False
        await operator.roll_up(pods(3), limits=[broken()])
        assert await reclaimed(operator, "m-1") == 30
        await operator.receives_state("m-2", _S.CONFIGURED)
        await operator.receives_state("m-1", _S.IDLE)
        gone = next(m.reclaim_instruction for m in operator.received if m.reclaim_instruction.nodes)
        assert gone.HasField("max_cost")
        assert gone.max_cost == 0  # one that works again by now is kept


async def test_a_limit_of_a_machine_that_is_not_the_clusters_changes_nothing(
    tmp_path: Path,
) -> None:
    """Nobody can speak ill of a neighbour's machine, nor of one that is idle."""
    machines = [machine("m-1", _S.CONFIGURED, "east"), machine("m-2")]
    async with shard(MemoryProvider(machines, auto_finish=True), tmp_path) as rig:
        operator, neighbour = await rig.operator(), await rig.operator("west")
        await neighbour.roll_up(limits=[broken("m-1"), broken("m-2"), broken("m-3")])
        await operator.roll_up(pods(4), limits=[broken("m-2")])
        assert await serves(rig, "m-1") == 4
        assert limited(LimitReason.MISSING) == 0
        await operator.roll_up(pods(8))
        await operator.receives_state("m-2", _S.CONFIGURED)
        assert await serves(rig, "m-2") == 4


async def test_a_limit_without_sense_is_left_out_by_itself(tmp_path: Path) -> None:
    """The needs, and the other limits, are taken over."""
    before = metrics.REGISTRY.get_sample_value("bigfleet_shard_node_limits_rejected_total") or 0
    async with shard(provider(), tmp_path) as rig:
        operator = await rig.operator()
        operator.reports = False
        odd = [cordoned("", cpu="1"), cordoned("m-2", cpu="many"), cordoned(cpu="-1")]
        answer = await operator.roll_up(pods(4), limits=[*odd, cordoned(), cordoned(cpu="4")])
        assert not answer.rejected
        await operator.receives_state("m-2", _S.CONFIGURED)
        assert (await serves(rig, "m-1"), await serves(rig, "m-2")) == (3, 1)
    after = metrics.REGISTRY.get_sample_value("bigfleet_shard_node_limits_rejected_total")
    assert after == before + 4


async def test_an_emptied_cordoned_machine_goes_while_demand_grows_and_others_are_full(
    tmp_path: Path,
) -> None:
    """It is no supply: neither growth nor the reserve of the others is a reason to pay for it."""
    machines = [machine(f"m-{n}", _S.CONFIGURED, "east") for n in range(8)]
    hold = EngineConfig(reclaim_hold_seconds=2.0)
    provider = MemoryProvider(machines, auto_finish=True)
    async with shard(provider, tmp_path, engine=hold) as rig:
        operator = await rig.operator()
        growing = asyncio.create_task(reclaimed(operator, "m-0"))
        for count in itertools.count(28):
            await operator.roll_up(pods(count), limits=[cordoned("m-0", cpu="")])
            await asyncio.wait([growing], timeout=0.2)
            if growing.done():
                break
        assert count >= 30
        await operator.receives_state("m-0", _S.IDLE)


async def test_what_limits_a_machine_is_said_of_it(tmp_path: Path) -> None:
    """`bigfleet why --machine` gives reason, message and what still counts there."""
    machines = [machine(f"m-{n}", _S.CONFIGURED, "east") for n in (1, 2)]
    async with shard(MemoryProvider(machines), tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need(2), limits=[cordoned(), broken("m-2", "NotReady")])
        await cycles(rig, 2)
        held = await shard_queries.ask(rig.address, shard_queries.machine_query("m-1"))
        gone = await shard_queries.ask(rig.address, shard_queries.machine_query("m-2"))
    text = "Its Node is Cordoned (kubectl cordon): only what runs there is counted, cpu 3."
    assert text in held.as_text()
    assert "Its Node is NotReady: it is not counted and will be released." in gone.as_text()


@pytest.mark.parametrize("reason", ["Cordoned", "Tainted", "NotReady", "Missing"])
def test_a_limit_survives_the_wire(reason: str) -> None:
    """What an operator says is what the shard reads, to the last unit."""
    message = cordoned(reason=reason, broken=True)
    message.resources.update({"memory": "1536Mi", "pods": "3", "nothing": "0"})
    limits, problems = limits_from_wire([message], "cluster c")
    assert not problems
    assert limits["m-1"].amounts == (("cpu", 3000), ("memory", 1536 * 1024), ("pods", 3000))
    assert limits_from_wire(list(limits_to_wire([limits["m-1"]])), "c") == (limits, [])


def test_a_reason_that_is_not_known_yet_is_no_fault() -> None:
    """A newer operator may have more of them; as a metric's label they must stay few."""
    limits, problems = limits_from_wire([cordoned(reason="Overheated")], "cluster c")
    assert (limits["m-1"].reason, list(problems)) == (LimitReason.OTHER, [])


async def test_when_a_limited_machine_came_to_serve_less_is_known(tmp_path: Path) -> None:
    """A Node that was drained by hand is empty soon after: then its operator is asked about it."""
    async with shard(provider(), tmp_path) as rig:
        operator, limits = await rig.operator(), rig.shard.needs.limits
        operator.reports = False
        await operator.roll_up(pods(3), limits=[cordoned(cpu="2")])
        first = limits.fell_seconds["east"]
        await operator.roll_up(pods(2), limits=[cordoned(cpu="2")])
        await operator.roll_up(pods(2), limits=[cordoned(cpu="3")])
        assert limits.fell_seconds["east"] == first
        await operator.roll_up(pods(2), limits=[cordoned(cpu="")])
        emptied = limits.fell_seconds["east"]
        assert emptied > first
        await operator.roll_up(pods(2))
        assert limits.fell_seconds["east"] == emptied
        assert not limits.exist_in("east")
