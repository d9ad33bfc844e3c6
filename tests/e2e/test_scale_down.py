"""Unneeded capacity is released, and reclaimed capacity is replaced."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.kube.client import KubeClient
from tests.support.scaletest import (
    PATIENCE_SECONDS,
    ROOT,
    deployment,
    own_second,
    until_named,
    with_tempdir,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NAMESPACE = "way-out"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = "/api/v1/nodes"
REQUESTS = f"/apis/bigfleet.lucy.sh/v1alpha1/namespaces/{NAMESPACE}/capacityrequests"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
# A hundred of the pods fill one machine of the type.
INSTANCE_TYPE = "m6i.large"


@asynccontextmanager
async def held_up(results: Path, *overrides: str) -> AsyncIterator[KubeClient]:
    """A smoke fleet without load, as an administrator sees its cluster. Its machine lock is its
    own, as it measures nothing.
    """
    tempdir = results / "tmp"
    tempdir.mkdir()
    settings = [part for override in overrides for part in ("--set", override)]
    command = [sys.executable, "-m", "loaddriver", "hold", "smoke", "--results", str(results)]
    with own_second():
        child = await asyncio.create_subprocess_exec(
            *(*command, *settings),
            cwd=ROOT,
            env=with_tempdir(tempdir),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        until_named(results, lambda: child.returncode is not None)
    try:
        path = await asyncio.wait_for(_kubeconfig(child), PATIENCE_SECONDS)
        async with await KubeClient.from_kubeconfig(path) as admin:
            await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            yield admin
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        await child.stderr.read()
        assert await child.wait() == 0


async def _kubeconfig(child: asyncio.subprocess.Process) -> Path:
    assert child.stderr is not None
    lines = []
    found = None
    async for line in child.stderr:
        lines.append(line.decode())
        found = found or re.search(r"--kubeconfig (\S+)", lines[-1])
        if lines[-1].startswith("up;") and found:
            return Path(found[1])
    raise AssertionError("".join(lines))


async def items(admin: KubeClient, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(await admin.get(path))["items"]
    return found


async def nodes(admin: KubeClient) -> set[str]:
    return {node["metadata"]["name"] for node in await items(admin, NODES)}


async def placed(admin: KubeClient, app: str) -> list[dict[str, Any]]:
    """Pods of `app` that are bound to a Node which is there, and not terminating."""
    there = await nodes(admin)
    return [
        pod
        for pod in await items(admin, PODS)
        if pod["metadata"]["labels"]["app"] == app
        and pod["spec"].get("nodeName") in there
        and "deletionTimestamp" not in pod["metadata"]
    ]


async def test_the_fleet_shrinks_to_what_the_remaining_workload_needs(tmp_path: Path) -> None:
    """With half the workload deleted a machine is drained and its Node goes; the other workload
    is whole again on the machines that are left, and none of those is taken.
    """
    async with held_up(tmp_path, "bigfleet.reclaimHoldSeconds=3") as admin:

        async def all_placed() -> bool:
            return len(await placed(admin, "stays")) + len(await placed(admin, "goes")) == 160

        async def one_node_less() -> bool:
            return len(await nodes(admin)) == 1 and len(await placed(admin, "stays")) == 80

        await admin.create(DEPLOYMENTS, deployment("stays", 80, INSTANCE_TYPE))
        await admin.create(DEPLOYMENTS, deployment("goes", 80, INSTANCE_TYPE))
        await eventually(all_placed, "160 pods have a place", seconds=PATIENCE_SECONDS)
        assert len(await nodes(admin)) >= 2
        await admin.delete(f"{DEPLOYMENTS}/goes", {"propagationPolicy": "Background"})
        await eventually(one_node_less, "one node is left with 80 pods", seconds=PATIENCE_SECONDS)
        (last,) = await nodes(admin)
        await asyncio.sleep(8)
        assert await nodes(admin) == {last}

        async def as_many_requests() -> bool:
            """Those of pods that went are the garbage collector's, which takes its time."""
            return len(await items(admin, REQUESTS)) == 80

        await eventually(as_many_requests, "80 requests are left", seconds=PATIENCE_SECONDS)


async def test_a_reclaimed_spot_machine_is_replaced_and_its_pods_run_again(
    tmp_path: Path,
) -> None:
    """Nodes of reclaimed machines are removed, and their pods run on other Nodes."""
    only_spot = ("fleet.idleFactor=0", "fleet.speculativeFactor=0", "fleet.spotFactor=8")
    moving = ("fleet.spotMarketHoursPerSecond=2", "fleet.latency.createSeconds=0")
    async with held_up(tmp_path, *only_spot, *moving) as admin:
        await admin.create(DEPLOYMENTS, deployment("web", 30, INSTANCE_TYPE))
        seen: set[str] = set()

        async def replaced() -> bool:
            there = await nodes(admin)
            seen.update(there)
            return bool(seen - there) and len(await placed(admin, "web")) == 30

        await eventually(
            replaced, "30 pods have a place although a machine was lost", seconds=PATIENCE_SECONDS
        )
