"""Timestamps from the audit log of one API server: lossless, in microseconds, from one clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit_line import (
    REQUESTS,
    RESPONSE_COMPLETE,
    AuditedRequest,
    AuditLine,
    BindingRequest,
    CapacityRequestWrite,
    CapacityStatusBody,
    CreatedObject,
    NodeStatusRequest,
    ObjectMetadata,
    ObjectRef,
    asks_for_additional,
    is_ready,
    is_unready,
    micros,
)
from loaddriver.substrates.credentials import LOAD_DRIVER

Name = tuple[str, str]
"""Namespace and name; the namespace of cluster-scoped objects is ""."""

Write = tuple[str, Name]
"""Verb and resource, such as `create deployments`, and the object."""


@dataclass(frozen=True, slots=True)
class PodCreation:
    """The creation of a Pod; the timestamp is when the server received the request."""

    pod: ObjectMetadata
    at_micros: int
    creator: str


@dataclass(frozen=True, slots=True)
class RequestCreation:
    """The creation of a CapacityRequest by the load; the timestamp is of the request's receipt."""

    request: ObjectMetadata
    at_micros: int


@dataclass(frozen=True, slots=True)
class Binding:
    """The binding of a Pod by `writer`; the timestamp is when the server had responded.

    `node` is "" if the log omits bodies.
    """

    name: Name
    uid: str
    at_micros: int
    writer: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Removal:
    """A successful request by `writer` to delete or evict a Pod.

    It has no UID, and names are reused. The timestamp is when a deletion was received, or when
    an eviction had been answered.
    """

    name: Name
    at_micros: int
    writer: str = ""
    eviction: bool = False


class PodListener(Protocol):
    """Receives pod events as they are read, for the live view and the ramp's gate.

    If the load creates CapacityRequests instead of pods, it receives those; an acknowledgement
    counts as their binding. `workload` is the cluster's object that the pod belongs to.
    """

    def created(self, uid: str, at_micros: int, step: str, workload: str) -> None: ...

    def bound(self, uid: str, at_micros: int) -> None: ...

    def removed(self, uid: str, at_micros: int) -> None: ...


@dataclass
class AuditTimestamps:
    """All timestamps read so far.

    `requested`, `acknowledged` and `withdrawn` are of CapacityRequests; `accepted` is when the
    operator was told, by its own clock, that a shard had accepted one, which it writes later, at
    `acknowledged`; `requests` are those that the load created, by UID; `additional` those for an
    additional machine, by the time they first asked for it. `nodes_ready` and `nodes_unready` have
    every write of that condition; `racks` and `instance_types` are keyed by Node and its creation.
    `load_writes` counts the load driver's successful requests; `load_creations` has when the server
    received and had answered those that created an object. `failed` counts by request and status,
    such as `create pods 409`. `undecodable` counts lines whose information is lost, `without_uid`
    Pods logged without their body.
    """

    pods: dict[str, PodCreation] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    requested: dict[Name, int] = field(default_factory=dict)
    acknowledged: dict[Name, int] = field(default_factory=dict)
    accepted: dict[Name, int] = field(default_factory=dict)
    withdrawn: dict[Name, int] = field(default_factory=dict)
    requests: dict[str, RequestCreation] = field(default_factory=dict)
    additional: dict[Name, int] = field(default_factory=dict)
    nodes_created: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    nodes_deleted: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    nodes_ready: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    nodes_unready: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    racks: dict[tuple[str, int], str] = field(default_factory=dict)
    instance_types: dict[tuple[str, int], str] = field(default_factory=dict)
    load_writes: Counter[Write] = field(default_factory=Counter)
    load_creations: dict[Write, tuple[int, int]] = field(default_factory=dict)
    succeeded: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    undecodable: int = 0
    without_uid: int = 0


