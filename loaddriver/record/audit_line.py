"""One line of an API server's audit log, as far as the harness reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
ANSWERED = "ResponseComplete"


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


class PodMetadata(msgspec.Struct, frozen=True):
    """Identity of a Pod, and what the load wrote on it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class CreatedPod(msgspec.Struct, frozen=True):
    """The answer to the creation of a Pod."""

    metadata: PodMetadata = PodMetadata()


class Request(Enum):
    """The requests that stamp something, each with the ways to write it in a log."""

    POD_CREATED = ("create pods",)
    POD_BOUND = ("create pods/binding",)
    POD_REMOVED = ("delete pods", "create pods/eviction")
    CAPACITY_REQUESTED = ("create capacityrequests",)
    CAPACITY_ACKNOWLEDGED = ("patch capacityrequests/status", "update capacityrequests/status")
    NODE_CREATED = ("create nodes",)
    NODE_DELETED = ("delete nodes",)


REQUESTS = {text: request for request in Request for text in request.value}


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND
