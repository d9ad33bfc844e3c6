"""`bigfleet fleet remove-cluster` with a real coordinator, etcd and shards."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.adapters.coordinator.grpc import GrpcCoordinator
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.commands.cluster_removal import remove
from bigfleet.commands.fleet_queries import view
from bigfleet.model.errors import UnknownObject
from bigfleet.model.machine import MachineState
from bigfleet.services.coordinator import role
from bigfleet.services.coordinator.config import CoordinatorConfig
from controlplane.request import Binaries
from tests.support.shard_rig import FakeOperator, Rig, cycles, machine, need, shard, states
from tests.support.waiting import eventually

_S = MachineState


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    yield path
    shutil.rmtree(path)


class Fleet:
    """Two shards of one provider, and their coordinator."""

    def __init__(self, coordinator: str, provider: MemoryProvider, shards: list[Rig]) -> None:
        self.coordinator, self.provider, self.shards = coordinator, provider, shards

    async def operator(self, cluster: str) -> FakeOperator:
        """A session with the shard that serves `cluster`, found as an operator finds it."""
        client = self.shards[0].stranger(cluster)
        await client.say(hello=shard_pb2.Hello(cluster_id=cluster))
        first = await client.receives(lambda m: m.HasField("redirect") or m.ack.echo == cluster)
        if first.HasField("redirect"):
            client = await self.shards[1].operator(cluster)
        return client

    async def remove(self, cluster: str, **flags: Any) -> str:
        """What the command prints."""
        given = {"force": False, "dry_run": False, "shard": None} | flags
        config = argparse.Namespace(cluster=cluster, coordinator=[self.coordinator], **given)
        return await remove(config, None)

    async def clusters(self) -> str:
        """What `fleet clusters` prints."""
        return await view([self.coordinator], None, "clusters", "text")

    async def forgets(self, cluster: str) -> None:
        """Wait until the coordinator lists it no more."""
        async with asyncio.timeout(60):
            while cluster in await self.clusters():  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.1)

    def drained(self) -> list[str]:
        """The machines that were ordered to be drained."""
        return sorted(name for kind, name in states(self.provider.orders) if kind == "DRAIN")


@pytest_asyncio.fixture
async def fleet(binaries: Binaries, directory: Path) -> AsyncIterator[Fleet]:
    """Four idle machines in two racks, and one configured for a cluster that no shard serves."""
    racks = {f"m-{n}": {"topology.bigfleet/rack": f"r{n % 2}"} for n in range(4)}
    machines = [machine(name, labels=labels) for name, labels in racks.items()]
    lost = machine("m-lost", _S.CONFIGURED, "ghost", labels={"topology.bigfleet/rack": "r0"})
    provider = MemoryProvider([*machines, lost], auto_finish=True)
    config = CoordinatorConfig("a", 0, 0, directory / "a", binaries.etcd, {}, expected_shards=2)
    async with AsyncExitStack() as closing:
        leads = await closing.enter_async_context(role.serving(config))
        closing.push_async_callback(leads.leadership.resign)
        address = f"127.0.0.1:{leads.port}"
        shards = [
            await closing.enter_async_context(
                shard(
                    {"127.0.0.1:7770": provider},
                    directory / name,
                    None,
                    GrpcCoordinator([address]),
                    shard_id=name,
                    cluster_absence_seconds=0.0,
                )
            )
            for name in ("s1", "s2")
        ]
        await eventually(lambda: all(s.shard.inventory.owned().any() for s in shards))
        yield Fleet(address, provider, shards)


async def test_a_removed_cluster_is_dropped_by_shard_and_coordinator(fleet: Fleet) -> None:
    """A later cluster with its name is a new one, and inherits nothing."""
    east = await fleet.operator("east")
    await east.roll_up(need(2))
    await eventually(lambda: len(fleet.provider.blobs) == 2)
    await east.leave()
    for each in fleet.shards:
        await cycles(each, 3)
    said = await fleet.remove("east")
    assert said.startswith("accepted: cluster east is being removed: 2 machines in use drained")
    await fleet.forgets("east")
    assert len(fleet.drained()) == 2
    with pytest.raises(UnknownObject, match="cluster east"):
        await fleet.remove("east")
    again = await fleet.operator("east")
    await again.roll_up(need(1))
    await again.receives(lambda m: m.node_state_update.state == int(_S.CONFIGURED))
    assert "east" in await fleet.clusters()
    assert len(fleet.drained()) == 2


async def test_machines_of_a_cluster_that_no_shard_serves_are_released(fleet: Fleet) -> None:
    """Its shard may have been removed: another one is assigned to carry out the removal."""
    assert "ghost" not in await fleet.clusters()
    said = await fleet.remove("ghost")
    assert said.startswith("accepted: cluster ghost is being removed: 1 machine in use drained")
    await fleet.forgets("ghost")
    assert fleet.drained() == ["m-lost"]


async def test_an_unknown_name_is_not_assigned_to_a_shard(fleet: Fleet) -> None:
    """A typo has no effect."""
    with pytest.raises(UnknownObject, match="cluster esat: this shard does not serve it"):
        await fleet.remove("esat")
    assert "esat" not in await fleet.clusters()
