"""A real cluster for tests of the anchor controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.kube.client import MERGE_PATCH, KubeClient
from loaddriver.anchors.objects import usable
from loaddriver.plan.manifests import GROUP_LABEL, INSTANCE_TYPE_KEY, RACK_KEY
from loaddriver.record.audit_line import AuditLine
from loaddriver.record.watched import Node, Pod
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from tests.anchors.anchor_rig import UNSCHEDULABLE
from tests.support.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"
NO_SCHEDULER = "no-scheduler"
"""A scheduler that does not exist: its pods stay untried until a test changes that."""
_DEADLINE_SECONDS = 90


@dataclass
class Racks:
    """A cluster; `admin` changes it for the test, `recorder` may watch it."""

    cluster: Cluster
    admin: KubeClient
    recorder: KubeClient

    async def load_driver(self) -> KubeClient:
        return await KubeClient.from_kubeconfig(self.cluster.kubeconfigs["load-driver"])

    async def add_nodes(self, nodes: Mapping[str, tuple[str, str, int]]) -> None:
        """Nodes by name, each with its rack, type and CPUs; returns when kwok made them Ready."""
        for name, (rack, kind, cpus) in nodes.items():
            await self.admin.create("/api/v1/nodes", _node(name, rack, kind, cpus))
        await eventually(lambda: self._usable(set(nodes)))

    async def _usable(self, names: set[str]) -> bool:
        found = msgspec.json.decode(await self.admin.get("/api/v1/nodes"), type=_Nodes)
        return names <= {node.metadata.name for node in found.items if usable(node)}

    async def add_pods(self, *names: str, **wanted: Any) -> None:
        for name in names:
            await self.admin.create(PODS, gang_pod(name, **wanted))

    async def release(self, *names: str) -> None:
        """Let kube-scheduler see pods that were held back."""
        for name in names:
            await self.admin.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})

    async def cordon(self, *names: str, cordoned: bool = True) -> None:
        for name in names:
            await self.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": cordoned}})

    async def uncordon(self, *names: str) -> None:
        await self.cordon(*names, cordoned=False)

    async def nominated(self) -> dict[str, str]:
        """Nominated node by pod, for those that have one and are not bound."""
        found = msgspec.json.decode(await self.admin.get(PODS), type=_Nominees).items
        return {
            each.metadata.name: each.status.nominated_node_name
            for each in found
            if each.status.nominated_node_name and not each.spec.node_name
        }

    async def until_nominated(self, *names: str) -> dict[str, str]:
        async def there() -> bool:
            return set(names) <= (await self.nominated()).keys()

        await eventually(there)
        return await self.nominated()

    async def tried(self, name: str) -> None:
        """Set the condition of a pod that a scheduler found unschedulable."""
        await self.admin.patch(f"{PODS}/{name}/status", {"status": {"conditions": [UNSCHEDULABLE]}})

    async def until_unschedulable(self, *names: str) -> None:
        """Wait until kube-scheduler has found them unschedulable."""

        async def tried() -> bool:
            pods = msgspec.json.decode(await self.admin.get(PODS), type=_Pods).items
            return set(names) <= {p.metadata.name for p in pods if p.unschedulable}

        await eventually(tried)

    async def bound(self) -> dict[str, str]:
        """Node by pod, for those that are bound."""
        found = msgspec.json.decode(await self.admin.get(PODS), type=_Pods)
        return {p.metadata.name: p.spec.node_name for p in found.items if p.spec.node_name}

    async def until_bound(self, *names: str) -> None:
        async def there() -> bool:
            return set(names) <= (await self.bound()).keys()

        await eventually(there)

    async def clear(self) -> None:
        """Delete all pods and wait until they are gone."""
        await self.admin.delete(PODS, {"gracePeriodSeconds": 0})
        await eventually(self._empty)

    async def _empty(self) -> bool:
        return not msgspec.json.decode(await self.admin.get(PODS), type=_Pods).items

    async def binders(self, *names: str) -> dict[str, list[str]]:
        """Who bound each pod, from the audit log; successful requests only.

        Returns once `names` are in it: that a pod is bound shows before the log has the line.
        """

        async def logged() -> bool:
            return set(names) <= self._binders().keys()

        await eventually(logged)
        return self._binders()

    def _binders(self) -> dict[str, list[str]]:
        assert self.cluster.audit_log is not None
        found: dict[str, list[str]] = {}
        for text in complete_lines(self.cluster.audit_log):
            line = msgspec.json.decode(text, type=AuditLine)
            if line.what == "create pods/binding" and line.succeeded:
                found.setdefault(line.object_ref.name, []).append(line.user.username)
        return found


def complete_lines(log: Path) -> list[bytes]:
    """The complete lines of a log that is being written."""
    return log.read_bytes().rpartition(b"\n")[0].splitlines()


class _Nodes(msgspec.Struct):
    items: list[Node]


class _Pods(msgspec.Struct):
    items: list[Pod]


class _Name(msgspec.Struct):
    name: str


class _Placed(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Nomination(msgspec.Struct, rename="camel"):
    nominated_node_name: str = ""


class _Nominee(msgspec.Struct):
    metadata: _Name
    spec: _Placed
    status: _Nomination


class _Nominees(msgspec.Struct):
    items: list[_Nominee]


def gang_pod(
    name: str,
    group: str,
    types: tuple[str, ...] = ("big", "small"),
    scheduler: str = "default-scheduler",
    *,
    held: bool = False,
) -> dict[str, Any]:
    """A pod of one CPU that must share its rack with its group, written as the load does.

    One that is `held` looks tried, and kube-scheduler leaves it alone until it is released.
    """
    terms = [{"matchExpressions": [_in(INSTANCE_TYPE_KEY, types)]}]
    near = {"labelSelector": {"matchLabels": {GROUP_LABEL: group}}, "topologyKey": RACK_KEY}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {GROUP_LABEL: group}},
        "spec": {
            "schedulerName": scheduler,
            "schedulingGates": [{"name": "test/held"}] if held else [],
            "automountServiceAccountToken": False,
            "affinity": {
                "nodeAffinity": {required: {"nodeSelectorTerms": terms}},
                "podAffinity": {required: [near]},
            },
            "containers": [
                {"name": "app", "image": "fake", "resources": {"requests": {"cpu": "1"}}}
            ],
        },
    }


def _in(key: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _node(name: str, rack: str, kind: str, cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "8Gi", "pods": "20"}
    annotation, value = FAKE_NODE_ANNOTATION
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {RACK_KEY: rack, INSTANCE_TYPE_KEY: kind},
            "annotations": {annotation: value},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


@asynccontextmanager
async def interfering(racks: Racks) -> AsyncIterator[Interfering]:
    """The load driver's client, which a test can disturb."""
    client = await Interfering.from_kubeconfig(racks.cluster.kubeconfigs["load-driver"])
    assert isinstance(client, Interfering)
    async with client:
        yield client


class Interfering(KubeClient):
    """The load driver's client, whose first write to a pod a test can disturb."""

    before: Callable[[], Awaitable[object]] | None = None
    loses_answer = False

    async def patch(
        self, path: str, body: Any, kind: str = MERGE_PATCH, query: Mapping[str, str] | None = None
    ) -> bytes:
        before, self.before = self.before, None
        if before is not None:
            await before()
        answer = await super().patch(path, body, kind, query)
        if self.loses_answer:
            self.loses_answer = False
            raise TimeoutError
        return answer
