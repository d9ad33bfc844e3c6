"""Roll-ups that suddenly drop nearly all demand, at a running shard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import transport
from bigfleet.api.v1alpha1.shard_pb2 import Hello
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.group import group_of_text
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, sizes_of
from bigfleet.services.provider.config import Latencies, ProviderConfig
from bigfleet.services.provider.role import host_for, serving
from tests.support.full_disk import full_disk
from tests.support.shard_process import ShardProcess, decides, shard_process
from tests.support.shard_rig import FakeOperator, Rig, cycles, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState
_PODS = 12


def pods(count: int, group: str = "") -> Need:
    """So many pods in one need, of which all fit on one machine."""
    return Need(need().profile, sizes_of([({"cpu": 100}, count)]), group_of_text(group))


def at_work(number: int = 1) -> MemoryProvider:
    """Machines in east's service, and an idle one."""
    busy = [machine(f"m-{n:02}", _S.CONFIGURED, "east") for n in range(number)]
    return MemoryProvider([*busy, machine("spare")], auto_finish=True)


def given_back(provider: MemoryProvider) -> list[str]:
    """The machines that were drained."""
    return [machine_id for order, machine_id, _ in provider.orders if order == "DRAIN"]


async def test_the_loss_of_one_need_with_many_pods_is_held(tmp_path: Path) -> None:
    """Neither a decision of its own cluster nor one for another takes its machine meanwhile; once
    three in a row say so it is given back.
    """
    provider = at_work()
    async with shard(provider, tmp_path) as rig:
        east, west = await rig.operator(), await rig.operator("west")
        await east.roll_up(pods(_PODS))
        ack = await east.roll_up()
        assert f"demand fell from {_PODS} pods to 0 pods" in ack.unconfirmed_reductions
        assert not ack.rejected
        await west.roll_up(need(2))
        await eventually(lambda: provider.orders != [])
        await cycles(rig, 5)
        assert given_back(provider) == []
        assert (await east.roll_up()).unconfirmed_reductions
        assert not (await east.roll_up()).unconfirmed_reductions
        await eventually(lambda: given_back(provider) == ["m-00"])


async def test_additions_are_served_while_a_reduction_is_held(tmp_path: Path) -> None:
    provider = at_work()
    async with shard(provider, tmp_path) as rig:
        east = await rig.operator()
        await east.roll_up(pods(40))
        assert (await east.roll_up(need(1, group="new"), pods(2))).unconfirmed_reductions
        await east.receives_state("spare", _S.CONFIGURED)
        await cycles(rig, 5)
        assert given_back(provider) == []


async def test_a_replacement_of_all_needs_is_not_held(tmp_path: Path) -> None:
    """All pods are replaced by as many of another need."""
    async with shard(at_work(), tmp_path) as rig:
        east = await rig.operator()
        await east.roll_up(pods(_PODS, "old"))
        assert not (await east.roll_up(pods(_PODS, "new"))).unconfirmed_reductions


async def test_a_reduction_right_after_a_restart_is_held(tmp_path: Path) -> None:
    """The shard knows from its disk how much was asked for, also where it was killed; when the
    operator is itself again nothing has happened.
    """
    provider = at_work()
    async with shard(provider, tmp_path) as rig:
        await (await rig.operator()).roll_up(pods(_PODS))
        await cycles(rig, 2)
    async with shard(provider, tmp_path) as rig:
        east = await rig.operator()
        assert f"demand fell from {_PODS} pods" in (await east.roll_up()).unconfirmed_reductions
        await cycles(rig, 5)
        assert not (await east.roll_up(pods(_PODS))).unconfirmed_reductions
        await cycles(rig, 5)
    assert provider.orders == []


