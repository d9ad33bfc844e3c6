"""A cluster's CapacityRequests; writes reach all watchers at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.controllers.operator import request_cache
from bigfleet.controllers.pod_controller.existing_requests import (
    ExistingRequests,
    InternedSpec,
    RequestKey,
)
from bigfleet.controllers.pod_controller.pods import (
    ExistingRequest,
    RequestMetadata,
    RequestStatus,
)
from bigfleet.kube.client import MERGE_PATCH, NOT_FOUND, ApiError
from bigfleet.kube.pod_types import Condition
from bigfleet.simulation.cluster.workload import NAMESPACE


class _Written(NamedTuple):
    spec: InternedSpec
    request: request_cache.CapacityRequest


class Requests:
    """The operator's `request_cache` and the pod controller's `existing`, both kept up to date.
    `written` counts all requests ever written.
    """

    def __init__(self) -> None:
        self.written = 0
        self.request_cache, self.existing = request_cache.RequestCache(), ExistingRequests()
        self._written: dict[RequestKey, _Written] = {}
        self.request_cache.replace([])

    def __contains__(self, key: object) -> bool:
        return key in self._written

    def spec(self, key: RequestKey) -> InternedSpec | None:
        """The request's spec; None if there is no such request."""
        written = self._written.get(key)
        return written.spec if written else None

    def write(
        self,
        key: RequestKey,
        spec: InternedSpec,
        body: msgspec.Raw,
        created: float,
        members: int = 0,
    ) -> None:
        """Write a request: `body` is `spec` as JSON, `created` is Unix time, and `members` the size
        of its gang, 0 if unspecified.
        """
        metadata = request_cache.Metadata(
            key.name,
            key.namespace,
            creation_timestamp=datetime.fromtimestamp(created, UTC),
            annotations={GANG_MEMBERS: str(members)} if members else None,
        )
        request = request_cache.CapacityRequest(metadata, body)
        self.written += 1
        self._written[key] = _Written(spec, request)
        self.request_cache.put(request)
        self.existing.wrote(key, spec)

    def remove(self, key: RequestKey) -> None:
        """Delete the request."""
        if self._written.pop(key, None) is not None:
            self.request_cache.remove(request_cache.RequestKey(*key))
            self.existing.remove(key)

    async def patch(
        self, path: str, body: Any, kind: str = MERGE_PATCH, query: object = None
    ) -> bytes:
        """Patch a request's status, as an API server does for the operator."""
        del kind, query
        key = RequestKey(NAMESPACE, body["metadata"]["name"])
        written = self._written.get(key)
        if written is None:
            raise ApiError(f"PATCH {path}", NOT_FOUND, "NotFound", "no such request")
        conditions = body["status"]["conditions"]
        written.request.status.conditions = msgspec.convert(
            conditions, list[request_cache.Condition]
        )
        self.request_cache.put(written.request)
        status = RequestStatus(msgspec.convert(conditions, list[Condition]))
        metadata = RequestMetadata(key.name, key.namespace)
        self.existing.put(ExistingRequest(metadata, dict(written.spec.body), status))
        return b""
