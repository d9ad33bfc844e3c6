"""What the operator sends of a real API server's requests and DaemonSets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from tests.controllers.operator_rig import operating, rollup_with
from tests.support.clusters import (
    FakeShard,
    admin,
    fake_shard,
    get,
    namespace,
    pod,
    request,
    requests_path,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


async def test_requests_become_a_rollup_and_are_acknowledged_once_it_is_accepted(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "rolled-up") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        await client.create(path, request("early"))
        shard.rejected = "for the test"
        async with operating(kubeconfig, address):
            assert await shard.hellos.get() == "c"
            await rollup_with(shard, "1")
            for number in range(3):
                await client.create(path, request(f"late-{number}"))
            await rollup_with(shard, "4")
            found = (await get(client, path))["items"]
            assert not any("phase" in r.get("status", {}) for r in found)
            shard.rejected = ""

            async def all_acknowledged() -> bool:
                items = (await get(client, path))["items"]
                return all(
                    i.get("status", {}).get("phase") == "Acknowledged"
                    and len(i["status"]["acknowledgedAt"]) == len("2026-01-01T00:00:00.000000Z")
                    for i in items
                )

            await eventually(all_acknowledged, "the acknowledgements")
            await client.delete(path)
            await rollup_with(shard, None)


async def test_after_a_lost_session_the_whole_demand_is_sent_again(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "sent-again") as where,
        fake_shard() as (shard, address),
    ):
        await client.create(requests_path(where), request("r"))
        async with operating(kubeconfig, address, rollup_seconds=60.0):
            await rollup_with(shard, "1")
            shard.hang_up()
            await rollup_with(shard, "1")
        assert shard.hellos.qsize() == 2
        await client.delete(requests_path(where))


def _daemon_set(name: str, cpu: str, **template: Any) -> dict[str, Any]:
    body = pod(name, **template)
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    del body["spec"]["terminationGracePeriodSeconds"]
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": body["spec"]},
        },
    }


async def _rollup_with_overheads(shard: FakeShard, *cpu: str) -> ClusterCapacityNeeds:
    async with asyncio.timeout(90):
        while True:
            rollup = await shard.rollups.get()
            if sorted(o.resources["cpu"] for o in rollup.node_overheads) == sorted(cpu):
                return rollup


async def test_what_daemon_sets_take_is_in_every_roll_up_and_a_change_is_sent_at_once(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "daemons") as where,
        fake_shard() as (shard, address),
    ):
        path = f"/apis/apps/v1/namespaces/{where}/daemonsets"
        tolerates = {"tolerations": [{"operator": "Exists"}]}
        await client.create(path, _daemon_set("agent", "100m", **tolerates))
        async with operating(kubeconfig, address, rollup_seconds=3600.0):
            first = await shard.rollups.get()
            assert [dict(o.resources) for o in first.node_overheads] == [
                {"cpu": "100m", "pods": "1"}
            ]
            await client.create(path, _daemon_set("proxy", "200m", **tolerates))
            await _rollup_with_overheads(shard, "300m")
            gpu = {"nodeSelector": {"gpu": "yes"}}
            await client.create(path, _daemon_set("driver", "1", **gpu))
            await _rollup_with_overheads(shard, "300m", "1")
            for name in ("agent", "proxy", "driver"):
                await client.delete(f"{path}/{name}")
            await _rollup_with_overheads(shard)


async def test_acknowledging_can_be_turned_off(kubeconfig: dict[str, Path]) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "turned-off") as where,
        fake_shard() as (shard, address),
    ):
        await client.create(requests_path(where), request("r"))
        async with operating(kubeconfig, address, acknowledge_per_second=0, rollup_seconds=0.1):
            for _ in range(3):
                await rollup_with(shard, "1")
        [found] = (await get(client, requests_path(where)))["items"]
        assert "status" not in found
        await client.delete(requests_path(where))