@pytest.mark.parametrize("left", ["", "{damaged"])
async def test_without_saved_demand_a_shard_counts_machines(tmp_path: Path, left: str) -> None:
    """Each machine in the cluster's service had a pod at least. What is asked for is served."""
    provider = at_work(20)
    if left:
        (tmp_path / "demand.json").write_text(left)
    async with shard(provider, tmp_path) as rig:
        await cycles(rig, 1)
        east = await rig.operator()
        ack = await east.roll_up(need(1, zone="b"))
        assert (
            "an unknown number (the cluster has 20 machines) to 1 pods"
            in ack.unconfirmed_reductions
        )
        assert (await east.roll_up(need(1, group="new", zone="b"))).unconfirmed_reductions
        assert rig.shard.needs.count_of("east") == 2
        await cycles(rig, 5)
        assert provider.orders == []
        assert not (await east.roll_up(need(1, zone="b"))).unconfirmed_reductions
        await eventually(lambda: len(given_back(provider)) == 20)


async def test_a_scale_down_to_zero_takes_effect_after_the_hold(tmp_path: Path) -> None:
    """Its operator says so once and then, having nothing new to say, no more."""
    provider, clock = at_work(), ManualClock()
    async with shard(provider, tmp_path, clock) as rig:
        east = await rig.operator()
        await east.roll_up(pods(_PODS))
        assert (await east.roll_up()).unconfirmed_reductions
        await cycles(rig, 3)
        assert given_back(provider) == []
        clock.advance(30.5)
        await eventually(lambda: given_back(provider) == ["m-00"])
    async with shard(provider, tmp_path, clock) as rig:
        assert not (await (await rig.operator()).roll_up()).unconfirmed_reductions, (
            "it was believed before"
        )


def _provider(folder: Path) -> ProviderConfig:
    line = {
        "id": "m-1",
        "state": "IDLE",
        "instance_type": "m6i.large",
        "zone": "a",
        "capacity_type": "BARE_METAL",
        "price_per_hour": 0.1,
        "interruption_probability": 0,
        "resources": {"cpu": "4", "memory": "8Gi", "pods": "110"},
    }
    (folder / "inventory.jsonl").write_text(json.dumps(line) + "\n")
    return ProviderConfig(
        listen_port=0,
        observe_port=0,
        state_directory=folder / "provider",
        inventory_file=folder / "inventory.jsonl",
        host_kubeconfigs=None,
        latencies=Latencies(),
    )


@asynccontextmanager
async def operator_of(alive: ShardProcess) -> AsyncIterator[FakeOperator]:
    """East's operator at a shard that decides."""
    await decides(alive)
    async with transport.channel(alive.address) as channel:
        operator = FakeOperator(ShardStub(channel).Session(None), "east", helpful=True)
        await operator.say(hello=Hello(cluster_id="east"))
        yield operator
        await operator.leave()


async def test_demand_is_saved_once_a_full_disk_has_room_again(tmp_path: Path) -> None:
    """It decides on while nothing can be written, and writes it once there is room."""
    given, state = _provider(tmp_path), tmp_path / "shard"
    async with serving(given, host_for(given)) as provider:
        address = f"127.0.0.1:{provider.port}"
        async with shard_process(address, state, "--cycle", "0.2") as alive:
            async with operator_of(alive) as east:
                with full_disk(alive.process.pid):
                    await east.roll_up(pods(_PODS))
                    await east.receives_state("m-1", _S.CONFIGURED)
                    assert not (state / "demand.json").exists()
                    assert (await alive.metrics())["bigfleet_shard_demand_not_persisted"] == 1
                await eventually((state / "demand.json").exists)
            await alive.kill()
        async with shard_process(address, state) as alive, operator_of(alive) as east:
            assert f"demand fell from {_PODS} pods" in (await east.roll_up()).unconfirmed_reductions


async def test_a_quiet_fleet_does_not_write_its_demand(tmp_path: Path) -> None:
    """Only what has changed by more than twice is worth a write."""
    async with shard(at_work(), tmp_path) as rig:
        east = await rig.operator()

        async def written(count: int) -> dict[str, int]:
            await east.roll_up(pods(count))
            await _kept(rig)
            kept: dict[str, int] = json.loads((tmp_path / "demand.json").read_text())
            return kept

        assert await written(20) == {"east": 20}
        assert await written(40) == {"east": 20}
        assert await written(41) == {"east": 41}


async def _kept(rig: Rig) -> None:
    """Any cycle that had begun when this was called has ended, and a whole one after it."""
    await cycles(rig, 2)
