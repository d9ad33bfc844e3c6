"""The fields of an API server's audit log lines that the harness reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
RESPONSE_COMPLETE = "ResponseComplete"
ACKNOWLEDGED = "Acknowledged"


class User(msgspec.Struct, frozen=True):
    """Who sent the request."""

    username: str = ""


class ObjectRef(msgspec.Struct, frozen=True):
    """The object of the request; the server takes name and UID from the body if necessary."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct, frozen=True):
    """The HTTP status of the response."""

    code: int = 0


class AuditLine(msgspec.Struct, frozen=True, rename="camel"):
    """A completed request."""

    stage: str
    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: User = User()
    object_ref: ObjectRef = ObjectRef()
    response_status: ResponseStatus = ResponseStatus()
    request_object: msgspec.Raw = msgspec.Raw()
    response_object: msgspec.Raw = msgspec.Raw()

    @property
    def succeeded(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.response_status.code < 300

    @property
    def what(self) -> str:
        """Verb and resource, such as `create pods/binding`."""
        ref = self.object_ref
        return f"{self.verb} {ref.resource}{'/' if ref.subresource else ''}{ref.subresource}"


class ObjectMetadata(msgspec.Struct, frozen=True):
    """An object's identity, labels and annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class CreatedObject(msgspec.Struct, frozen=True):
    """The response to a creation."""

    metadata: ObjectMetadata = ObjectMetadata()


class BindingRequest(msgspec.Struct, frozen=True):
    """The body of a Binding."""

    target: ObjectRef = ObjectRef()


class Condition(msgspec.Struct, frozen=True):
    """A condition of an object's status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


def is_ready(conditions: Sequence[Condition]) -> bool:
    """Whether the Ready condition is true."""
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def is_unready(conditions: Sequence[Condition]) -> bool:
    """Whether the Ready condition is present and not true."""
    return any(each.type == "Ready" and each.status != "True" for each in conditions)


class _CapacitySpec(msgspec.Struct, frozen=True):
    additional: bool = False


class CapacityRequestBody(msgspec.Struct, frozen=True):
    """The body of a write to a CapacityRequest: all of it or a part."""

    spec: _CapacitySpec = _CapacitySpec()


class JsonPatchOperation(msgspec.Struct, frozen=True):
    """An operation of a JSON Patch (RFC 6902) of a CapacityRequest."""

    path: str
    value: msgspec.Raw = msgspec.Raw()


_SPEC_DECODER = msgspec.json.Decoder(_CapacitySpec)

CapacityRequestWrite = CapacityRequestBody | list[JsonPatchOperation]


def asks_for_additional(body: CapacityRequestWrite) -> bool:
    """Whether a write to a CapacityRequest asks for a machine beyond those that are there."""
    if isinstance(body, CapacityRequestBody):
        return body.spec.additional
    specs = (_SPEC_DECODER.decode(each.value) for each in body if each.path == "/spec")
    return any(spec.additional for spec in specs)


class _CapacityStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    acknowledged_at: datetime | None = None


class CapacityStatusBody(msgspec.Struct, frozen=True):
    """The body of a write to a CapacityRequest's status: all of it or a part."""

    status: _CapacityStatus = _CapacityStatus()

    @property
    def acknowledges(self) -> bool:
        """Whether it is the operator's acknowledgement."""
        return self.status.phase == ACKNOWLEDGED


class NodeStatus(msgspec.Struct, frozen=True):
    """A Node's status, or the written part of it."""

    conditions: list[Condition] = []


class NodeStatusRequest(msgspec.Struct, frozen=True):
    """The body of a write to a Node's status."""

    status: NodeStatus = NodeStatus()


class AuditedRequest(Enum):
    """The requests that provide timestamps, each with its spellings in a log."""

    POD_CREATED = ("create pods",)
    POD_BOUND = ("create pods/binding",)
    POD_REMOVED = ("delete pods", "create pods/eviction")
    CAPACITY_REQUESTED = ("create capacityrequests",)
    CAPACITY_CHANGED = ("patch capacityrequests", "update capacityrequests")
    CAPACITY_WITHDRAWN = ("delete capacityrequests",)
    CAPACITY_ACKNOWLEDGED = ("patch capacityrequests/status", "update capacityrequests/status")
    NODE_CREATED = ("create nodes",)
    NODE_STATUS = ("patch nodes/status", "update nodes/status")
    NODE_DELETED = ("delete nodes",)


REQUESTS = {text: request for request in AuditedRequest for text in request.value}


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND
