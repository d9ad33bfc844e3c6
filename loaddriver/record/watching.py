"""What the harness itself saw of Pods and Nodes: names of nodes and racks, and a second clock.

Stamps are times of receipt, so they are late by however long the server, the connection and this
process took, and a change that came and went during a gap is never seen.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import msgspec

from bigfleet.api.kube.client import KubeClient
from bigfleet.api.kube.watch import Changed, Listed, Watch
from loaddriver.manifests import RACK_KEY, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit import PodListener


class _Meta(msgspec.Struct):
    name: str
    uid: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _PodStatus(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    """A Pod as the watch delivers it."""

    metadata: _Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Condition(msgspec.Struct):
    type: str
    status: str


class _NodeStatus(msgspec.Struct):
    conditions: list[_Condition] = []


class Node(msgspec.Struct):
    """A Node as the watch delivers it."""

    metadata: _Meta
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it can run Pods."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


@dataclass(slots=True)
class PodSighting:
    """What was seen of one Pod; moments are of receipt, None is not seen."""

    namespace: str
    name: str
    labels: dict[str, str]
    created_micros: int
    node: str = ""
    phase: str = ""
    bound_micros: int | None = None
    deleted_micros: int | None = None


@dataclass(slots=True)
class NodeSighting:
    """What was seen of one Node; a machine that joins again is a new Node of the same name."""

    name: str
    labels: dict[str, str]
    created_micros: int
    ready: bool = False
    ready_micros: int | None = None
    deleted_micros: int | None = None

    @property
    def rack(self) -> str:
        """The rack that its labels name, or ""."""
        return self.labels.get(RACK_KEY, "")


@dataclass
class WatchStamps:
    """Everything seen so far, by UID; pure: moments are handed in."""

    listener: PodListener
    pods: dict[str, PodSighting] = field(default_factory=dict)
    nodes: dict[str, NodeSighting] = field(default_factory=dict)

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int) -> None:
        """Note what a pod watch said at `now_micros`."""
        if isinstance(change, Changed):
            self._see_pod(change.item, now_micros)
            if change.deleted:
                self._pod_gone(change.item.metadata.uid, now_micros)
            return
        for pod in change.items:
            self._see_pod(pod, now_micros)
        for uid in self.pods.keys() - {pod.metadata.uid for pod in change.items}:
            self._pod_gone(uid, now_micros)

    def take_nodes(self, change: Listed[Node] | Changed[Node], now_micros: int) -> None:
        """Note what a node watch said at `now_micros`."""
        if isinstance(change, Changed):
            self._see_node(change.item, now_micros)
            if change.deleted:
                self._node_gone(change.item.metadata.uid, now_micros)
            return
        for node in change.items:
            self._see_node(node, now_micros)
        for uid in self.nodes.keys() - {node.metadata.uid for node in change.items}:
            self._node_gone(uid, now_micros)

    def _see_pod(self, pod: Pod, now_micros: int) -> None:
        meta = pod.metadata
        known = self.pods.get(meta.uid)
        if known is None:
            known = PodSighting(meta.namespace, meta.name, meta.labels, now_micros)
            self.pods[meta.uid] = known
            self.listener.created(meta.uid, now_micros, meta.labels.get(STEP_LABEL, ""))
        known.phase = pod.status.phase or known.phase
        if pod.spec.node_name and known.bound_micros is None:
            known.node, known.bound_micros = pod.spec.node_name, now_micros
            self.listener.bound(meta.uid, now_micros)

    def _pod_gone(self, uid: str, now_micros: int) -> None:
        if self.pods[uid].deleted_micros is None:
            self.pods[uid].deleted_micros = now_micros
            self.listener.removed(uid, now_micros)

    def _see_node(self, node: Node, now_micros: int) -> None:
        meta = node.metadata
        known = self.nodes.setdefault(meta.uid, NodeSighting(meta.name, meta.labels, now_micros))
        known.labels, known.ready = meta.labels, node.ready
        if node.ready and known.ready_micros is None:
            known.ready_micros = now_micros

    def _node_gone(self, uid: str, now_micros: int) -> None:
        known = self.nodes[uid]
        known.ready = False
        known.deleted_micros = known.deleted_micros or now_micros


class ClusterWatch:
    """Follows the load's Pods and all Nodes of one cluster into `stamps`."""

    def __init__(self, client: KubeClient, stamps: WatchStamps) -> None:
        self.stamps = stamps
        self.pods = Watch(client, "/api/v1/pods", Pod, {"labelSelector": WORKLOAD_LABEL})
        self.nodes = Watch(client, "/api/v1/nodes", Node)
        self._pods_listed, self._nodes_listed = asyncio.Event(), asyncio.Event()

    async def follow_pods(self) -> None:
        """Runs until cancelled."""
        async for change in self.pods.follow():
            self.stamps.take_pods(change, now_micros())
            self._pods_listed.set()

    async def follow_nodes(self) -> None:
        """Runs until cancelled."""
        async for change in self.nodes.follow():
            self.stamps.take_nodes(change, now_micros())
            self._nodes_listed.set()

    async def listed_once(self) -> None:
        """Return once both collections have been listed, so that nothing new can be missed."""
        await self._pods_listed.wait()
        await self._nodes_listed.wait()

    @property
    def resumed(self) -> int:
        """How often either watch was cut and went on."""
        return self.pods.stats.resumed + self.nodes.stats.resumed

    @property
    def listed(self) -> int:
        """How often everything was listed; twice is the start, more are gaps."""
        return self.pods.stats.listed + self.nodes.stats.listed


def now_micros() -> int:
    """This machine's wall clock, the one that a local API server stamps with, too."""
    return time.time_ns() // 1000
