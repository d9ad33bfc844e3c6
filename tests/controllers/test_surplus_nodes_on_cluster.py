"""Nodes of surplus machines repel new pods softly, on a real control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionInquiry, ShardMessage
from bigfleet.controllers.operator import surplus_nodes
from bigfleet.kube.client import KubeClient
from tests.controllers.operator_rig import operating
from tests.support.clusters import (
    FakeShard,
    admin,
    fake_shard,
    get,
    namespace,
    node,
    pod,
    ready_nodes,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

TAINT = {"key": "bigfleet.lucy.sh/surplus", "effect": "PreferNoSchedule"}
OTHER = {"key": "example.com/other", "value": "x", "effect": "NoSchedule"}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is not named again has no taint eight seconds later."""
    monkeypatch.setattr(surplus_nodes, "_KEPT_SECONDS", 8.0)
    monkeypatch.setattr(surplus_nodes, "_CHECK_SECONDS", 0.2)


def sized(name: str, cpu: str, node_name: str | None = None) -> dict[str, Any]:
    """A pod that requests `cpu`."""
    made = pod(name, node_name)
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return made


def name_surplus(shard: FakeShard, *machines: str) -> None:
    inquiry = DisruptionInquiry(inquiry_id="q", max_machines=1, surplus_machine_ids=machines)
    shard.order(ShardMessage(disruption_inquiry=inquiry))


async def until_taints(client: KubeClient, name: str, *taints: dict[str, str]) -> None:
    async def has_them() -> bool:
        found = await get(client, f"/api/v1/nodes/{name}")
        return list(found["spec"].get("taints", [])) == list(taints)

    await eventually(has_them, f"Node {name} to have the taints {taints}")


async def node_of(client: KubeClient, pods: str, name: str) -> Any:
    """The Node of a pod, once it is bound."""

    async def where() -> Any:
        return (await get(client, f"{pods}/{name}"))["spec"].get("nodeName")

    await eventually(where, f"pod {name} to be bound")
    return await where()


async def test_new_pods_prefer_other_nodes_and_use_it_when_they_are_full(
    kubeconfig: dict[str, Path],
) -> None:
    """The emptiest Node would get each of them."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "surplus") as where,
        ready_nodes(client, "full", "empty", cpu="4"),
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(pods, sized("first", "2", "full"))
        await shard.hellos.get()
        name_surplus(shard, "empty")
        await until_taints(client, "empty", TAINT)
        await client.create(pods, sized("second", "1"))
        assert await node_of(client, pods, "second") == "full"
        await client.create(pods, sized("third", "2"))
        assert await node_of(client, pods, "third") == "empty"


@pytest.mark.usefixtures("soon")
async def test_the_taint_goes_when_the_machine_is_not_named_any_more(
    kubeconfig: dict[str, Path],
) -> None:
    """Other taints stay as they are, and Nodes that are not the fleet's are left alone."""
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "n-1", "n-2"),
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        await client.create("/api/v1/nodes", node("foreign"))
        try:
            await client.patch("/api/v1/nodes/n-1", {"spec": {"taints": [OTHER]}})
            await shard.hellos.get()
            name_surplus(shard, "n-1", "n-2", "foreign", "unknown")
            await until_taints(client, "n-1", OTHER, TAINT)
            await until_taints(client, "n-2", TAINT)
            await until_taints(client, "n-1", OTHER)
            await until_taints(client, "n-2")
            after = (await get(client, "/api/v1/nodes/foreign"))["spec"]
            assert TAINT not in after.get("taints", [])
        finally:
            await client.delete("/api/v1/nodes/foreign")


@pytest.mark.usefixtures("soon")
async def test_the_next_operator_removes_the_taints_of_the_one_before(
    kubeconfig: dict[str, Path],
) -> None:
    async with await admin(kubeconfig) as client, ready_nodes(client, "n-1"):
        await client.patch("/api/v1/nodes/n-1", {"spec": {"taints": [TAINT]}})
        async with fake_shard() as (_, address), operating(kubeconfig, address):
            await until_taints(client, "n-1")
