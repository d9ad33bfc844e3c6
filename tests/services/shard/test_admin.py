"""`bigfleet fleet remove-cluster`: the machines of a removed cluster return to the fleet."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import transport
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.commands.cluster_removal import remove
from bigfleet.model.errors import BigFleetError, UnknownObject
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig
from bigfleet.services.provider.role import host_for, serving
from tests.support.fake_coordinator import FakeCoordinator, rack
from tests.support.shard_process import ShardProcess, decides, shard_process
from tests.support.shard_rig import FakeOperator, Rig, cycles, machine, need, shard, states
from tests.support.waiting import eventually

_S = MachineState


async def removes(address: str, cluster: str = "east", **flags: Any) -> str:
    """What the command prints."""
    given = {"cluster": cluster, "shard": [address], "force": False, "dry_run": False} | flags
    return await remove(argparse.Namespace(**given), None)


async def with_two_at_work(rig: Rig) -> FakeOperator:
    """An operator of cluster east whose two machines have joined."""
    operator = await rig.operator()
    await operator.roll_up(need(2))
    for name in ("m-1", "m-2"):
        await operator.receives_state(name, _S.CONFIGURED)
    return operator


def drained(provider: MemoryProvider) -> list[str]:
    """The machines that were ordered to be drained."""
    return sorted(name for call, name in states(provider.orders) if call == "DRAIN")


async def refused_as_removed(rig: Rig, cluster: str = "east") -> bool:
    """Whether an operator that greets hears that its cluster is being removed."""
    client = rig.stranger(cluster)
    await client.say(hello=shard_pb2.Hello(cluster_id=cluster))
    _, why = await client.ends()
    return f"cluster {cluster} is being removed from the fleet" in why


async def test_the_machines_of_a_cluster_that_is_gone_serve_others(tmp_path: Path) -> None:
    """They are drained without anybody's being asked, and its demand buys nothing any more."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path, cluster_absence_seconds=0.0) as rig:
        east = await with_two_at_work(rig)
        await east.leave()
        await cycles(rig, 2)
        plan = await removes(rig.address, dry_run=True)
        assert plan.startswith("would remove cluster east: 2 machines in use drained without")
        await cycles(rig, 2)
        assert drained(provider) == []
        said = await removes(rig.address)
        assert "accepted: cluster east is being removed: 2 machines in use" in said
        assert "1 need deleted" in said
        west = await rig.operator("west")
        await west.roll_up(need(2))
        for name in ("m-1", "m-2"):
            await west.receives_state(name, _S.CONFIGURED)
        assert drained(provider) == ["m-1", "m-2"]
        await eventually(lambda: "east" not in rig.shard.cycle.removals)
        with pytest.raises(UnknownObject, match="cluster east: this shard does not serve it"):
            await removes(rig.address)
    assert json.loads((tmp_path / "removals.json").read_text()) == []


async def test_a_cluster_whose_operator_may_live_is_removed_by_force_only(tmp_path: Path) -> None:
    """The refusal names what speaks against it, and how many machines there are."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        east = await with_two_at_work(rig)
        with pytest.raises(
            BigFleetError, match=r"east: its operator is connected\. Its 2 configured machines"
        ):
            await removes(rig.address)
        await east.leave()
        await cycles(rig, 2)
        with pytest.raises(BigFleetError, match="counts as absent after 600 s"):
            await removes(rig.address)
        await cycles(rig, 2)
        assert drained(provider) == []
        east = await rig.operator()
        assert "2 machines in use" in await removes(rig.address, force=True)
        await east.ends()
        await eventually(lambda: drained(provider) == ["m-1", "m-2"])
        assert not any(m.reclaim_instruction.instruction_id for m in east.received)


async def test_a_cluster_that_is_being_removed_is_served_only_once_that_has_ended(
    tmp_path: Path,
) -> None:
    """Its operator hears why, and then is that of a new cluster, which has nothing yet."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path, cluster_absence_seconds=0.0) as rig:
        await (await with_two_at_work(rig)).leave()
        await cycles(rig, 2)
        provider.auto_finish = False
        await removes(rig.address)
        await eventually(lambda: drained(provider) == ["m-1", "m-2"])
        assert await refused_as_removed(rig)
        assert "2 more in transition" in await removes(rig.address)
        provider.finish("m-1")
        await cycles(rig, 3)
        assert await refused_as_removed(rig)
        provider.finish("m-2")
        await eventually(lambda: "east" not in rig.shard.cycle.removals)
        provider.auto_finish = True
        east = await rig.operator()
        await east.roll_up(need(1))
        await east.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))
        await cycles(rig, 3)
        assert drained(provider) == ["m-1", "m-2"], "each once, and none of its new life"


async def test_what_is_bought_for_a_cluster_that_is_gone_is_given_to_others(
    tmp_path: Path,
) -> None:
    """A machine that was being created for it is free once it is there; nobody buys another."""
    provider = MemoryProvider([machine(f"m-{n}", _S.SPECULATIVE) for n in range(3)])
    async with shard(provider, tmp_path, cluster_absence_seconds=0.0) as rig:
        east = await rig.operator()
        await east.roll_up(need(1))
        await eventually(lambda: len(provider.orders) == 1)
        await east.leave()
        await cycles(rig, 2)
        assert "1 reserved ones released" in await removes(rig.address)
        assert await refused_as_removed(rig)
        (_, bought), *more = states(provider.orders)
        assert more == []
        provider.finish(bought)
        await eventually(lambda: "east" not in rig.shard.cycle.removals)
        west = await rig.operator("west")
        await west.roll_up(need(1))
        await eventually(lambda: bought in provider.blobs)
        assert states(provider.orders) == [("CREATE", bought), ("CONFIGURE", bought)]


