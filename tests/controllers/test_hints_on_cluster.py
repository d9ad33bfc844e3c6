"""Hints of a shard at available capacity, as objects on a real API server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.provider_pb2 import Resources
from bigfleet.api.v1alpha1.shard_pb2 import AvailableCapacityUpdate, ShardMessage
from bigfleet.controllers.operator import available_capacity
from bigfleet.controllers.operator.available_capacity import availability_name
from tests.controllers.operator_rig import operating
from tests.support.clusters import admin, fake_shard, get
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


async def test_a_hint_of_the_shard_becomes_an_object(kubeconfig: dict[str, Path]) -> None:
    """And the next one replaces it, also when nothing is available any more."""
    update = AvailableCapacityUpdate(
        supersedes_key="capacity:x",
        resources=Resources(resources={"cpu": "4"}),
        available_count=2,
        confidence=AvailableCapacityUpdate.HIGH,
        cost_per_hour=0.1,
    )
    path = f"{GROUP_VERSION}/availablecapacities/{availability_name('capacity:x')}"
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        shard.order(ShardMessage(available_capacity=update))

        async def published(availability: str) -> bool:
            found = await get(client, path)
            return found is not None and found["spec"]["availability"] == availability

        await eventually(lambda: published("High"), "the hint")
        nothing = AvailableCapacityUpdate(
            supersedes_key="capacity:x", confidence=AvailableCapacityUpdate.NONE
        )
        shard.order(ShardMessage(available_capacity=nothing))
        await eventually(lambda: published("None"), "the hint that there is nothing left")


def _hint(key: str) -> ShardMessage:
    confidence = AvailableCapacityUpdate.NONE
    return ShardMessage(
        available_capacity=AvailableCapacityUpdate(supersedes_key=key, confidence=confidence)
    )


async def test_a_hint_is_deleted_when_it_is_withdrawn_or_not_repeated(
    kubeconfig: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each profile that was ever requested would leave an object behind."""
    monkeypatch.setattr(available_capacity, "RESEND_TIMEOUT_SECONDS", 2.0)
    path = f"{GROUP_VERSION}/availablecapacities"
    async with await admin(kubeconfig) as client, fake_shard() as (shard, address):

        async def there(*keys: str) -> bool:
            found = {item["metadata"]["name"] for item in (await get(client, path))["items"]}
            wanted = {availability_name(f"capacity:{key}") for key in "abc"}
            return found & wanted == {availability_name(f"capacity:{key}") for key in keys}

        async with operating(kubeconfig, address):
            await shard.hellos.get()
            for key in "abc":
                shard.order(_hint(f"capacity:{key}"))
            await eventually(partial(there, "a", "b", "c"), "three hints")
            withdrawn = AvailableCapacityUpdate(supersedes_key="capacity:a", withdrawn=True)
            shard.order(ShardMessage(available_capacity=withdrawn))
            await eventually(partial(there, "b", "c"), "the withdrawn one to go")
        body = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "AvailableCapacity"}
        spec = {"availability": "None", "availableCount": 0, "cost": "0", "resources": {}}
        await client.create(path, {**body, "metadata": {"name": "by-hand"}, "spec": spec})
        async with operating(kubeconfig, address):
            await shard.hellos.get()  # else the session before this one may take the hint
            shard.order(_hint("capacity:b"))
            await eventually(partial(there, "b"), "the one that nobody repeated to go")
        assert await get(client, f"{path}/by-hand") is not None
        await client.delete(path)
