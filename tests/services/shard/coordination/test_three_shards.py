"""Three shards, one coordinator, one real provider, several operators: each machine has one owner.

The provider, the shards and the coordinator's wire are the real ones, on loopback.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest_asyncio

from bigfleet.adapters.coordinator.grpc import GrpcCoordinator
from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.model.domain import Domain
from bigfleet.model.labels import RACK_LABEL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.services.provider import role as provider_role
from bigfleet.services.provider.config import ProviderConfig
from bigfleet.services.provider.store import Store
from tests.support.fake_coordinator import FakeCoordinator, replica, servicer
from tests.support.shard_rig import FakeOperator, Rig, need, shard, short
from tests.support.waiting import eventually

RACKS, PER_RACK, CLUSTERS = 6, 4, 5


def write_inventory(path: Path) -> None:
    """Idle machines of one size, in racks of zone a."""
    with path.open("w") as file:
        for number in range(RACKS * PER_RACK):
            line = {
                "id": f"m-{number}", "state": "IDLE", "instance_type": "m6i.xlarge", "zone": "a",
                "capacity_type": "ON_DEMAND", "price_per_hour": 0.2,
                "interruption_probability": 0.0, "rack": f"r{number // PER_RACK}",
                "resources": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")


class World:
    """All parts; shards can be stopped and started again."""

    def __init__(self, provider: str, coordinator: str, decides: FakeCoordinator, home: Path):
        self.decides, self.home = decides, home
        self._provider, self._coordinator = provider, coordinator
        self.shards: dict[str, Rig] = {}
        self._stacks: dict[str, AsyncExitStack] = {}

    async def start(self, name: str) -> Rig:
        """A shard in its own directory."""
        stack = self._stacks[name] = AsyncExitStack()
        made = shard(
            GrpcProvider(self._provider),
            self.home / name,
            None,
            GrpcCoordinator([self._coordinator]),
            shard_id=name,
        )
        self.shards[name] = await stack.enter_async_context(made)
        return self.shards[name]

    async def share_out(self) -> None:
        """To each shard as many racks, once all have told of them, and the clusters in turn: who
        comes first would get everything.
        """

        def seen() -> set[Domain]:
            return set.intersection(*(self.decides.seen[name] for name in self.shards))

        await eventually(lambda: self.shards.keys() == self.decides.reports.keys())
        await eventually(lambda: len(seen()) == RACKS)
        names = itertools.cycle(self.shards)
        for rack in sorted(seen(), key=str):
            self.decides.give(rack, next(names))
        for cluster in range(CLUSTERS):
            self.decides.clusters[f"c{cluster}"] = next(names)
        evenly = dict.fromkeys(self.shards, RACKS // len(self.shards))
        await eventually(lambda: {n: len(has) for n, has in self.owned().items()} == evenly)

    async def stop(self, name: str) -> None:
        """Its state stays."""
        del self.shards[name]
        await self._stacks.pop(name).aclose()

    async def stop_all(self) -> None:
        """At the end."""
        for name in list(self.shards):
            await self.stop(name)

    async def operator(self, cluster: str) -> tuple[str, FakeOperator]:
        """A session with the shard that serves `cluster`, found as an operator finds it."""
        asked = next(iter(self.shards))
        client = self.shards[asked].stranger(cluster)
        await client.say(hello=shard_pb2.Hello(cluster_id=cluster))
        first = await client.receives(lambda m: m.HasField("redirect") or m.ack.echo == cluster)
        if first.HasField("redirect"):
            asked = first.redirect.shard_id
            client = await self.shards[asked].operator(cluster)
        return asked, client

    def machines(self) -> list[Machine]:
        """As the provider has them on its disk, once it has stopped."""
        store = Store(self.home / "provider")
        try:
            return [record.machine for record in store]
        finally:
            store.close()

    def orderers(self) -> dict[str, set[str]]:
        """Which shards have ever ordered anything for each machine."""
        database = sqlite3.connect(self.home / "provider" / "machines.sqlite")
        by: dict[str, set[str]] = defaultdict(set)
        for shard_id, machine_id in database.execute("SELECT shard_id, machine_id FROM fences"):
            by[machine_id].add(shard_id)
        database.close()
        return by

    def owned(self) -> dict[str, set[Domain]]:
        """What each shard owns."""
        owned: dict[str, set[Domain]] = {}
        for name, rig in self.shards.items():
            assert rig.shard.coordination is not None
            owned[name] = set(rig.shard.coordination.ownership.domains)
        return owned

    def has(self, cluster: str, machines: int) -> bool:
        """Whether every shard that can see it counts so many machines at work in a cluster."""
        return all(
            sum(m.state is MachineState.CONFIGURED for m in rig.shard.inventory.bound_to(cluster))
            == machines
            for rig in self.shards.values()
        )


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Three shards, each with as many racks."""
    async with open_world(tmp_path) as made:
        yield made