async def test_an_eviction_that_was_under_way_is_not_waited_for(tmp_path: Path) -> None:
    """The operator died while it emptied a Node; the machine goes back all the same."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path, cluster_absence_seconds=0.0) as rig:
        east = await with_two_at_work(rig)
        east.helpful = False
        await east.roll_up(need(1))
        await east.receives(lambda m: m.reclaim_instruction.instruction_id != "")
        await east.leave()
        await cycles(rig, 2)
        await removes(rig.address)
        await eventually(lambda: drained(provider) == ["m-1", "m-2"])
        await eventually(lambda: "east" not in rig.shard.cycle.removals)
        assert len(rig.shard.cycle.evictions) == 0


async def test_a_fixed_machine_that_has_failed_keeps_no_removal_waiting(tmp_path: Path) -> None:
    """It is nobody's to delete, and is free once it is repaired."""
    fixed = [machine(f"m-{n}", capacity_type=CapacityType.BARE_METAL) for n in (1, 2)]
    provider = MemoryProvider(fixed, auto_finish=True)
    async with shard(provider, tmp_path, cluster_absence_seconds=0.0) as rig:
        await (await with_two_at_work(rig)).leave()
        provider.fail("m-1", "its disk broke")
        await cycles(rig, 3)
        await removes(rig.address)
        await eventually(lambda: "east" not in rig.shard.cycle.removals)
        assert drained(provider) == ["m-2"]


async def test_a_coordinator_forgets_the_cluster_when_its_machines_have_gone(
    tmp_path: Path,
) -> None:
    """The shard says how many are left, and drops the cluster once the report has arrived."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    decides = FakeCoordinator()
    async with shard(provider, tmp_path, coordinator=decides, cluster_absence_seconds=0.0) as rig:
        await eventually(lambda: decides.owners.get(rack("rack-1")) == "shard-0")
        await (await with_two_at_work(rig)).leave()
        await cycles(rig, 2)
        decides.reachable = False
        await removes(rig.address)
        await eventually(lambda: drained(provider) == ["m-1", "m-2"])
        await cycles(rig, 5)
        assert await refused_as_removed(rig), "nobody has told the coordinator yet"
        decides.reachable = True
        await eventually(lambda: "east" not in rig.shard.cycle.removals)
        told = [(each.cluster_id, each.machines_left) for each in decides.removals]
        assert told[-1] == ("east", 0)
        held = json.loads((tmp_path / "ownership.json").read_text())
        assert held["clusters"] == []


async def test_a_shard_that_has_lost_its_disk_removes_a_cluster_without_an_operator(
    tmp_path: Path,
) -> None:
    """Only the coordinator knows then that the shard serves it. About a cluster that nobody serves
    asking changes nothing.
    """
    decides = FakeCoordinator()
    decides.clusters["east"] = "shard-0"
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path, coordinator=decides, cluster_absence_seconds=0.0) as rig:
        await eventually(lambda: decides.owners.get(rack("rack-1")) == "shard-0")
        await cycles(rig, 2)
        assert "accepted: cluster east is being removed" in await removes(rig.address)
        await eventually(lambda: any(each.cluster_id == "east" for each in decides.removals))
        with pytest.raises(UnknownObject, match="cluster west: this shard does not serve it"):
            await removes(rig.address, "west")
    assert "west" not in decides.clusters


def _provider(folder: Path) -> ProviderConfig:
    lines = [
        {
            "id": f"m-{number}", "state": "IDLE", "instance_type": "m6i.large", "zone": "a",
            "capacity_type": "BARE_METAL", "price_per_hour": 0.1, "interruption_probability": 0,
            "resources": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        }
        for number in range(3)
    ]  # fmt: skip
    (folder / "inventory.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ProviderConfig(
        listen_port=0,
        observe_port=0,
        state_directory=folder / "provider",
        inventory_file=folder / "inventory.jsonl",
        host_kubeconfigs=None,
        latencies=Latencies(drain=Latency(3.0, 3.0)),
    )


async def _operator(process: ShardProcess, cluster: str) -> None:
    """Comes, gets three machines, and is gone."""
    async with transport.channel(process.address) as channel:
        operator = FakeOperator(ShardStub(channel).Session(None), cluster, helpful=True)
        await operator.say(hello=shard_pb2.Hello(cluster_id=cluster))
        await operator.roll_up(need(3))
        await eventually(
            lambda: sum(m.node_state_update.state == 5 for m in operator.received) == 3
        )
        await operator.leave()


async def test_a_removal_is_carried_through_though_the_shard_is_killed(tmp_path: Path) -> None:
    """With SIGKILL right after the answer; the next life goes on without being told again."""
    given, state = _provider(tmp_path), tmp_path / "shard"
    more = ("--cycle", "0.2", "--operator-absence-timeout", "0")
    async with serving(given, host_for(given)) as provider:
        address = f"127.0.0.1:{provider.port}"
        async with shard_process(address, state, *more) as first:
            await decides(first)
            await _operator(first, "east")
            await decides(first, 5)
            assert "3 machines in use" in await removes(first.address)
            await first.kill()
        async with shard_process(address, state, *more) as second:
            await decides(second)
            await eventually(lambda: (state / "removals.json").read_text() == "[]")
            await _operator(second, "west")
