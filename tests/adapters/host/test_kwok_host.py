"""A kwok host in a real cluster, with the permissions of a real host."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.adapters.host.kwok import KwokHost
from bigfleet.api.install import NODE_NAMESPACE, install
from bigfleet.kube.client import STRATEGIC_PATCH, KubeClient
from bigfleet.model.machine import Machine
from bigfleet.model.need import Taint
from bigfleet.ports.host import Boot, HostFailure
from controlplane.locate import locate
from controlplane.pins import COMPONENTS
from controlplane.request import Binaries, request_from
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.components import NO_NETWORK, ControlPlaneConfig
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.adapters.host.machines import MACHINE
from tests.support.substrates import FEW_OBJECTS

TIMEOUT_SECONDS = 90.0


@dataclass
class HostRig:
    """A cluster, its administrator, and the KwokHost's kubeconfig directory."""

    cluster: Cluster
    admin: KubeClient
    kubeconfigs: Path

    async def boot(self, machine: Machine, operation: int) -> Boot:
        """A boot with a fresh token, as the operator hands it out."""
        account = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts"
        await self.admin.create(account, {"metadata": {"name": machine.id}})
        answer = await self.admin.create(
            f"{account}/{machine.id}/token", {"spec": {"expirationSeconds": 600}}
        )
        blob = {
            "apiServer": self.cluster.api_server,
            "caPem": (self.cluster.kubeconfigs["admin"].parent / "ca.crt").read_text(),
            "token": msgspec.json.decode(answer)["status"]["token"],
            "nodeName": machine.id,
        }
        return Boot(machine, f"{machine.id}.{operation}", msgspec.json.encode(blob))

    async def node(self, name: str) -> Any:
        """The Node as the API server has it."""
        return msgspec.json.decode(await self.admin.get(f"/api/v1/nodes/{name}"))

    async def not_ready(self, name: str) -> set[str] | None:
        """The effects of the taint of a Node that is not Ready; None if there is no such Node."""
        nodes = msgspec.json.decode(await self.admin.get("/api/v1/nodes"))["items"]
        for node in nodes:
            if node["metadata"]["name"] == name:
                taints = node["spec"].get("taints") or ()
                return {t["effect"] for t in taints if t["key"] == "node.kubernetes.io/not-ready"}
        return None

    async def bound(self, pod: str) -> bool:
        """Whether the pod has a Node."""
        found = msgspec.json.decode(await self.admin.get(f"{PODS}/{pod}"))
        return bool(found["spec"].get("nodeName"))

    async def heartbeats(self, name: str, within_seconds: float) -> bool:
        """Whether kwok makes the Node Ready again after we have said that it is not."""
        said = {"conditions": [{"type": "Ready", "status": "False"}]}
        path = f"/api/v1/nodes/{name}"
        await self.admin.patch(f"{path}/status", {"status": said}, STRATEGIC_PATCH)
        try:
            async with asyncio.timeout(within_seconds):
                while not ready(await self.node(name)):  # noqa: ASYNC110  another process's event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True


def ready(node: Any) -> bool:
    """Whether the Node's condition Ready is True."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


def binaries() -> Binaries:
    """The real binaries, from BIGFLEET_BINARIES or the cache; without them the test is skipped."""
    found = locate(request_from(os.environ), lambda _: None)
    if missing := [name for name in COMPONENTS if name not in found]:
        pytest.skip(f"no {', '.join(missing)}: run `python -m controlplane get` first")
    return Binaries(
        **{name.replace("-", "_"): found[name].path for name in COMPONENTS},
        versions={name: found[name].version for name in COMPONENTS},
        origin={},
    )


@asynccontextmanager
async def started_testbed(
    folder: Path, settings: ControlPlaneConfig = FEW_OBJECTS
) -> AsyncIterator[HostRig]:
    """A control plane with BigFleet's policy installed."""
    run_id = f"host-{uuid.uuid4().hex[:8]}"
    real = binaries()
    scope = RunScope.open(run_id, "tests", folder / "logs", folder / "lock")
    substrate = LocalSubstrate(
        run_id, scope.data_directory, folder / "logs", real, dict(os.environ), settings
    )
    try:
        [cluster] = await substrate.start_clusters(["c"])
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as admin:
            await install(admin)
            kubeconfig = cluster.kubeconfigs["fake-host"].read_text()
            (folder / "c.kubeconfig").write_text(kubeconfig)
            yield HostRig(cluster, admin, folder)
    finally:
        await substrate.stop()
        await scope.close()


