"""Reconciles the cluster's CapacityRequests with the desired ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from bigfleet.api.wellknown import ADDITIONAL_CAPACITY
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.existing_requests import (
    ExistingRequests,
    InternedSpec,
    RequestKey,
    digest_of,
)
from bigfleet.controllers.pod_controller.gangs import GangSizes
from bigfleet.controllers.pod_controller.pods import ExistingRequest, Metadata
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.kube.client import (
    ALREADY_EXISTS,
    APPLY_PATCH,
    JSON_PATCH,
    NOT_FOUND,
    ApiError,
    KubeClient,
)
from bigfleet.kube.timestamps import rfc3339
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_APPLY = {"fieldManager": "bigfleet-pod-controller", "force": "true"}
_MAX_MESSAGE_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class _Desired:
    """The desired request of a Pod; `spec` is None when it must not have one."""

    pod: Metadata
    spec: InternedSpec | None


class ConditionValue(NamedTuple):
    """The desired condition AdditionalCapacityRequested of a request."""

    status: str
    reason: str
    message: str


class RequestWriter:
    """Creates, updates and deletes requests; those of deleted Pods are garbage-collected.

    `wall` is Unix time.
    """

    def __init__(
        self,
        client: KubeClient,
        existing: ExistingRequests,
        write_concurrency: int,
        wall: Callable[[], float],
    ) -> None:
        self._client, self._existing, self._wall = client, existing, wall
        self._sizes = GangSizes(client)
        self._desired: dict[RequestKey, _Desired] = {}
        self._condition_values: dict[RequestKey, ConditionValue] = {}
        self._specs: WeakValueDictionary[bytes, InternedSpec] = WeakValueDictionary()
        self._queue: WorkQueue[RequestKey] = WorkQueue(
            self._reconcile, write_concurrency, self._on_rejected
        )
        self.run = self._queue.run

    def __contains__(self, key: object) -> bool:
        return key in self._desired

    def first_keys(self) -> Iterator[RequestKey]:
        """The key of the first request of every known Pod."""
        for key, desired in self._desired.items():
            if desired.spec is None or not desired.spec.body.get("additional"):
                yield key

    def spec(self, key: RequestKey) -> InternedSpec | None:
        """The desired spec of a request; None when it must not exist."""
        desired = self._desired.get(key)
        return desired.spec if desired else None

    def interned(self, body: Mapping[str, Any]) -> InternedSpec:
        """The shared InternedSpec for `body`."""
        digest = digest_of(body)
        spec = self._specs.get(digest)
        if spec is None:
            spec = self._specs[digest] = InternedSpec(body, digest)
        return spec

    def set_desired(self, key: RequestKey, pod: Metadata, spec: InternedSpec | None) -> None:
        """Set the desired request of `pod`; None deletes it."""
        before = self._desired.get(key)
        self._desired[key] = _Desired(pod, spec)
        if before is None or before.spec is not spec:
            self._queue.add(key)

    def forget(self, key: RequestKey) -> None:
        """Forget the request of a deleted Pod, which is garbage-collected."""
        self._desired.pop(key, None)
        self._condition_values.pop(key, None)

    def set_condition(self, key: RequestKey, value: ConditionValue) -> None:
        """Set the desired condition of request `key`."""
        self._condition_values[key] = value
        self._queue.add(key)

    def listed(self, found: Iterable[ExistingRequest]) -> None:
        """Handle a list of all requests."""
        self._existing.replace(found)
        for key in self._desired:
            self._queue.add(key)

    def changed(self, request: ExistingRequest, *, deleted: bool) -> None:
        """Handle a watch event of a request."""
        key = RequestKey(request.metadata.namespace, request.metadata.name)
        if deleted:
            self._existing.remove(key)
        else:
            self._existing.put(request)
        self._queue.add(key)

    async def _reconcile(self, key: RequestKey) -> None:
        desired, digest = self._desired.get(key), self._existing.digest(key)
        if desired is None:
            return
        if desired.spec is None:
            if digest is not None:
                await self._delete(key)
        elif digest is None:
            await self._create(key, desired.pod, desired.spec)
        elif digest != desired.spec.digest:
            await self._correct(key, desired.spec)
        if desired.spec is not None and key in self._condition_values:
            await self._write_condition(key, self._condition_values[key])

    async def _create(self, key: RequestKey, pod: Metadata, spec: InternedSpec) -> None:
        members = await self._sizes.members(pod) if "coLocation" in spec.body else 0
        try:
            body = requests.manifest_for(pod, key.name, spec.body, members)
            await self._client.create(key.collection, body)
        except ApiError as error:
            if error.reason != ALREADY_EXISTS:
                raise
            _count("create", "exists")  # the watch will deliver it
            return
        self._existing.wrote(key, spec)
        _count("create", "ok")

    async def _correct(self, key: RequestKey, spec: InternedSpec) -> None:
        patch = [{"op": "replace", "path": "/spec", "value": spec.body}]
        await self._client.patch(key.path, patch, JSON_PATCH)
        self._existing.wrote(key, spec)
        _count("update", "ok")

    async def _delete(self, key: RequestKey) -> None:
        try:
            await self._client.delete(key.path)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        self._existing.remove(key)
        _count("delete", "ok")

    async def _write_condition(self, key: RequestKey, value: ConditionValue) -> None:
        condition = {
            "type": ADDITIONAL_CAPACITY,
            "status": value.status,
            "reason": value.reason,
            "message": value.message[:_MAX_MESSAGE_LENGTH],
            "lastTransitionTime": rfc3339(self._wall()),
        }
        head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest"}
        body = {**head, "metadata": {"name": key.name}, "status": {"conditions": [condition]}}
        await self._client.patch(f"{key.path}/status", body, APPLY_PATCH, _APPLY)
        if self._condition_values.get(key) is value:
            del self._condition_values[key]

    def _on_rejected(self, key: RequestKey, error: ApiError) -> None:
        self._condition_values.pop(key, None)
        _count("write", f"refused-{error.status}")
        _LOG.warning("CapacityRequest %s/%s was rejected: %s", key.namespace, key.name, error)


def _count(operation: str, outcome: str) -> None:
    metrics.pod_controller_requests.labels(operation, outcome).inc()
