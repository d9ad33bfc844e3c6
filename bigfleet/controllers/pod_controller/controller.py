"""Keeps CapacityRequests equal to what the Pods say: two watches in, a queue of writes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import CONFLICT, JSON_PATCH, NOT_FOUND, ApiError, KubeClient
from bigfleet.api.kube.watch import Listed, Watch
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.gangs import GangSizes
from bigfleet.controllers.pod_controller.pods import POD_UID_LABEL, ExistingRequest, Metadata, Pod
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_TOLD_LIMIT = 10_000


class Key(NamedTuple):
    """Where a request lives."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{_collection(self.namespace)}/{self.name}"


@dataclass(eq=False)
class _Spec:
    """A request's spec, shared by all Pods that ask for the same."""

    body: dict[str, Any]
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The Pod a request is for; `spec` is None when there must be none."""

    pod: Metadata
    spec: _Spec | None


class PodController:
    """Writes, corrects and deletes requests; those of vanished Pods are left to their owner."""

    def __init__(
        self, client: KubeClient, write_concurrency: int, ignored_namespaces: Sequence[str] = ()
    ) -> None:
        self._client, self._gangs = client, GangSizes(client)
        others = [f"metadata.namespace!={namespace}" for namespace in ignored_namespaces]
        self._pods = Watch(client, "/api/v1/pods", Pod, {"fieldSelector": ",".join(others)})
        self._requests = Watch(
            client,
            f"{GROUP_VERSION}/capacityrequests",
            ExistingRequest,
            {"labelSelector": POD_UID_LABEL},
        )
        self._wanted: dict[Key, _Wanted] = {}
        self._existing: dict[Key, bytes] = {}
        self._specs: WeakValueDictionary[bytes, _Spec] = WeakValueDictionary()
        self._told: set[tuple[str, str]] = set()
        self._requests_listed, self._pods_listed = asyncio.Event(), asyncio.Event()
        self._queue: WorkQueue[Key] = WorkQueue(self._reconcile, write_concurrency, self._refused)

    def not_ready(self) -> str:
        """Why not every Pod has been looked at yet; "" once they have."""
        if self._pods_listed.is_set():
            return ""
        watch = self._pods if self._requests_listed.is_set() else self._requests
        return f"{watch.path} is not listed yet {watch.stats.last_error}".strip()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._follow_requests())
            loops.create_task(self._follow_pods())
            loops.create_task(self._queue.run())

    async def _follow_requests(self) -> None:
        async with aclosing(self._requests.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._existing = {_key_of(r): _digest(r.spec) for r in change.items}
                    for key in self._wanted:
                        self._queue.add(key)
                    self._requests_listed.set()
                    continue
                key = _key_of(change.item)
                if change.deleted:
                    self._existing.pop(key, None)
                else:
                    self._existing[key] = _digest(change.item.spec)
                self._queue.add(key)

    async def _follow_pods(self) -> None:
        # Before the requests are known, everything would look as if it had to be created.
        await self._requests_listed.wait()
        async with aclosing(self._pods.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._wanted = {}
                    for pod in change.items:
                        self._see(pod)
                    self._pods_listed.set()
                elif change.deleted:
                    self._wanted.pop(_key_for(change.item.metadata), None)
                else:
                    self._see(change.item)

    def _see(self, pod: Pod) -> None:
        key = _key_for(pod.metadata)
        spec = self._spec(pod) if requests.wants_request(pod) else None
        before = self._wanted.get(key)
        self._wanted[key] = _Wanted(pod.metadata, spec)
        if before is None or before.spec is not spec:
            self._queue.add(key)

    def _spec(self, pod: Pod) -> _Spec | None:
        try:
            body = requests.request_for(pod)
        except requests.Unsupported as error:
            self._tell(pod, error.field, f"gets no CapacityRequest: {error}")
            return None
        for field in requests.ignored_wishes(pod):
            self._tell(pod, field, f"has {field}, which its CapacityRequest does not carry")
        digest = _digest(body)
        spec = self._specs.get(digest)
        if spec is None:
            spec = self._specs[digest] = _Spec(body, digest)
        return spec

    def _tell(self, pod: Pod, field: str, sentence: str) -> None:
        """Count each Pod that is seen anew; say it once for its workload."""
        if _key_for(pod.metadata) not in self._wanted:
            metrics.pod_controller_not_carried.labels(field).inc()
        if len(self._told) >= _TOLD_LIMIT:
            self._told.clear()
        if (pod.workload, field) not in self._told:
            self._told.add((pod.workload, field))
            _LOG.warning("%s: pod %s %s", pod.workload, pod.metadata.name, sentence)

    async def _reconcile(self, key: Key) -> None:
        wanted, existing = self._wanted.get(key), self._existing.get(key)
        if wanted is None:
            return  # the Pod is gone and the garbage collector takes its request along
        if wanted.spec is None:
            if existing is not None:
                await self._delete(key)
        elif existing is None:
            await self._create(key, wanted.pod, wanted.spec)
        elif existing != wanted.spec.digest:
            await self._correct(key, wanted.spec)

    async def _create(self, key: Key, pod: Metadata, spec: _Spec) -> None:
        members = await self._gangs.members(pod) if "coLocation" in spec.body else 0
        try:
            body = requests.manifest_for(pod, spec.body, members)
            await self._client.create(_collection(key.namespace), body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            _count("create", "exists")  # our watch will show it, and what is in it
            return
        self._existing[key] = spec.digest
        _count("create", "ok")

    async def _correct(self, key: Key, spec: _Spec) -> None:
        patch = [{"op": "replace", "path": "/spec", "value": spec.body}]
        await self._client.patch(key.path, patch, JSON_PATCH)
        self._existing[key] = spec.digest
        _count("update", "ok")

    async def _delete(self, key: Key) -> None:
        try:
            await self._client.delete(key.path)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        self._existing.pop(key, None)
        _count("delete", "ok")

    def _refused(self, key: Key, error: ApiError) -> None:
        _count("write", f"refused-{error.status}")
        _LOG.warning("capacity request %s/%s was refused: %s", key.namespace, key.name, error)


def _count(operation: str, outcome: str) -> None:
    metrics.pod_controller_requests.labels(operation, outcome).inc()


def _collection(namespace: str) -> str:
    return f"{GROUP_VERSION}/namespaces/{namespace}/capacityrequests"


def _key_for(pod: Metadata) -> Key:
    return Key(pod.namespace, requests.request_name(pod.name, pod.uid))


def _key_of(request: ExistingRequest) -> Key:
    return Key(request.metadata.namespace, request.metadata.name)


def _digest(spec: dict[str, Any]) -> bytes:
    return blake2b(msgspec.json.encode(spec, order="deterministic"), digest_size=16).digest()