@asynccontextmanager
async def open_world(home: Path) -> AsyncIterator[World]:
    """Everything, in `home`."""
    write_inventory(home / "inventory.jsonl")
    settings = ProviderConfig(
        listen_port=0,
        observe_port=0,
        state_directory=home / "provider",
        inventory_file=home / "inventory.jsonl",
        host_kubeconfigs=None,
    )
    decides = FakeCoordinator(gives_domains=False)
    async with (
        provider_role.serving(settings, InstantHost()) as provider,
        replica(servicer(decides)) as coordinator,
    ):
        made = World(f"127.0.0.1:{provider.port}", coordinator, decides, home)
        try:
            for number in range(3):
                await made.start(f"s-{number}")
            await made.share_out()
            yield made
        finally:
            await made.stop_all()


async def test_every_machine_is_ordered_by_its_owner_alone(tmp_path: Path) -> None:
    """Five clusters find their shards and get their machines; one shard dies and comes back with
    what it owned, while the coordinator is away; nothing is ordered by two."""
    async with open_world(tmp_path) as world:
        served = {f"c{n}": await world.operator(f"c{n}") for n in range(CLUSTERS)}
        for cluster, (_, client) in served.items():
            await client.roll_up(need(1))
            await eventually(lambda: world.has(cluster, 1))  # noqa: B023 - awaited at once
        owned = world.owned()
        world.decides.reachable = False
        victim = served["c0"][0]
        await world.stop(victim)
        rig = await world.start(victim)
        assert world.owned() == owned
        again = await rig.operator("c0")
        await again.roll_up(need(2))
        await eventually(lambda: world.has("c0", 2))
    assert all(len(shards) == 1 for shards in world.orderers().values())
    at_work = [m for m in world.machines() if m.state is MachineState.CONFIGURED]
    assert len(at_work) == CLUSTERS + 1
    for machine in at_work:
        (orderer,) = world.orderers()[machine.id]
        assert Domain(RACK_LABEL, machine.labels[RACK_LABEL]) in owned[orderer]


async def test_a_rack_moves_under_load_and_is_never_two_shards(world: World) -> None:
    """Unassigned, given up, assigned: its free machines serve the new owner's clusters, those at
    work stay where they are, and no shard was fenced on the way."""
    first, client = await world.operator("c0")
    await client.roll_up(need(1))
    await eventually(lambda: world.has("c0", 1))
    (bound,) = world.shards[first].shard.inventory.bound_to("c0")
    rack = Domain(RACK_LABEL, bound.machine_class.labels_of(bound.id)[RACK_LABEL])
    other = next(name for name in world.shards if name != first)
    taken = world.decides.take(rack)
    await eventually(lambda: world.decides.accepted(taken))
    world.decides.give(rack, other)
    await eventually(lambda: rack in world.owned()[other])
    world.decides.clusters["c9"] = other
    newcomer = await world.shards[other].operator("c9")
    whole = len(world.owned()[other]) * PER_RACK - 1
    await newcomer.roll_up(need(whole))
    await eventually(lambda: world.has("c9", whole))
    assert world.has("c0", 1)
    assert world.shards[first].shard.inventory.owns(bound.id)
    for rig in world.shards.values():
        assert rig.shard.actuation.fenced == ""
        assert not short(rig)
