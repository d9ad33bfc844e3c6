"""All of BigFleet is down under load: running pods continue, and it recovers by itself.

STATIC_SECONDS is the length of the outage (default 25; the guarantee is 300).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.api.install import install
from bigfleet.kube.client import KubeClient
from controlplane.request import Binaries
from loaddriver.profile.settings import ProfileSettings
from loaddriver.run.bigfleet_roles import inventory_of, start_fleet
from loaddriver.run.context import RunOptions
from loaddriver.run.inputs import prepare_inputs
from loaddriver.sizing.inventory import save_inventory
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.scaletest import ROOT, deployment
from tests.support.substrates import FEW_OBJECTS

DOWN_SECONDS = float(os.environ.get("STATIC_SECONDS", "25"))
PATIENCE_SECONDS = 180.0
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800 + 2 * DOWN_SECONDS)]

NAMESPACE = "steady"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
# The last are so many times as large: more than the machines hold that the others may be given.
STAYING, MOVING, LATER, TIMES = 60, 20, 80, 5


class Fleet:
    """One cluster with all of BigFleet beside it, to be killed and started again."""

    def __init__(
        self,
        substrate: LocalSubstrate,
        cluster: Cluster,
        admin: KubeClient,
        settings: ProfileSettings,
        inventories: Path,
    ) -> None:
        self.substrate, self.cluster, self.admin = substrate, cluster, admin
        self._settings, self._inventories = settings, inventories
        self._parts: set[str] = set()

    async def start(self) -> None:
        """Start all roles in order of their dependencies."""
        started = await start_fleet(
            self.substrate, self._settings, [self.cluster], self._inventories
        )
        self._parts = set(started)

    async def kill(self) -> None:
        """Kill every role of BigFleet at once, as if its hosts lost power."""
        names = self._parts
        for name in names:
            self.substrate.expect_exit(name)
        alive = [each for each in self.substrate._supervisor.running() if each.name in names]
        assert len(alive) == len(names)
        for process in alive:
            process.send(signal.SIGKILL)
        for process in alive:
            await process.wait()

    async def pods(self, app: str = "") -> dict[str, Mapping[str, Any]]:
        """Pods that are not terminating, by uid."""
        found = msgspec.json.decode(await self.admin.get(PODS))["items"]
        return {
            pod["metadata"]["uid"]: pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and app in ("", pod["metadata"]["labels"]["app"])
        }

    async def running(self, app: str) -> dict[str, str]:
        """The Node of each running pod, by uid."""
        found = (await self.pods(app)).items()
        return {u: p["spec"]["nodeName"] for u, p in found if p["status"]["phase"] == "Running"}

    async def scale(self, app: str, replicas: int) -> None:
        """Scale a Deployment."""
        path = f"{DEPLOYMENTS}/{app}"
        await self.admin.patch(path, {"spec": {"replicas": replicas}})

    async def unready_nodes(self) -> list[str]:
        """Nodes that are not Ready."""
        found = msgspec.json.decode(await self.admin.get("/api/v1/nodes"))["items"]
        return [
            node["metadata"]["name"]
            for node in found
            if ("Ready", "True")
            not in {(c["type"], c["status"]) for c in node["status"].get("conditions", [])}
        ]


@asynccontextmanager
async def fleet(scope: RunScope, binaries: Binaries, directory: Path) -> AsyncIterator[Fleet]:
    """The smoke profile's fleet with three coordinators, without its load."""
    environment, replicated = dict(os.environ), ("bigfleet.coordinators=3",)
    options = RunOptions("smoke", ROOT / "profiles", directory, environment, overrides=replicated)
    inputs = prepare_inputs(options)
    settings = inputs.profile.settings
    save_inventory(inputs.machines, inventory_of(directory))
    substrate = LocalSubstrate(
        scope.run_id,
        scope.data_directory,
        directory,
        binaries,
        options.child_environment(),
        FEW_OBJECTS,
    )
    try:
        [cluster] = await substrate.start_clusters(["c1"])
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as admin:
            await install(admin)
            await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            made = Fleet(substrate, cluster, admin, settings, directory)
            await made.start()
            yield made
    finally:
        await substrate.stop()


async def until_running(found: Fleet, wanted: Mapping[str, int]) -> None:
    """Wait until each app has exactly the given number of pods, all running."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                counts = {app: len(await found.running(app)) for app in wanted}
                if counts == wanted and len(await found.pods()) == sum(wanted.values()):
                    return
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"running: {counts}, wanted: {wanted}") from None


async def churn(found: Fleet) -> None:
    """Delete one of the moving pods every second, until cancelled."""
    while True:
        pods = list((await found.pods("moves")).values())
        await found.admin.delete(f"{PODS}/{pods[0]['metadata']['name']}")
        await asyncio.sleep(1)


async def test_running_pods_are_not_affected_by_an_outage_of_bigfleet(
    scope: RunScope, binaries: Binaries, tmp_path: Path
) -> None:
    """All of BigFleet is killed under load. Running pods and their Nodes stay; pods that fit on
    existing Nodes start; the others wait until BigFleet is back, without intervention.
    """
    async with fleet(scope, binaries, tmp_path) as found:
        await found.admin.create(DEPLOYMENTS, deployment("stays", STAYING))
        await found.admin.create(DEPLOYMENTS, deployment("moves", MOVING))
        await until_running(found, {"stays": STAYING, "moves": MOVING})
        before = await found.running("stays")
        load = asyncio.create_task(churn(found))
        await found.kill()
        await found.admin.create(DEPLOYMENTS, deployment("later", LATER, times=TIMES))
        for _ in range(int(DOWN_SECONDS)):
            await asyncio.sleep(1)
            assert await found.running("stays") == before
            assert not load.done()
        assert await found.unready_nodes() == []
        waiting = LATER - len(await found.running("later"))
        assert waiting > 0, "no pod needed BigFleet meanwhile"
        await found.start()
        await asyncio.sleep(2)
        load.cancel()
        await asyncio.wait([load])
        await until_running(found, {"stays": STAYING, "moves": MOVING, "later": LATER})
        assert await found.running("stays") == before
