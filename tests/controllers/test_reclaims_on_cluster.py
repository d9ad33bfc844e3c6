"""Nodes of a real cluster that a shard reclaims."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from bigfleet.api.wellknown import MACHINE_LABEL
from tests.controllers.operator_rig import add_running_pod, budget, operating, reclaim
from tests.support.clusters import add_ready_node, admin, fake_shard, get, namespace, node, pod
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


async def test_a_reclaimed_node_is_cordoned_emptied_within_budgets_and_deleted(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "reclaimed") as where,
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        await add_ready_node(client, "m-full")
        pods = f"/api/v1/namespaces/{where}/pods"
        budgets = f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets"
        await client.create(budgets, budget(2))
        for name in ("a", "b"):
            await add_running_pod(client, pods, name, "m-full")
        shard.order(reclaim("m-full", 60))
        ack = await shard.acks.get()
        assert (ack.instruction_id, ack.nodes_started) == ("i-1", 1)
        assert (await get(client, "/api/v1/nodes/m-full"))["spec"]["unschedulable"]
        await asyncio.sleep(1)
        assert len((await get(client, pods))["items"]) == 2
        await client.delete(f"{budgets}/b")

        async def gone() -> bool:
            return await get(client, "/api/v1/nodes/m-full") is None

        await eventually(gone, "the Node to be emptied and deleted")
        assert (await get(client, pods))["items"] == []


async def test_a_node_that_joined_again_under_its_name_is_not_emptied(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "joined-again") as where,
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets", budget(1))
        await add_ready_node(client, "m-again")
        await add_running_pod(client, pods, "p", "m-again")
        shard.order(reclaim("m-again", 60))
        await shard.acks.get()
        await client.delete("/api/v1/nodes/m-again")
        await client.create("/api/v1/nodes", node("m-again"))
        await client.create(pods, pod("new", "m-again"))
        await client.delete(f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets/b")
        await asyncio.sleep(3)
        new = await get(client, f"{pods}/new")
        assert new is not None
        assert "deletionTimestamp" not in new["metadata"]
        await client.delete("/api/v1/nodes/m-again")


async def test_a_new_operator_goes_on_with_a_reclaim(kubeconfig: dict[str, Path]) -> None:
    until = {"bigfleet.lucy.sh/reclaim-deadline": f"{time.time() + 60:.3f}"}
    annotations = {"kwok.x-k8s.io/node": "fake", **until}
    async with await admin(kubeconfig) as client, fake_shard() as (_, address):
        labels = {MACHINE_LABEL: "m-half"}
        half = node("m-half", labels=labels, annotations=annotations)
        await client.create("/api/v1/nodes", {**half, "spec": {"unschedulable": True}})
        async with operating(kubeconfig, address):

            async def gone() -> bool:
                return await get(client, "/api/v1/nodes/m-half") is None

            await eventually(gone, "the Node to be deleted")


async def test_a_node_that_is_not_there_can_be_reclaimed_at_once(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig),
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        shard.order(reclaim("m-never", 60))
        assert (await shard.acks.get()).nodes_started == 1


async def test_each_session_reports_which_nodes_are_being_drained(
    kubeconfig: dict[str, Path],
) -> None:
    """A shard that lost its disk has no record of drains; the annotated Nodes do."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "being-emptied") as where,
        fake_shard() as (shard, address),
    ):
        pods, budgets = f"/api/v1/namespaces/{where}/pods", "poddisruptionbudgets"
        await client.create(f"/apis/policy/v1/namespaces/{where}/{budgets}", budget(2))
        for name in ("m-emptied", "m-wanted-back"):
            body = node(name, labels={MACHINE_LABEL: name, "kubernetes.io/hostname": name})
            await client.create("/api/v1/nodes", body)
            await add_running_pod(client, pods, f"on-{name}", name)
        async with operating(kubeconfig, address):
            await shard.inquiries.get()
            for name in ("m-emptied", "m-wanted-back"):
                shard.order(reclaim(name, 60))
                await shard.acks.get()
        await client.patch("/api/v1/nodes/m-wanted-back", {"spec": {"unschedulable": False}})
        async with operating(kubeconfig, address):
            told = (await shard.inquiries.get()).drains
        assert [each.machine_id for each in told] == ["m-emptied"]
        assert 30 < told[0].seconds_left <= 60
        await client.delete(f"/apis/policy/v1/namespaces/{where}/{budgets}/b")
        for name in ("m-emptied", "m-wanted-back"):
            await client.delete(f"/api/v1/nodes/{name}")
