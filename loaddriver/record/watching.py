"""Timestamps from the harness's watches of Pods, Nodes and CapacityRequests.

They are times of receipt, so they include the delays of server, connection and this process, and
changes during a gap may be missed. With an audit log they are a cross-check; without one they are
the only source.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from bigfleet.kube.watch import Changed, Listed
from loaddriver.plan.manifests import RACK_KEY, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit import Name, PodListener
from loaddriver.record.audit_line import micros
from loaddriver.record.watched import CapacityRequest, Node, Pod

# A control plane may be a Node too; machines of the fleet do not have this label.
_CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


@dataclass(slots=True)
class PodObservation:
    """The observed state of a Pod; times are of receipt, None if not observed.

    `unschedulable_message` is the scheduler's last message while it found no node for it.
    """

    namespace: str
    name: str
    labels: dict[str, str]
    created_micros: int
    node: str = ""
    phase: str = ""
    bound_micros: int | None = None
    deleted_micros: int | None = None
    unschedulable_message: str = ""


@dataclass(slots=True)
class NodeObservation:
    """The observed state of a Node; a machine that joins again is a new Node of the same name."""

    name: str
    labels: dict[str, str]
    created_micros: int
    ready: bool = False
    ready_micros: int | None = None
    deleted_micros: int | None = None

    @property
    def rack(self) -> str:
        """The rack in its labels, or ""."""
        return self.labels.get(RACK_KEY, "")


@dataclass(slots=True)
class RequestObservation:
    """The observed state of a CapacityRequest.

    `accepted_micros` is when its operator was told that a shard had accepted it, by the operator's
    clock.
    """

    namespace: str
    name: str
    labels: dict[str, str]
    created_micros: int
    acknowledged_micros: int | None = None
    deleted_micros: int | None = None
    accepted_micros: int | None = None

    @property
    def of_load(self) -> bool:
        """Whether the load created it, and not a controller for one of its pods."""
        return WORKLOAD_LABEL in self.labels


@dataclass
class WatchTimestamps:
    """The load's Pods, the fleet's Nodes and all CapacityRequests observed so far, by UID.

    Other Pods and Nodes are ignored. Pure: times are arguments.
    """

    listener: PodListener
    pods: dict[str, PodObservation] = field(default_factory=dict)
    nodes: dict[str, NodeObservation] = field(default_factory=dict)
    requests: dict[str, RequestObservation] = field(default_factory=dict)

    def requests_by_name(self) -> dict[Name, RequestObservation]:
        """The observed CapacityRequests by name; the last one of a reused name."""
        return {(each.namespace, each.name): each for each in self.requests.values()}

    def pending(self) -> dict[str, str]:
        """The scheduler's messages on existing pods without a node, by UID."""
        return {
            uid: pod.unschedulable_message
            for uid, pod in self.pods.items()
            if pod.unschedulable_message and pod.bound_micros is None and pod.deleted_micros is None
        }

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int) -> None:
        """Process the events of a pod watch, received at `now_micros`."""
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
        """Process the events of a node watch, received at `now_micros`."""
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
        """Process the events of a watch of CapacityRequests, received at `now_micros`."""
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
            if WORKLOAD_LABEL not in meta.labels:
                return
            known = PodObservation(meta.namespace, meta.name, meta.labels, now_micros)
            self.pods[meta.uid] = known
            self.listener.created(
                meta.uid, now_micros, meta.labels.get(STEP_LABEL, ""), meta.labels[WORKLOAD_LABEL]
            )
        known.phase = pod.status.phase or known.phase
        if not pod.spec.node_name:
            # Many pods have the same message: share one string.
            known.unschedulable_message = (
                sys.intern(pod.unschedulable_message) or known.unschedulable_message
            )
        elif known.bound_micros is None:
            known.node, known.bound_micros = pod.spec.node_name, now_micros
            self.listener.bound(meta.uid, now_micros)

    def _pod_gone(self, uid: str, now_micros: int) -> None:
        known = self.pods.get(uid)
        if known is not None and known.deleted_micros is None:
            known.deleted_micros = now_micros
            self.listener.removed(uid, now_micros)

    def _see_node(self, node: Node, now_micros: int) -> None:
        meta = node.metadata
        if _CONTROL_PLANE_LABEL in meta.labels:
            return
        known = self.nodes.setdefault(meta.uid, NodeObservation(meta.name, meta.labels, now_micros))
        known.labels, known.ready = meta.labels, node.ready
        if node.ready and known.ready_micros is None:
            known.ready_micros = now_micros

    def _node_gone(self, uid: str, now_micros: int) -> None:
        known = self.nodes.get(uid)
        if known is not None:
            known.ready = False
            known.deleted_micros = known.deleted_micros or now_micros

    def _see_request(self, request: CapacityRequest, now_micros: int) -> None:
        meta = request.metadata
        known = self.requests.get(meta.uid)
        if known is None:
            known = RequestObservation(meta.namespace, meta.name, meta.labels, now_micros)
            self.requests[meta.uid] = known
            if known.of_load:
                self.listener.created(meta.uid, now_micros, meta.labels.get(STEP_LABEL, ""), "")
        if request.acknowledged and known.acknowledged_micros is None:
            known.acknowledged_micros = now_micros
            if request.status.acknowledged_at is not None:
                known.accepted_micros = micros(request.status.acknowledged_at)
            if known.of_load:
                self.listener.bound(meta.uid, now_micros)

    def _request_gone(self, uid: str, now_micros: int) -> None:
        known = self.requests[uid]
        if known.deleted_micros is None:
            known.deleted_micros = now_micros
            if known.of_load:
                self.listener.removed(uid, now_micros)


def now_micros() -> int:
    """This machine's wall clock, which a local API server uses as well."""
    return time.time_ns() // 1000
