"""Machines that are being created are for somebody, whoever asks: what they are for outlives the
shard that ordered them, and goes with their domain.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio

from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import transport
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.machine import MachineState
from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig
from bigfleet.services.provider.role import host_for, serving
from tests.support.fake_coordinator import FakeCoordinator, rack
from tests.support.listed import listed
from tests.support.shard_process import ShardProcess, shard_process
from tests.support.shard_process import decides as decides_once
from tests.support.shard_rig import FakeOperator, cycles, machine, need, shard, states
from tests.support.waiting import eventually

_S = MachineState


def shop(count: int = 6) -> MemoryProvider:
    """So many machines for sale; what is ordered ends when the test says so."""
    return MemoryProvider([machine(f"m-{number}", _S.SPECULATIVE) for number in range(count)])


def bought(provider: MemoryProvider) -> list[str]:
    """The machines that were ordered."""
    return [machine_id for call, machine_id in states(provider.orders) if call == "CREATE"]


async def test_a_restarted_shard_does_not_buy_again_what_is_being_created(tmp_path: Path) -> None:
    """Its former life asked for three machines, and was killed before they were there."""
    provider, wanted = shop(), need(3, priority=7, group="default/app=db")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        await eventually(lambda: len(bought(provider)) == 3)
    first = bought(provider)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        await cycles(rig, 10)
        assert bought(provider) == first
        view = rig.shard.inventory.view(first[0])
        assert view is not None
        assert view.need == ("east", wanted.profile.fingerprint, "default/app=db")
        for machine_id in first:
            provider.finish(machine_id)
        await eventually(lambda: len(provider.blobs) == 3)
    assert sorted(provider.blobs) == sorted(first)


async def test_a_machine_that_is_created_after_a_restart_is_not_given_to_another_need(
    tmp_path: Path,
) -> None:
    """What it is for is known before any operator has said anything; others buy their own."""
    provider = shop()
    async with shard(provider, tmp_path) as rig:
        await (await rig.operator("east")).roll_up(need())
        await eventually(lambda: len(bought(provider)) == 1)
    async with shard(provider, tmp_path) as rig:
        await (await rig.operator("west")).roll_up(need())
        await (await rig.operator("east")).roll_up(need())
        await eventually(lambda: len(bought(provider)) == 2)
        await cycles(rig, 5)
        for machine_id in bought(provider):
            provider.finish(machine_id)
        await eventually(lambda: len(provider.blobs) == 2)
        await cycles(rig, 5)
    assert len(bought(provider)) == 2


async def test_a_domain_passes_on_once_what_is_created_there_has_joined(tmp_path: Path) -> None:
    """It would be bought again by its former owner, and be one too many for the new one."""
    racks = {f"m-{n}": {"topology.bigfleet/rack": "r-1" if n < 2 else "r-2"} for n in range(4)}
    provider = MemoryProvider(
        [machine(name, _S.SPECULATIVE, labels=labels) for name, labels in racks.items()]
    )
    decides = FakeCoordinator()
    async with shard(provider, tmp_path, coordinator=decides) as rig:
        await eventually(lambda: len(decides.owners) == 2)
        await eventually(lambda: len(rig.shard.inventory.owned().nonzero()[0]) == 4)
        operator = await rig.operator()
        await operator.roll_up(need(1))
        await eventually(lambda: len(bought(provider)) == 1)
        (first,) = bought(provider)
        number = decides.take(rack(racks[first]["topology.bigfleet/rack"]))
        await cycles(rig, 10)
        assert bought(provider) == [first]
        assert not decides.accepted(number)
        provider.finish(first)
        await eventually(lambda: first in provider.blobs)
        await eventually(lambda: decides.accepted(number))
        await cycles(rig, 5)
    assert states(provider.orders) == [("CREATE", first), ("CONFIGURE", first)]


async def test_a_restart_gives_up_no_domain_before_it_knows_what_is_created_there(
    tmp_path: Path,
) -> None:
    """It was told while a machine was being created, and was killed before it could answer."""
    provider, decides = shop(1), FakeCoordinator()
    async with shard(provider, tmp_path, coordinator=decides) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(1))
        await eventually(lambda: bought(provider) == ["m-0"])
        number = decides.take(rack("rack-1"))
        await eventually(
            lambda: bool(rig.shard.cycle.inventory.has_reserved_machine_in(rack("rack-1")))
        )
        held = (tmp_path / "ownership.json").read_bytes
        await eventually(lambda: number.encode() in held())
    async with shard(provider, tmp_path, coordinator=decides) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(1))
        await cycles(rig, 5)
        assert not decides.accepted(number)
        provider.finish("m-0")
        await eventually(lambda: decides.accepted(number))
    assert "m-0" in provider.blobs


def _provider(folder: Path) -> ProviderConfig:
    lines = [
        {
            "id": f"m-{number}", "state": "SPECULATIVE", "instance_type": "m6i.large", "zone": "a",
            "capacity_type": "ON_DEMAND", "price_per_hour": 0.1, "interruption_probability": 0,
            "resources": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        }
        for number in range(6)
    ]  # fmt: skip
    (folder / "inventory.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ProviderConfig(
        listen_port=0,
        observe_port=0,
        state_directory=folder / "provider",
        inventory_file=folder / "inventory.jsonl",
        host_kubeconfigs=None,
        latencies=Latencies(create=Latency(6.0, 6.0)),
    )


async def _asks(process: ShardProcess, channel: grpc.aio.Channel) -> FakeOperator:
    await decides_once(process)
    operator = FakeOperator(ShardStub(channel).Session(None), "east", helpful=True)
    await operator.say(hello=shard_pb2.Hello(cluster_id="east"))
    await operator.roll_up(need(2))
    return operator


async def test_a_shard_killed_between_the_order_and_the_machine_buys_no_other(
    tmp_path: Path,
) -> None:
    """A real process, by SIGKILL while its machines are being created: there are never more."""
    given, state = _provider(tmp_path), tmp_path / "shard"
    async with AsyncExitStack() as closing:
        serves = await closing.enter_async_context(serving(given, host_for(given)))
        address = f"127.0.0.1:{serves.port}"
        asks = GrpcProvider(address)
        closing.push_async_callback(asks.close)

        async def there() -> dict[MachineState, int]:
            found = await listed(asks)
            return Counter(m.state for m in found if m.state is not _S.SPECULATIVE)

        async with (
            shard_process(address, state, "--cycle", "0.2") as first,
            transport.channel(first.address) as channel,
        ):
            operator = await _asks(first, channel)
            async with asyncio.timeout(60):
                while await there() != {_S.CREATING: 2}:
                    assert (await there()).keys() <= {_S.CREATING}
            await first.kill()
            await operator.leave()
        async with (
            shard_process(address, state, "--cycle", "0.2") as second,
            transport.channel(second.address) as channel,
        ):
            operator = await _asks(second, channel)
            async with asyncio.timeout(60):
                while (seen := await there()) != {_S.CONFIGURED: 2}:
                    assert sum(seen.values()) == 2
            await decides_once(second, 10)
            assert await there() == {_S.CONFIGURED: 2}
            await operator.leave()
