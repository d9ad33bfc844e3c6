"""Keeps CapacityRequests equal to what the Pods say: two watches in, a queue of writes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import (
    CONFLICT,
    JSON_PATCH,
    NO_ANSWER,
    NOT_FOUND,
    ApiError,
    KubeClient,
)
from bigfleet.api.kube.watch import Listed, Watch
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.domains import Domains
from bigfleet.controllers.pod_controller.gangs import GangSizes
from bigfleet.controllers.pod_controller.pods import POD_UID_LABEL, ExistingRequest, Metadata, Pod
from bigfleet.controllers.pod_controller.stranded import MOST_TIMES, Gangs, Stranded
from bigfleet.controllers.pod_controller.volumes import Volumes
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_TOLD_LIMIT = 10_000
_LOOK_FOR_STRANDED_SECONDS = 5.0


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
    """Writes, corrects and deletes requests; those of vanished Pods are left to their owner.

    `now` is in seconds and never goes back.
    """

    def __init__(
        self,
        client: KubeClient,
        write_concurrency: int,
        now: Callable[[], float],
        ignored_namespaces: Sequence[str] = (),
    ) -> None:
        self._client, self._sizes, self._domains = client, GangSizes(client), Domains(client)
        self._now, self._gangs, self._volumes = now, Gangs[Key](), Volumes(client, self._see)
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
            return self._volumes.not_ready()
        watch = self._pods if self._requests_listed.is_set() else self._requests
        return f"{watch.path} is not listed yet {watch.stats.last_error}".strip()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._follow_requests())
            loops.create_task(self._follow_pods())
            loops.create_task(self._look_for_stranded())
            loops.create_task(self._volumes.run())
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
                    self._wanted, self._gangs = {}, Gangs()
                    self._volumes.forget_all()
                    for pod in change.items:
                        self._see(pod)
                    self._pods_listed.set()
                elif change.deleted:
                    self._forget(change.item.metadata)
                else:
                    self._see(change.item)

    def _see(self, pod: Pod) -> None:
        key, wants = _key_for(pod.metadata), requests.wants_request(pod)
        if not self._volumes.see(pod, wants):
            return  # we are called again with it once its claims are known
        spec = self._spec(pod) if wants else None
        self._want(key, _Wanted(pod.metadata, spec))
        if spec is None:
            self._gangs.forget(key)
            for further in self._further(key):
                self._want(further, _Wanted(pod.metadata, None))
        elif term := spec.body.get("coLocation"):
            gang = key.namespace, msgspec.json.encode(term, order="deterministic")
            self._gangs.see(key, gang, pod.spec.node_name, self._now())

    def _want(self, key: Key, wanted: _Wanted) -> None:
        before = self._wanted.get(key)
        self._wanted[key] = wanted
        if before is None or before.spec is not wanted.spec:
            self._queue.add(key)

    def _forget(self, pod: Metadata) -> None:
        key = _key_for(pod)
        self._volumes.forget(pod.uid)
        self._gangs.forget(key)
        for each in (key, *self._further(key)):
            self._wanted.pop(each, None)

    def _further(self, key: Key) -> Iterator[Key]:
        """What else was asked for, for the Pod whose first request is `key`."""
        for each in _stranded_keys(key, MOST_TIMES):
            if each in self._wanted or each in self._existing:
                yield each

    async def _look_for_stranded(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_FOR_STRANDED_SECONDS)
            for stranded in list(self._gangs.stranded(self._now())):
                try:
                    await self._ask_again(stranded)
                except (ApiError, *NO_ANSWER) as error:
                    _LOG.warning("cannot look at node %s: %s", stranded.beside, error)

    async def _ask_again(self, stranded: Stranded[Key]) -> None:
        """A request of a stranded Pod stays as long as the Pod: it lives on what came of it."""
        first = self._wanted.get(stranded.pod)
        if first is None or first.spec is None:
            return  # it ended while we looked at another
        topology_key = first.spec.body["coLocation"]["topologyKey"]
        domain = await self._domains.of(stranded.beside, topology_key)
        if domain is None or self._wanted.get(stranded.pod) is not first:
            return
        spec = self._shared(requests.stranded_request(first.spec.body, domain))
        for key in _stranded_keys(stranded.pod, stranded.times):
            if key not in self._wanted:
                _LOG.info("%s/%s: its gang holds its pod to %s, which is full", *key, domain)
                self._want(key, _Wanted(first.pod, spec))

    def _spec(self, pod: Pod) -> _Spec | None:
        try:
            if (volumes := self._volumes.choices_of(pod)) is None:
                return None  # kube-scheduler waits for its claims, too
            body = requests.request_for(pod, volumes)
        except Unsupported as error:
            self._tell(pod, error.field, f"gets no CapacityRequest: {error}")
            return None
        for field in requests.not_carried(pod):
            self._tell(pod, field, f"has {field}, which its CapacityRequest does not carry")
        return self._shared(body)

    def _shared(self, body: dict[str, Any]) -> _Spec:
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
        members = await self._sizes.members(pod) if "coLocation" in spec.body else 0
        try:
            body = requests.manifest_for(pod, key.name, spec.body, members)
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


def _stranded_keys(first: Key, times: int) -> Iterator[Key]:
    for name in requests.stranded_names(first.name, times):
        yield Key(first.namespace, name)


def _key_of(request: ExistingRequest) -> Key:
    return Key(request.metadata.namespace, request.metadata.name)


def _digest(spec: dict[str, Any]) -> bytes:
    return blake2b(msgspec.json.encode(spec, order="deterministic"), digest_size=16).digest()