@pytest.mark.cluster
async def test_a_host_follows_its_machine(tmp_path: Path) -> None:
    """Booted, adopted by the next process, powered off, booted again, and deleted."""
    slow = Taint("example.com/slow", "yes", "NoSchedule")
    machine = replace(MACHINE, host="m-1", taints=(slow,))
    async with started_testbed(tmp_path) as here:
        host = KwokHost(tmp_path, "kwok")
        first = await here.boot(machine, operation=1)
        await host.boot(first, TIMEOUT_SECONDS)
        node = await here.node("m-1")
        assert ready(node)
        assert node["spec"]["providerID"] == "bigfleet://kwok/m-1"
        assert {"key": slow.key, "value": "yes", "effect": "NoSchedule"} in node["spec"]["taints"]
        assert await here.heartbeats("m-1", within_seconds=TIMEOUT_SECONDS)

        later = KwokHost(tmp_path, "kwok")
        forgotten = msgspec.json.decode(first.blob) | {"token": "expired long ago"}
        await later.boot(replace(first, blob=msgspec.json.encode(forgotten)), TIMEOUT_SECONDS)
        await later.close()

        await host.power_off(machine)
        assert not await here.heartbeats("m-1", within_seconds=1.5)

        changed = {"unschedulable": True, "taints": []}
        await here.admin.patch("/api/v1/nodes/m-1", {"spec": changed})
        await host.boot(replace(first, operation_id="m-1.3"), TIMEOUT_SECONDS)
        node = await here.node("m-1")
        assert ready(node)
        assert "unschedulable" not in node["spec"]
        assert [t["key"] for t in node["spec"]["taints"]].count(slow.key) == 1

        gone = asyncio.create_task(host.wait_until_node_gone(machine))
        await asyncio.sleep(0.2)
        assert not gone.done()
        await here.admin.delete("/api/v1/nodes/m-1")
        await asyncio.wait_for(gone, TIMEOUT_SECONDS)
        await host.power_off(machine)

        await here.admin.create(
            "/api/v1/nodes", {"metadata": {"name": "m-1"}, "spec": {"providerID": "other://x"}}
        )
        with pytest.raises(HostFailure, match="may not change providerID"):
            await host.boot(replace(first, operation_id="m-1.4"), TIMEOUT_SECONDS)
        with pytest.raises(HostFailure, match=r"no host can join cluster 'z'.*z\.kubeconfig"):
            await host.wait_until_node_gone(replace(machine, cluster="z"))
        await host.close()


HAS_NETWORK = {"type": NO_NETWORK, "status": "False"}
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.cluster
async def test_no_pod_is_bound_to_a_booting_node(tmp_path: Path) -> None:
    """First its DaemonSets' pods come. The node controller has looked at the Node once it adds
    NoExecute; from a Node that says nothing of itself it has taken NoSchedule by then.
    """
    machine = replace(MACHINE, host="m-1")
    pod = {"spec": {"containers": [{"name": "web", "image": "example.com/web"}]}}
    # Without any that works, the node controller takes the whole cluster for cut off.
    works = {"conditions": [{"type": "Ready", "status": "True"}, HAS_NETWORK]}
    async with started_testbed(tmp_path, replace(FEW_OBJECTS, network_agents=True)) as here:
        await here.admin.create(PODS, {"metadata": {"name": "web"}, **pod})
        await here.admin.create("/api/v1/nodes", {"metadata": {"name": "other"}, "status": works})
        host, blob = KwokHost(tmp_path, "kwok"), await here.boot(machine, operation=1)
        async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
            booting = tasks.create_task(host.boot(blob, TIMEOUT_SECONDS))
            effects: set[str] | None = None
            while effects in (None, {"NoSchedule"}):
                effects = await here.not_ready("m-1")
                await asyncio.sleep(0.05)
            assert effects == {"NoSchedule", "NoExecute"}
            assert not booting.done()
            assert not await here.bound("web")
            said = {"status": {"conditions": [HAS_NETWORK]}}
            await here.admin.patch("/api/v1/nodes/m-1/status", said, STRATEGIC_PATCH)
            await booting
            while not await here.bound("web"):  # noqa: ASYNC110  another process's event
                await asyncio.sleep(0.05)
        await host.close()
