"""Lines of an audit log and what a watch would say, as small as tests need them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from loaddriver.load.files import EventResult
from loaddriver.plan.manifests import (
    ARCHETYPE_LABEL,
    GROUP_LABEL,
    INSTANCE_TYPE_KEY,
    RACK_KEY,
    STEP_LABEL,
    WORKLOAD_LABEL,
)
from loaddriver.record.audit import AuditReader
from loaddriver.record.live_counts import LiveCounts, NullListener
from loaddriver.record.recorder import Observations
from loaddriver.record.watched import CapacityRequest, Node, Pod
from loaddriver.record.watching import WatchTimestamps

SECOND = 1_000_000
START = 1_790_000_000 * SECOND
END = START + 600 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEDULER, ANCHOR = "system:kube-scheduler", "load-driver"


def at(seconds: float) -> int:
    """So many seconds after the start, in microseconds."""
    return START + round(seconds * SECOND)


def iso(seconds: float) -> str:
    """The same as RFC 3339 text."""
    return (EPOCH + timedelta(microseconds=at(seconds))).isoformat()


def labels(group: str = "", step: str = "1") -> dict[str, str]:
    """What the load writes on its pods."""
    common = {WORKLOAD_LABEL: "web", ARCHETYPE_LABEL: "tiny-stateless", STEP_LABEL: step}
    return {**common, GROUP_LABEL: group} if group else common


def line(
    what: str,
    name: str,
    seconds: float,
    *,
    uid: str = "",
    user: str = "somebody",
    code: int = 201,
    body: Any = None,
    request: Any = None,
    stage: str = "ResponseComplete",
) -> bytes:
    """One audit line; `what` is such as `create pods/binding`."""
    verb, _, kind = what.partition(" ")
    resource, _, subresource = kind.partition("/")
    moment = (EPOCH + timedelta(microseconds=at(seconds))).isoformat(timespec="microseconds")
    event: dict[str, Any] = {
        "kind": "Event",
        "level": "Metadata",
        "stage": stage,
        "verb": verb,
        "user": {"username": user, "groups": ["system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "objectRef": {"resource": resource, "namespace": "load", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": moment.replace("+00:00", "Z"),
        "stageTimestamp": moment.replace("+00:00", "Z"),
    }
    ref = {"name": name, "uid": uid, "subresource": subresource}
    event["objectRef"] |= {key: value for key, value in ref.items() if value}
    bodies = {"requestObject": request, "responseObject": body}
    return msgspec.json.encode(event | {key: value for key, value in bodies.items() if value})


def created(uid: str, name: str, seconds: float, group: str = "") -> bytes:
    """The line of a Pod's creation by a controller: the name is the server's."""
    body = {"kind": "Pod", "metadata": pod_metadata(uid, name, group), "spec": {"containers": []}}
    return line("create pods", "", seconds, body=body, user="replicaset-controller")


def bound(uid: str, name: str, seconds: float, user: str = SCHEDULER, node: str = "") -> bytes:
    """The line of a binding; without `node` the log leaves out what was asked for."""
    request = {"kind": "Binding", "target": {"kind": "Node", "name": node}} if node else None
    return line("create pods/binding", name, seconds, uid=uid, user=user, request=request)


def joined(name: str, seconds: float, rack: str = "r1", kind: str = "") -> bytes:
    """The line of a Node's creation; `kind` is its instance type."""
    marks = {RACK_KEY: rack, INSTANCE_TYPE_KEY: kind}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": marks}
    return line("create nodes", name, seconds, body={"kind": "Node", "metadata": metadata})


def node_status(name: str, seconds: float, ready: bool = True) -> bytes:
    """The line of a write to a Node's status by its kubelet."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    request = {"status": {"conditions": conditions}}
    return line("patch nodes/status", name, seconds, code=200, request=request)


def requested(name: str, seconds: float, uid: str) -> bytes:
    """The line of a CapacityRequest that the load made itself."""
    metadata = {"name": name, "namespace": "load", "uid": uid, "labels": labels()}
    body = {"kind": "CapacityRequest", "metadata": metadata}
    return line("create capacityrequests", name, seconds, body=body, user=ANCHOR)


def pod_metadata(uid: str, name: str, group: str = "") -> dict[str, Any]:
    """Metadata as the API server gives it."""
    return {"name": name, "namespace": "load", "uid": uid, "labels": labels(group)}


def pod(
    uid: str, name: str, node: str = "", group: str = "", unschedulable_message: str = ""
) -> Pod:
    """A Pod as a watch delivers it; `unschedulable_message` is what the scheduler says of it."""
    scheduled = {"type": "PodScheduled", "status": "False", "message": unschedulable_message}
    raw = {
        "metadata": pod_metadata(uid, name, group),
        "spec": {"nodeName": node},
        "status": {"phase": "Pending", "conditions": [scheduled] if unschedulable_message else []},
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=Pod)


def request(uid: str, name: str, phase: str = "", of_load: bool = True) -> CapacityRequest:
    """A CapacityRequest as a watch delivers it."""
    metadata = {"name": name, "namespace": "load", "uid": uid}
    raw = {"metadata": metadata | ({"labels": labels()} if of_load else {})}
    return msgspec.convert(raw | {"status": {"phase": phase}}, CapacityRequest)


def node(name: str, uid: str = "", rack: str = "r1", ready: bool = True) -> Node:
    """A Node as a watch delivers it."""
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    meta = {"name": name, "uid": uid or f"uid-{name}", "labels": {RACK_KEY: rack}}
    return msgspec.convert({"metadata": meta, "status": {"conditions": [condition]}}, Node)


def reader(lines: Iterable[bytes] = (), live_counts: LiveCounts | None = None) -> AuditReader:
    """A reader that has read `lines`."""
    made = AuditReader(live_counts or NullListener())
    made.take(list(lines))
    return made


def result(event_id: str, name: str, status: int = 201, attempts: int = 1) -> EventResult:
    """What the load driver recorded of one of its requests, that was sent when it was due."""
    return EventResult(
        id=event_id,
        cluster=0,
        step=1,
        verb="create",
        name=name,
        due=0,
        sent=0,
        done=0,
        lateness_seconds=0,
        status=status,
        attempts=attempts,
        ok=True,
        detail="",
    )


def observations(
    lines: Iterable[bytes] | None, watch: WatchTimestamps | None = None
) -> Observations:
    """One cluster's; without lines there is no audit log."""
    audit = None if lines is None else reader(lines).timestamps
    return Observations("c0", audit, watch or WatchTimestamps(NullListener()), 0, 2, 0, END)