class AuditReader:
    """Decodes lines into `timestamps`; `listener` receives objects with the load's step label."""

    def __init__(self, listener: PodListener) -> None:
        self.timestamps = AuditTimestamps()
        self._listener = listener
        self._line = msgspec.json.Decoder(AuditLine)
        self._created = msgspec.json.Decoder(CreatedObject)
        self._binding = msgspec.json.Decoder(BindingRequest)
        self._status = msgspec.json.Decoder(NodeStatusRequest)
        self._capacity_status = msgspec.json.Decoder(CapacityStatusBody)
        self._request = msgspec.json.Decoder(CapacityRequestWrite)
        self._pod_uids: dict[Name, str] = {}
        self._request_uids: dict[Name, str] = {}
        self._take: Mapping[AuditedRequest, Callable[[AuditLine, ObjectRef], None]] = {
            AuditedRequest.POD_CREATED: self._pod_created,
            AuditedRequest.POD_BOUND: self._pod_bound,
            AuditedRequest.POD_REMOVED: self._pod_removed,
            AuditedRequest.CAPACITY_REQUESTED: self._capacity_requested,
            AuditedRequest.CAPACITY_CHANGED: self._capacity_changed,
            AuditedRequest.CAPACITY_WITHDRAWN: self._capacity_withdrawn,
            AuditedRequest.CAPACITY_ACKNOWLEDGED: self._capacity_acknowledged,
            AuditedRequest.NODE_CREATED: self._node_created,
            AuditedRequest.NODE_STATUS: self._node_status,
            AuditedRequest.NODE_DELETED: self._node_deleted,
        }

    def take(self, lines: Sequence[bytes]) -> None:
        """Read lines; count and skip those that cannot be decoded."""
        self.timestamps.lines += len(lines)
        for raw in lines:
            try:
                self._take_line(self._line.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.timestamps.undecodable += 1

    def _take_line(self, line: AuditLine) -> None:
        if line.stage != RESPONSE_COMPLETE:
            return
        if not line.succeeded:
            self.timestamps.failed[f"{line.what} {line.response_status.code}"] += 1
            return
        request, ref = REQUESTS.get(line.what), line.object_ref
        if request is not None:
            self._take[request](line, ref)
        if line.user.username == LOAD_DRIVER:
            self._load_write((line.what, (ref.namespace, ref.name)), line)
        self.timestamps.succeeded[line.what] += 1

    def _load_write(self, write: Write, line: AuditLine) -> None:
        self.timestamps.load_writes[write] += 1
        if line.verb == "create":
            span = micros(line.request_received_timestamp), micros(line.stage_timestamp)
            self.timestamps.load_creations[write] = span

    def _answer(self, line: AuditLine) -> ObjectMetadata:
        """The created object; None if the log omits bodies."""
        if not line.response_object:
            return ObjectMetadata()
        return self._created.decode(line.response_object).metadata

    def _pod_created(self, line: AuditLine, _: ObjectRef) -> None:
        pod = self._answer(line)
        if not pod.uid:
            self.timestamps.without_uid += 1
            return
        at = micros(line.request_received_timestamp)
        self.timestamps.pods[pod.uid] = PodCreation(pod, at, line.user.username)
        self._pod_uids[pod.namespace, pod.name] = pod.uid
        if STEP_LABEL in pod.labels:
            workload = pod.labels.get(WORKLOAD_LABEL, "")
            self._listener.created(pod.uid, at, pod.labels[STEP_LABEL], workload)

    def _pod_bound(self, line: AuditLine, ref: ObjectRef) -> None:
        name = (ref.namespace, ref.name)
        at = micros(line.stage_timestamp)
        body = line.request_object
        node = self._binding.decode(body).target.name if body else ""
        self.timestamps.bindings.append(Binding(name, ref.uid, at, line.user.username, node))
        self._listener.bound(ref.uid or self._pod_uids.get(name, ""), at)

    def _pod_removed(self, line: AuditLine, ref: ObjectRef) -> None:
        evicts = ref.subresource == "eviction"
        # A disruption budget may delay an eviction inside the server for seconds.
        moment = line.stage_timestamp if evicts else line.request_received_timestamp
        name, at = (ref.namespace, ref.name), micros(moment)
        self.timestamps.removals.append(Removal(name, at, line.user.username, evicts))
        self._listener.removed(self._pod_uids.get(name, ""), at)

    def _capacity_requested(self, line: AuditLine, ref: ObjectRef) -> None:
        name = (ref.namespace, ref.name)
        self.timestamps.requested.setdefault(name, micros(line.stage_timestamp))
        self._capacity_changed(line, ref)
        request = self._answer(line)
        if STEP_LABEL in request.labels:
            at = micros(line.request_received_timestamp)
            self.timestamps.requests[request.uid] = RequestCreation(request, at)
            self._request_uids[name] = request.uid
            self._listener.created(request.uid, at, request.labels[STEP_LABEL], "")

    def _capacity_changed(self, line: AuditLine, ref: ObjectRef) -> None:
        body = line.request_object
        if body and asks_for_additional(self._request.decode(body)):
            at = micros(line.stage_timestamp)
            self.timestamps.additional.setdefault((ref.namespace, ref.name), at)

    def _capacity_withdrawn(self, line: AuditLine, ref: ObjectRef) -> None:
        name, at = (ref.namespace, ref.name), micros(line.request_received_timestamp)
        self.timestamps.withdrawn.setdefault(name, at)
        if name in self._request_uids:
            self._listener.removed(self._request_uids[name], at)

    def _capacity_acknowledged(self, line: AuditLine, ref: ObjectRef) -> None:
        body = self._capacity_status.decode(line.request_object) if line.request_object else None
        if body is not None and not body.acknowledges:
            return  # a condition, such as that capacity is short
        name, at = (ref.namespace, ref.name), micros(line.stage_timestamp)
        if body is not None and body.status.acknowledged_at is not None:
            self.timestamps.accepted.setdefault(name, micros(body.status.acknowledged_at))
        first = self.timestamps.acknowledged.setdefault(name, at) == at
        if first and name in self._request_uids:
            self._listener.bound(self._request_uids[name], at)

    def _node_created(self, line: AuditLine, ref: ObjectRef) -> None:
        at, labels = micros(line.stage_timestamp), self._answer(line).labels
        if line.response_object and RACK_KEY not in labels:
            return  # not a machine of the fleet, such as the control plane's Node
        self.timestamps.nodes_created[ref.name].append(at)
        if RACK_KEY in labels:
            self.timestamps.racks[ref.name, at] = labels[RACK_KEY]
            self.timestamps.instance_types[ref.name, at] = labels.get(INSTANCE_TYPE_KEY, "")

    def _node_status(self, line: AuditLine, ref: ObjectRef) -> None:
        body = line.request_object
        conditions = self._status.decode(body).status.conditions if body else []
        if is_ready(conditions):
            self.timestamps.nodes_ready[ref.name].append(micros(line.stage_timestamp))
        elif is_unready(conditions):
            self.timestamps.nodes_unready[ref.name].append(micros(line.stage_timestamp))

    def _node_deleted(self, line: AuditLine, ref: ObjectRef) -> None:
        self.timestamps.nodes_deleted[ref.name].append(micros(line.request_received_timestamp))
