"""The federated objects in the host cluster: a cache, and writes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.fedhpa.objects import (
    API_VERSION,
    AUTOSCALERS,
    FINALIZER,
    WORKLOADS,
    Autoscaler,
    Metadata,
    ObjectKey,
    Workload,
)
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from bigfleet.kube.timestamps import rfc3339
from bigfleet.kube.watch import Listed, Watch

_LOG = logging.getLogger(__name__)
_KINDS = {plural: kind for kind, plural in WORKLOADS.items()} | {
    AUTOSCALERS: "FederatedHorizontalPodAutoscaler"
}

Object = TypeVar("Object", Autoscaler, Workload)


class HostCluster:
    """A cache of the federated objects; calls `on_autoscaler` and `on_workload` on changes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.autoscalers: dict[ObjectKey, Autoscaler] = {}
        self.workloads: dict[ObjectKey, Workload] = {}
        self.on_autoscaler: Callable[[ObjectKey], None] = lambda _: None
        self.on_workload: Callable[[ObjectKey], None] = lambda _: None
        self._listed = {plural: asyncio.Event() for plural in (AUTOSCALERS, *WORKLOADS.values())}

    @property
    def listed(self) -> bool:
        """Whether all kinds are listed."""
        return all(each.is_set() for each in self._listed.values())

    def autoscalers_of(self, workload: ObjectKey) -> list[ObjectKey]:
        """The autoscalers with this target; only the one that claimed it, if any."""
        known = self.workloads.get(workload)
        if known is not None and known.autoscaled_by:
            return [ObjectKey(AUTOSCALERS, workload.namespace, known.autoscaled_by)]
        return [key for key, each in self.autoscalers.items() if each.target == workload]

    async def follow(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as watches:
            watches.create_task(self._follow(AUTOSCALERS, Autoscaler, self.autoscalers))
            for plural in WORKLOADS.values():
                watches.create_task(self._follow(plural, Workload, self.workloads))

    async def _follow(
        self, plural: str, kind: type[Object], known: dict[ObjectKey, Object]
    ) -> None:
        notify = self._notify_autoscaler if plural == AUTOSCALERS else self._notify_workload
        watch = Watch(self._client, f"{GROUP_VERSION}/{plural}", kind)
        async with aclosing(watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    listed = {_key(plural, item.metadata): item for item in change.items}
                    for gone in [k for k in known if k.plural == plural and k not in listed]:
                        del known[gone]
                        notify(gone)
                    known.update(listed)
                    self._listed[plural].set()
                    for key in listed:
                        notify(key)
                    continue
                key = _key(plural, change.item.metadata)
                if change.deleted:
                    known.pop(key, None)
                elif not _is_newer(known.get(key), change.item):
                    continue
                else:
                    known[key] = change.item
                notify(key)

    def _notify_autoscaler(self, key: ObjectKey) -> None:
        self.on_autoscaler(key)

    def _notify_workload(self, key: ObjectKey) -> None:
        self.on_workload(key)

    async def set_status(self, key: ObjectKey, status: dict[str, Any]) -> None:
        """Patch the object's status."""
        path = f"{key.path}/status"
        self._store(key, await self._client.patch(path, {"status": status}))

    async def annotate(self, key: ObjectKey, annotations: dict[str, str | None]) -> None:
        """Set a workload's annotations; None removes one."""
        body = {"metadata": {"annotations": annotations}}
        self._store(key, await self._client.patch(key.path, body))
        self.on_workload(key)

    async def scale(self, key: ObjectKey, replicas: int) -> None:
        """Set a federated workload's own replicas."""
        await self._client.patch(f"{key.path}/scale", {"spec": {"replicas": replicas}})

    async def add_finalizer(self, key: ObjectKey, metadata: Metadata) -> None:
        """Add the finalizer, which keeps the object until its objects in members are deleted."""
        await self._finalizers(key, metadata, [*metadata.finalizers, FINALIZER])

    async def remove_finalizer(self, key: ObjectKey, metadata: Metadata) -> None:
        """Remove the finalizer, once nothing is left in the members."""
        await self._finalizers(key, metadata, [f for f in metadata.finalizers if f != FINALIZER])

    async def _finalizers(self, key: ObjectKey, metadata: Metadata, wanted: list[str]) -> None:
        version = {"resourceVersion": metadata.resource_version, "finalizers": wanted}
        self._store(key, await self._client.patch(key.path, {"metadata": version}))

    def _store(self, key: ObjectKey, content: bytes) -> None:
        """Update the cache from the response to a write."""
        if key.plural == AUTOSCALERS:
            made = msgspec.json.decode(content, type=Autoscaler)
            if key in self.autoscalers and _is_newer(self.autoscalers[key], made):
                self.autoscalers[key] = made
        else:
            changed = msgspec.json.decode(content, type=Workload)
            if key in self.workloads and _is_newer(self.workloads[key], changed):
                self.workloads[key] = changed

    async def record_event(
        self, key: ObjectKey, metadata: Metadata, reason: str, message: str
    ) -> None:
        """Create an Event about the object; failures are only logged."""
        timestamp = rfc3339(time.time())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": _KINDS[key.plural],
                "name": key.name,
                "namespace": key.namespace,
                "uid": metadata.uid,
            },
            "reason": reason,
            "message": message,
            "type": "Normal",
            "source": {"component": "bigfleet-fedhpa"},
            "firstTimestamp": timestamp,
            "lastTimestamp": timestamp,
            "count": 1,
        }
        try:
            await self._client.create(f"/api/v1/namespaces/{key.namespace}/events", event)
        except (ApiError, *CONNECTION_ERRORS) as error:
            _LOG.warning("cannot create an Event for %s: %s", key.name, error)


def _key(plural: str, metadata: Metadata) -> ObjectKey:
    return ObjectKey(plural, metadata.namespace, metadata.name)


def _is_newer(known: Autoscaler | Workload | None, seen: Autoscaler | Workload) -> bool:
    if known is None or known.metadata.uid != seen.metadata.uid:
        return True
    return int(seen.metadata.resource_version or 0) > int(known.metadata.resource_version or 0)
