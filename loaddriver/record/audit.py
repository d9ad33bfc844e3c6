"""Stamps from the audit log of one API server: lossless, to the microsecond, by one clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from loaddriver.record.audit_line import (
    ANSWERED,
    REQUESTS,
    AuditLine,
    CreatedPod,
    ObjectRef,
    PodMetadata,
    Request,
    micros,
)

Name = tuple[str, str]
"""Namespace and name; "" as the namespace of a cluster's own objects."""


@dataclass(frozen=True, slots=True)
class PodCreation:
    """A Pod as the server accepted it; the moment is when it received the request."""

    pod: PodMetadata
    at_micros: int
    creator: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A Pod was given its node by `writer`; the moment is when the server had answered."""

    name: Name
    uid: str
    at_micros: int
    writer: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A request to delete or evict a Pod. It names no UID: names are used again over time."""

    name: Name
    at_micros: int


class PodListener(Protocol):
    """Hears of pods as they come; the live view and the ramp gate live on it."""

    def created(self, uid: str, at_micros: int, step: str) -> None: ...

    def bound(self, uid: str, at_micros: int) -> None: ...

    def removed(self, uid: str, at_micros: int) -> None: ...


@dataclass
class AuditStamps:
    """Everything read so far.

    `failed` counts by request and status, such as `create pods 409`; `undecodable` lines said
    something that is now missing; `nameless` are Pods logged without their body, so without UID.
    """

    pods: dict[str, PodCreation] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    requested: dict[Name, int] = field(default_factory=dict)
    acknowledged: dict[Name, int] = field(default_factory=dict)
    nodes_created: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    nodes_deleted: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    succeeded: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    undecodable: int = 0
    nameless: int = 0


class AuditReader:
    """Decodes lines into `stamps`, and tells `listener` of pods with the given step label."""

    def __init__(self, step_label: str, listener: PodListener) -> None:
        self.stamps = AuditStamps()
        self._step_label, self._listener = step_label, listener
        self._line = msgspec.json.Decoder(AuditLine)
        self._pod = msgspec.json.Decoder(CreatedPod)
        self._uids: dict[Name, str] = {}
        self._take: Mapping[Request, Callable[[AuditLine, ObjectRef], None]] = {
            Request.POD_CREATED: self._pod_created,
            Request.POD_BOUND: self._pod_bound,
            Request.POD_REMOVED: self._pod_removed,
            Request.CAPACITY_REQUESTED: self._capacity_requested,
            Request.CAPACITY_ACKNOWLEDGED: self._capacity_acknowledged,
            Request.NODE_CREATED: self._node_created,
            Request.NODE_DELETED: self._node_deleted,
        }

    def take(self, lines: Sequence[bytes]) -> None:
        """Read lines; one that cannot be read is counted and the next one is taken."""
        self.stamps.lines += len(lines)
        for raw in lines:
            try:
                self._take_line(self._line.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.stamps.undecodable += 1

    def _take_line(self, line: AuditLine) -> None:
        if line.stage != ANSWERED:
            return
        if not line.succeeded:
            self.stamps.failed[f"{line.what} {line.response_status.code}"] += 1
            return
        request = REQUESTS.get(line.what)
        if request is not None:
            self._take[request](line, line.object_ref)
        self.stamps.succeeded[line.what] += 1

    def _pod_created(self, line: AuditLine, _: ObjectRef) -> None:
        body = self._pod.decode(line.response_object) if line.response_object else CreatedPod()
        pod = body.metadata
        if not pod.uid:
            self.stamps.nameless += 1
            return
        at = micros(line.request_received_timestamp)
        self.stamps.pods[pod.uid] = PodCreation(pod, at, line.user.username)
        self._uids[pod.namespace, pod.name] = pod.uid
        if self._step_label in pod.labels:
            self._listener.created(pod.uid, at, pod.labels[self._step_label])

    def _pod_bound(self, line: AuditLine, ref: ObjectRef) -> None:
        name = (ref.namespace, ref.name)
        at = micros(line.stage_timestamp)
        self.stamps.bindings.append(Binding(name, ref.uid, at, line.user.username))
        self._listener.bound(ref.uid or self._uids.get(name, ""), at)

    def _pod_removed(self, line: AuditLine, ref: ObjectRef) -> None:
        name, at = (ref.namespace, ref.name), micros(line.request_received_timestamp)
        self.stamps.removals.append(Removal(name, at))
        self._listener.removed(self._uids.get(name, ""), at)

    def _capacity_requested(self, line: AuditLine, ref: ObjectRef) -> None:
        at = micros(line.stage_timestamp)
        self.stamps.requested.setdefault((ref.namespace, ref.name), at)

    def _capacity_acknowledged(self, line: AuditLine, ref: ObjectRef) -> None:
        at = micros(line.stage_timestamp)
        self.stamps.acknowledged.setdefault((ref.namespace, ref.name), at)

    def _node_created(self, line: AuditLine, ref: ObjectRef) -> None:
        self.stamps.nodes_created[ref.name].append(micros(line.stage_timestamp))

    def _node_deleted(self, line: AuditLine, ref: ObjectRef) -> None:
        self.stamps.nodes_deleted[ref.name].append(micros(line.request_received_timestamp))
