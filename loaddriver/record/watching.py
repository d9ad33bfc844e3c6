"""What the harness itself saw of Pods, Nodes and CapacityRequests: a second clock.

Stamps are times of receipt, so they are late by however long the server, the connection and this
process took, and a change that came and went during a gap is never seen. Where there is an audit
log they are a check on it; where there is none they are all there is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import KubeClient
from bigfleet.api.kube.watch import Changed, Listed, Watch, WatchStats
from loaddriver.manifests import RACK_KEY, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit import Name, PodListener
from loaddriver.record.watched import CapacityRequest, Node, Pod

# Beside an audit log, a watch need not be punctual. A change of its own costs four times the CPU of
# one that comes with ten others; receipts are up to this much later for it.
GATHER_SECONDS = 1.0

T = TypeVar("T")

# A cluster's own control plane may be a Node too; no machine of the fleet has this label.
_FLEET_NODES = {"labelSelector": "!node-role.kubernetes.io/control-plane"}


@dataclass(slots=True)
class PodSighting:
    """What was seen of one Pod; moments are of receipt, None is not seen.

    `refusal` is what the scheduler said last, while it had no node for it.
    """

    namespace: str
    name: str
    labels: dict[str, str]
    created_micros: int
    node: str = ""
    phase: str = ""
    bound_micros: int | None = None
    deleted_micros: int | None = None
    refusal: str = ""


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


@dataclass(slots=True)
class RequestSighting:
    """What was seen of one CapacityRequest."""

    namespace: str
    name: str
    labels: dict[str, str]
    created_micros: int
    acknowledged_micros: int | None = None
    deleted_micros: int | None = None

    @property
    def of_load(self) -> bool:
        """Whether the load made it itself, and not a controller for one of its pods."""
        return WORKLOAD_LABEL in self.labels


@dataclass
class WatchStamps:
    """Everything seen so far, by UID; pure: moments are handed in."""

    listener: PodListener
    pods: dict[str, PodSighting] = field(default_factory=dict)
    nodes: dict[str, NodeSighting] = field(default_factory=dict)
    requests: dict[str, RequestSighting] = field(default_factory=dict)

    def requests_by_name(self) -> dict[Name, RequestSighting]:
        """The CapacityRequests that were seen; of those that shared a name, the last."""
        return {(each.namespace, each.name): each for each in self.requests.values()}

    def pending(self) -> dict[str, str]:
        """Why pods have no node, in the scheduler's words, by UID; those it said nothing of and
        those that are gone are left out.
        """
        return {
            uid: pod.refusal
            for uid, pod in self.pods.items()
            if pod.refusal and pod.bound_micros is None and pod.deleted_micros is None
        }

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

    def take_requests(
        self, change: Listed[CapacityRequest] | Changed[CapacityRequest], now_micros: int
    ) -> None:
        """Note what a watch of CapacityRequests said at `now_micros`."""
        if isinstance(change, Changed):
            self._see_request(change.item, now_micros)
            if change.deleted:
                self._request_gone(change.item.metadata.uid, now_micros)
            return
        for request in change.items:
            self._see_request(request, now_micros)
        for uid in self.requests.keys() - {request.metadata.uid for request in change.items}:
            self._request_gone(uid, now_micros)

    def _see_pod(self, pod: Pod, now_micros: int) -> None:
        meta = pod.metadata
        known = self.pods.get(meta.uid)
        if known is None:
            known = PodSighting(meta.namespace, meta.name, meta.labels, now_micros)
            self.pods[meta.uid] = known
            self.listener.created(meta.uid, now_micros, meta.labels.get(STEP_LABEL, ""))
        known.phase = pod.status.phase or known.phase
        if not pod.spec.node_name:
            # Many pods are refused in the same words: one text serves them all.
            known.refusal = sys.intern(pod.refusal) or known.refusal
        elif known.bound_micros is None:
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

    def _see_request(self, request: CapacityRequest, now_micros: int) -> None:
        meta = request.metadata
        known = self.requests.get(meta.uid)
        if known is None:
            known = RequestSighting(meta.namespace, meta.name, meta.labels, now_micros)
            self.requests[meta.uid] = known
            if known.of_load:
                self.listener.created(meta.uid, now_micros, meta.labels.get(STEP_LABEL, ""))
        if request.acknowledged and known.acknowledged_micros is None:
            known.acknowledged_micros = now_micros
            if known.of_load:
                self.listener.bound(meta.uid, now_micros)

    def _request_gone(self, uid: str, now_micros: int) -> None:
        known = self.requests[uid]
        if known.deleted_micros is None:
            known.deleted_micros = now_micros
            if known.of_load:
                self.listener.removed(uid, now_micros)


class ClusterWatch:
    """Follows the load's Pods and all Nodes of one cluster into `stamps`.

    Where it `is_clock`, because no audit log is, it takes every change at once, and follows the
    CapacityRequests of the cluster, too.
    """

    def __init__(self, client: KubeClient, stamps: WatchStamps, is_clock: bool) -> None:
        self.stamps = stamps
        self.gather_seconds = 0.0 if is_clock else GATHER_SECONDS
        of_load = {"labelSelector": WORKLOAD_LABEL}
        pods = Watch(client, "/api/v1/pods", Pod, of_load)
        nodes = Watch(client, "/api/v1/nodes", Node, _FLEET_NODES)
        pods.gather_seconds = nodes.gather_seconds = self.gather_seconds
        self._follow: list[_Followed[Any]] = [
            _Followed(pods, stamps.take_pods),
            _Followed(nodes, stamps.take_nodes),
        ]
        if is_clock:
            requests = Watch(client, f"{GROUP_VERSION}/capacityrequests", CapacityRequest)
            self._follow.append(_Followed(requests, stamps.take_requests))

    def followers(self) -> list[Coroutine[Any, Any, None]]:
        """What must run, each until cancelled."""
        return [each.follow() for each in self._follow]

    async def listed_once(self) -> None:
        """Return once every collection has been listed, so that nothing new can be missed."""
        for each in self._follow:
            await each.listed.wait()

    @property
    def stats(self) -> list[WatchStats]:
        """How each watch fared."""
        return [each.watch.stats for each in self._follow]


@dataclass
class _Followed(Generic[T]):
    watch: Watch[T]
    take: Callable[[Listed[T] | Changed[T], int], None]
    listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        async for change in self.watch.follow():
            self.take(change, now_micros())
            self.listed.set()


def now_micros() -> int:
    """This machine's wall clock, the one that a local API server stamps with, too."""
    return time.time_ns() // 1000
