"""The parts of BigFleet that run apart to tell what each of them costs."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from loaddriver.sizing.inventory import InventoryMachine, save_inventory
from tests.support.clusters import admin, get, namespace, pod, requests_path
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_NODE = "part-1"


async def test_parts_request_what_pods_need_and_no_shard_hears_it(
    kubeconfig: dict[str, Path], tmp_path: Path
) -> None:
    """The machines of the fleet are Nodes already, and each pod has its CapacityRequest."""
    size = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    machine = InventoryMachine(
        id=_NODE, state="IDLE", instance_type="m6i.large", zone="a", rack="r", price_per_hour=0.1,
        capacity_type="ON_DEMAND", interruption_probability=0.0, resources=size, labels={"a": "b"},
    )  # fmt: skip
    save_inventory([machine], tmp_path / "fleet.jsonl")
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig["admin"]),
        "SCALETEST_CLUSTER": "c1",
        "SCALETEST_FLEET": str(tmp_path / "fleet.jsonl"),
    }
    start = partial(
        asyncio.create_subprocess_exec, sys.executable, "-m", "tests.peers.parts", env=environment
    )
    running = await start("--part", "pod-controller", "--part", "operator")

    async def ready() -> bool:
        return await (await start("--ready")).wait() == 0

    async with await admin(kubeconfig) as client:

        async def requested() -> bool:
            return bool((await get(client, requests_path("parts")))["items"])

        try:
            async with namespace(client, "parts", until_gone=True) as where:
                await eventually(ready, "the Node to be Ready")
                await client.create(f"/api/v1/namespaces/{where}/pods", pod("p"))
                await eventually(requested, "the pod's CapacityRequest")
                assert running.returncode is None
        finally:
            running.terminate()
            await client.delete(f"/api/v1/nodes/{_NODE}")
            assert await running.wait() == 0
