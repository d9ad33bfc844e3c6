"""A shard that joins a fleet of real parts: coordinator, provider, and the shards before it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bigfleet.adapters.coordinator.grpc import GrpcCoordinator
from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.services.coordinator import role as coordinator_role
from bigfleet.services.coordinator.config import CoordinatorConfig
from bigfleet.services.provider.role import serving as provider_serving
from controlplane.request import Binaries
from tests.support.providers import settings, write_inventory
from tests.support.shard_rig import Rig, need, shard
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_TYPES, _RACKS, _MACHINES = ("m6", "g6"), 6, 3


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it, with two types of machines in six racks each."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    write_inventory(
        path / "inventory.jsonl",
        *(
            {
                "id": f"{kind}-{rack}-{number}",
                "instance_type": kind,
                "zone": "a",
                "rack": f"{kind}-{rack}",
                "resources": size,
            }
            for kind in _TYPES
            for rack in range(_RACKS)
            for number in range(_MACHINES)
        ),
    )
    yield path
    shutil.rmtree(path)


def racks_of(rig: Rig) -> Counter[str]:
    """How many racks of each type a shard owns."""
    assert rig.shard.coordination is not None
    domains = rig.shard.coordination.ownership.record.domains
    return Counter(domain.value.rpartition("-")[0] for domain in domains)


async def test_a_third_shard_gets_its_part_of_each_type_while_others_serve(
    binaries: Binaries, directory: Path
) -> None:
    """The racks with the fewest machines in use move, one at a time in a fleet as small as this."""
    config = CoordinatorConfig("a", 0, 0, directory / "a", binaries.etcd, {}, expected_shards=2)
    async with AsyncExitStack() as closing:
        provider = await closing.enter_async_context(
            provider_serving(settings(directory), InstantHost())
        )
        leads = await closing.enter_async_context(coordinator_role.serving(config))
        closing.push_async_callback(leads.leadership.resign)

        async def joins(name: str) -> Rig:
            at = f"127.0.0.1:{provider.port}"
            remote = GrpcProvider(at)
            closing.push_async_callback(remote.close)
            link = GrpcCoordinator([f"127.0.0.1:{leads.port}"])
            rig = shard({at: remote}, directory / name, None, link, shard_id=name)
            return await closing.enter_async_context(rig)

        first = [await joins("s1"), await joins("s2")]
        halves = Counter(dict.fromkeys(_TYPES, _RACKS // 2))
        await eventually(lambda: all(racks_of(rig) == halves for rig in first))
        operator = first[0].stranger("east")
        await operator.say(hello=shard_pb2.Hello(cluster_id="east"))
        said = await operator.receives(lambda m: m.HasField("redirect") or m.ack.echo == "east")
        serving = first[1] if said.HasField("redirect") else first[0]
        if serving is first[1]:
            operator = await serving.operator("east")
        await operator.roll_up(need(3))
        inventory = serving.shard.inventory
        await eventually(lambda: len(list(inventory.bound_to("east"))) == 3)

        third = await joins("s3")
        thirds = Counter(dict.fromkeys(_TYPES, _RACKS // 3))
        await eventually(lambda: all(racks_of(rig) == thirds for rig in (*first, third)))
