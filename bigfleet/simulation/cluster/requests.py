"""A cluster's CapacityRequests: what is written is known at once to all who watch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.api.kube.client import MERGE_PATCH, NOT_FOUND, ApiError
from bigfleet.controllers.operator import ledger
from bigfleet.controllers.pod_controller.existing import ExistingRequests, Key, Spec
from bigfleet.controllers.pod_controller.pods import (
    ExistingRequest,
    RequestMetadata,
    RequestStatus,
)
from bigfleet.controllers.podspec.objects import Condition
from bigfleet.simulation.cluster.workload import NAMESPACE


class _Written(NamedTuple):
    spec: Spec
    request: ledger.CapacityRequest


class Requests:
    """The operator's `ledger` and the pod controller's `existing`, both kept up to date. `written`
    counts requests that ever were.
    """

    def __init__(self) -> None:
        self.written = 0
        self.ledger, self.existing = ledger.Ledger(), ExistingRequests()
        self._written: dict[Key, _Written] = {}
        self.ledger.replace([])

    def __contains__(self, key: object) -> bool:
        return key in self._written

    def spec(self, key: Key) -> Spec | None:
        """What the request asks for; None if there is no such request."""
        written = self._written.get(key)
        return written.spec if written else None

    def write(
        self, key: Key, spec: Spec, body: msgspec.Raw, created: float, members: int = 0
    ) -> None:
        """There is such a request: `body` is `spec` in JSON, `created` in seconds since 1970, and
        `members` the size of its gang where that is said.
        """
        metadata = ledger.Metadata(
            key.name,
            key.namespace,
            creation_timestamp=datetime.fromtimestamp(created, UTC),
            annotations={GANG_MEMBERS: str(members)} if members else None,
        )
        request = ledger.CapacityRequest(metadata, body)
        self.written += 1
        self._written[key] = _Written(spec, request)
        self.ledger.put(request)
        self.existing.wrote(key, spec)

    def remove(self, key: Key) -> None:
        """It is gone."""
        if self._written.pop(key, None) is not None:
            self.ledger.remove(ledger.Key(*key))
            self.existing.remove(key)

    async def patch(
        self, path: str, body: Any, kind: str = MERGE_PATCH, query: object = None
    ) -> bytes:
        """What the operator says of a request, as it says it to an API server."""
        del kind, query
        key = Key(NAMESPACE, body["metadata"]["name"])
        written = self._written.get(key)
        if written is None:
            raise ApiError(f"PATCH {path}", NOT_FOUND, "NotFound", "no such request")
        said = body["status"]["conditions"]
        written.request.status.conditions = msgspec.convert(said, list[ledger.Condition])
        self.ledger.put(written.request)
        status = RequestStatus(msgspec.convert(said, list[Condition]))
        metadata = RequestMetadata(key.name, key.namespace)
        self.existing.put(ExistingRequest(metadata, dict(written.spec.body), status))
        return b""
