"""One line of an API server's audit log, as far as the harness reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
RESPONSE_COMPLETE = "ResponseComplete"
LOAD_DRIVER = "load-driver"


class User(msgspec.Struct, frozen=True):
    """Who sent the request."""

    username: str = ""


class ObjectRef(msgspec.Struct, frozen=True):
    """What the request was about. The server fills in name and UID from the body if need be."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct, frozen=True):
    """The HTTP status of the answer."""

    code: int = 0


class AuditLine(msgspec.Struct, frozen=True, rename="camel"):
    """A request that was answered."""

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
        """Whether the server did what it was asked."""
        return 200 <= self.response_status.code < 300

    @property
    def what(self) -> str:
        """Verb and resource, such as `create pods/binding`."""
        ref = self.object_ref
        return f"{self.verb} {ref.resource}{'/' if ref.subresource else ''}{ref.subresource}"


class ObjectMetadata(msgspec.Struct, frozen=True):
    """Identity of an object, and what was written on it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class CreatedObject(msgspec.Struct, frozen=True):
    """The answer to a creation."""

    metadata: ObjectMetadata = ObjectMetadata()


class BindingRequest(msgspec.Struct, frozen=True):
    """What a Binding asks for."""

    target: ObjectRef = ObjectRef()


class Condition(msgspec.Struct, frozen=True):
    """One condition of an object's status; `message` is in its writer's words."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


def is_ready(conditions: Sequence[Condition]) -> bool:
    """Whether a Node with these conditions can run Pods."""
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def is_unready(conditions: Sequence[Condition]) -> bool:
    """Whether they say that it cannot; a write that leaves the condition out says neither."""
    return any(each.type == "Ready" and each.status != "True" for each in conditions)


class _CapacitySpec(msgspec.Struct, frozen=True):
    additional: bool = False


class CapacityRequestBody(msgspec.Struct, frozen=True):
    """What a controller writes as a CapacityRequest; `additional` asks for a machine beyond those
    that serve other pods.
    """

    spec: _CapacitySpec = _CapacitySpec()


class NodeStatus(msgspec.Struct, frozen=True):
    """A Node's status, or the part of it that was written."""

    conditions: list[Condition] = []


class NodeStatusRequest(msgspec.Struct, frozen=True):
    """The body of a write to a Node's status."""

    status: NodeStatus = NodeStatus()


class AuditedRequest(Enum):
    """The requests that stamp something, each with the ways to write it in a log."""

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
