"""A management cluster: Cluster API's own CustomResourceDefinitions, and a stand-in for its
controllers and for those of an infrastructure.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.api.install import apply, request_token, retry_until
from bigfleet.conformance.fake_cluster import FakeCluster
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, InlineAccess, KubeClient
from controlplane.module_files import module_files
from controlplane.pins import CLUSTER_API_MODULE
from controlplane.request import request_from
from tests.support.clusters import get

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster-api"
ACCOUNT = "bigfleet-capi-provider"
CLUSTER_API = "/apis/cluster.x-k8s.io/v1beta2"
_INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
# Infrastructures have schemas of their own, which do not matter here.
_VERSIONS = {
    "AWSMachine": "v1beta2",
    "AWSMachineTemplate": "v1beta2",
    "Metal3Machine": "v1beta1",
    "Metal3MachineTemplate": "v1beta1",
}
_FINALIZER = "machine.cluster.x-k8s.io"
_LOOK_SECONDS = 0.05
_installed: set[str] = set()


def definitions() -> Iterator[Object]:
    """Cluster API's CustomResourceDefinitions, and some that any infrastructure may have."""
    if shutil.which("go") is None:
        pytest.skip("Cluster API's definitions are fetched with Go, which is not installed")
    root = module_files(CLUSTER_API_MODULE, "sigs.k8s.io/cluster-api", request_from(os.environ))
    for path in (
        "core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
        "bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigs.yaml",
        "bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml",
    ):
        yield yaml.load((root / path).read_text(), yaml.CSafeLoader)
    for kind, version in _VERSIONS.items():
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True}
        served["schema"] = {"openAPIV3Schema": anything}
        plural = f"{kind.lower()}s"
        names = {
            "kind": kind,
            "plural": plural,
            "singular": kind.lower(),
            "listKind": f"{kind}List",
        }
        spec = {"group": _INFRASTRUCTURE, "scope": "Namespaced", "names": names}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{_INFRASTRUCTURE}"},
            "spec": {**spec, "versions": [served]},
        }


async def install(admin: KubeClient) -> None:
    """Install the definitions, once in each cluster, and wait until they are served."""
    if admin.server in _installed:
        return
    for each in definitions():
        await apply(admin, each)
        spec = each["spec"]
        version = next(v["name"] for v in spec["versions"] if v["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"

        async def served(path: str = path) -> bool:
            return await get(admin, path) is not None

        await retry_until(served)
    _installed.add(admin.server)


def documents(name: str) -> list[Object]:
    """The objects in a file of the example."""
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


async def create(admin: KubeClient, namespace: str, *objects: Object) -> None:
    """Create the objects in the namespace."""
    for each in objects:
        group = each["apiVersion"]
        start = "/api/v1" if group == "v1" else f"/apis/{group}"
        path = f"{start}/namespaces/{namespace}/{each['kind'].lower()}s"
        body = json.loads(json.dumps(each))
        body["metadata"]["namespace"] = namespace
        for subject in body.get("subjects", ()):
            subject["namespace"] = namespace
        await admin.create(path, body)


def template(kind: str, name: str) -> Object:
    """An infrastructure's machine template."""
    inner = {"metadata": {"labels": {"made-by": name}}, "spec": {"size": "large"}}
    head = {"apiVersion": f"{_INFRASTRUCTURE}/{_VERSIONS[kind]}", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": {"template": inner}}


async def account(admin: KubeClient, namespace: str, folder: Path) -> Path:
    """A kubeconfig of the provider's ServiceAccount, which exists."""
    token = await request_token(admin, ACCOUNT, 3600, namespace)
    ca = base64.b64encode(admin.ca_pem.encode()).decode()
    at = {"server": admin.server, "certificate-authority-data": ca}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": at}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    path = folder / "provider.kubeconfig"
    path.write_text(json.dumps(whole))
    return path


class StandIn:
    """Moves the Machines of a namespace through their phases, and boots what they stand for.

    A machine joins `cluster` as its bootstrap data says. `stuck` are those that get no
    infrastructure; `misnamed`, those that call their Nodes otherwise.
    """

    def __init__(self, admin: KubeClient, namespace: str, cluster: FakeCluster) -> None:
        self._admin, self._cluster = admin, cluster
        self.namespace = namespace
        self.machines = f"{CLUSTER_API}/namespaces/{namespace}/machines"
        self.stuck: set[str] = set()
        self.misnamed: set[str] = set()
        self.joined: dict[str, Object] = {}
        self._leaving_since: dict[str, float] = {}

    async def work(self) -> None:
        """Until it is cancelled."""
        while True:
            with suppress(*CONNECTION_ERRORS):  # a busy machine answers late
                for machine in (await get(self._admin, self.machines))["items"]:
                    with suppress(ApiError):  # it changed meanwhile
                        await self._step(machine)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _step(self, machine: Object) -> None:
        metadata, status = machine["metadata"], machine.get("status", {})
        name = metadata["name"]
        if "deletionTimestamp" in metadata:
            await self._leave(machine)
        elif _FINALIZER not in metadata.get("finalizers", ()):
            await self._patch(name, {"metadata": {"finalizers": [_FINALIZER]}})
            await self._report(name, "Pending")
        elif name in self.stuck:
            await self._report(name, "Provisioning", InfrastructureReady="no host is available")
        elif not status.get("initialization", {}).get("infrastructureProvisioned"):
            await self._provision(machine)
        elif not status.get("nodeRef"):
            await self._boot(machine)

    async def _provision(self, machine: Object) -> None:
        name, reference = machine["metadata"]["name"], machine["spec"]["infrastructureRef"]
        if await get(self._admin, self._path(reference)) is None:
            await self._report(name, "Pending", InfrastructureReady="it does not exist")
            return
        await self._patch(name, {"spec": {"providerID": f"stand-in://{name}"}})
        begun = {"infrastructureProvisioned": True, "bootstrapDataSecretCreated": True}
        status = {"initialization": begun, "phase": "Provisioned"}
        await self._patch(f"{name}/status", {"status": status})

    async def _boot(self, machine: Object) -> None:
        name = machine["metadata"]["name"]
        async with self._nodes() as nodes:
            if name not in self.joined:
                node = await self._node_of(machine)
                self.joined[name] = node
                with suppress(ApiError):  # it was registered before
                    await nodes.create("/api/v1/nodes", node)
            node_name = self.joined[name]["metadata"]["name"]
            found = await get(nodes, f"/api/v1/nodes/{node_name}")
        conditions = (found or {}).get("status", {}).get("conditions", [])
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            await self._patch(f"{name}/status", {"status": {"nodeRef": {"name": node_name}}})
            await self._report(name, "Running", NodeReady="")

    async def _node_of(self, machine: Object) -> Object:
        """The Node that the machine registers, from nothing but its bootstrap data."""
        name, bootstrap = machine["metadata"]["name"], machine["spec"]["bootstrap"]
        if "configRef" in bootstrap:
            config = await get(self._admin, self._path(bootstrap["configRef"]))
            told = config["spec"]["joinConfiguration"]["nodeRegistration"]
            given = {each["name"]: each["value"] for each in told["kubeletExtraArgs"]}
            name = told["name"]
        else:
            path = f"/api/v1/namespaces/{self.namespace}/secrets/{bootstrap['dataSecretName']}"
            data = (await get(self._admin, path))["data"]["value"]
            told = yaml.safe_load(base64.b64decode(data))
            files = {each["path"]: each["content"] for each in told["write_files"]}
            blob = json.loads(base64.b64decode(files["/etc/join/blob.json"]))
            assert blob["apiServer"] == self._cluster.url
            given = dict(re.findall(r"--([a-z-]+)=(\S*)", files["/etc/join/kubelet.env"]))
            name = given["hostname-override"]
            assert name == blob["nodeName"] == told["hostname"]
        labels, taints = given["node-labels"], given["register-with-taints"]
        if machine["metadata"]["name"] in self.misnamed:
            name = f"ip-{name}"
        pairs = [each.partition("=") for each in labels.split(",")]
        metadata = {"name": name, "labels": {key: value for key, _, value in pairs}}
        spec = {"taints": [_taint(each) for each in taints.split(",") if each]}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}

    async def _leave(self, machine: Object) -> None:
        name, spec = machine["metadata"]["name"], machine["spec"]
        since = self._leaving_since.setdefault(machine["metadata"]["uid"], time.monotonic())
        async with self._nodes() as nodes:
            node = f"/api/v1/nodes/{machine.get('status', {}).get('nodeRef', {}).get('name', name)}"
            if await get(nodes, node) is not None:
                if time.monotonic() - since < spec["deletion"]["nodeDrainTimeoutSeconds"]:
                    await self._report(name, "Deleting", Deleting="draining the Node")
                    return
                await nodes.delete(node)
        for reference in (spec["infrastructureRef"], spec["bootstrap"].get("configRef")):
            if reference is not None:
                with suppress(ApiError):
                    await self._admin.delete(self._path(reference))
        self.joined.pop(name, None)
        await self._patch(name, {"metadata": {"finalizers": []}})

    def _path(self, reference: Object) -> str:
        group, kind = reference["apiGroup"], reference["kind"]
        version = _VERSIONS.get(kind, "v1beta2")
        start = f"/apis/{group}/{version}/namespaces/{self.namespace}"
        return f"{start}/{kind.lower()}s/{reference['name']}"

    def access(self) -> InlineAccess:
        """To the cluster's Nodes, as Cluster API has it."""
        user = json.loads(self._cluster.kubeconfig())["users"][0]["user"]
        return InlineAccess(self._cluster.url, token=user["token"])

    @asynccontextmanager
    async def _nodes(self) -> AsyncIterator[KubeClient]:
        async with KubeClient.with_access(self.access()) as client:
            yield client

    async def _patch(self, path: str, patch: Object) -> None:
        await self._admin.patch(f"{self.machines}/{path}", patch)

    async def _report(self, name: str, phase: str, **waits: str) -> None:
        """Its phase, and a condition each; "" says that it is fine."""
        conditions = [
            {
                "type": kind,
                "status": "True" if kind == "Deleting" or not message else "False",
                "reason": "Waiting" if message else "Ready",
                "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, message in waits.items()
        ]
        status = {"phase": phase, "conditions": conditions}
        await self._patch(f"{name}/status", {"status": status})


def _taint(text: str) -> Object:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


class DyingClient(KubeClient):
    """Like a provider that is killed: after `left` requests no further one reaches the server."""

    left = 1_000_000
    refused = 0

    async def _request(self, *arguments: Any, **more: Any) -> bytes:
        if self.left <= 0:
            self.refused += 1
            raise OSError("the process is dead")
        self.left -= 1
        return await super()._request(*arguments, **more)
