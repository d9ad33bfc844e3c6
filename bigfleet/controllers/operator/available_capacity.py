"""The shard's hints about available machines, published as AvailableCapacity objects.

An object is deleted when its hint is withdrawn, or when a new session does not repeat it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.api.v1alpha1.shard_pb2 import AvailableCapacityUpdate
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.kube.client import APPLY_PATCH, CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import Named, ObjectList

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 4
_APPLY = {"fieldManager": "bigfleet-operator", "force": "true"}
_AVAILABILITY = {
    AvailableCapacityUpdate.NONE: "None",
    AvailableCapacityUpdate.LOW: "Low",
    AvailableCapacityUpdate.MEDIUM: "Medium",
    AvailableCapacityUpdate.HIGH: "High",
}
_OPERATORS = {
    NodeSelectorRequirement.IN: "In",
    NodeSelectorRequirement.NOT_IN: "NotIn",
    NodeSelectorRequirement.EXISTS: "Exists",
    NodeSelectorRequirement.DOES_NOT_EXIST: "DoesNotExist",
}


_PATH = f"{GROUP_VERSION}/availablecapacities"
_NAME_PREFIX = "ac-"
# A shard sends hints every few seconds; an overloaded one takes longer.
RESEND_TIMEOUT_SECONDS = 60.0


class AvailableCapacityPublisher:
    """Publishes the newest hint for each demand."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._latest: dict[str, AvailableCapacityUpdate] = {}
        self._reported: set[str] = set()
        self._stale: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue(self._publish, _CONCURRENCY, self._on_rejected)
        self.run = self._queue.run

    def enqueue(self, update: AvailableCapacityUpdate) -> None:
        """Publish `update` soon, unless a newer one for the same demand comes first."""
        name = availability_name(update.supersedes_key)
        self._latest[name] = update
        self._reported.add(name)
        self._stale.discard(name)
        self._queue.add(name)

    async def sweep(self) -> None:
        """At the start of a session, wait until all hints were sent, and delete stale objects.

        Cancelled with the session.
        """
        try:
            await self._sweep()
            await asyncio.Event().wait()
        finally:
            self._reported.clear()  # now: the next session may send hints before its sweep

    async def _sweep(self) -> None:
        await asyncio.sleep(RESEND_TIMEOUT_SECONDS)
        while True:
            try:
                content = await self._client.get(_PATH)
                break
            except (ApiError, *CONNECTION_ERRORS) as error:
                _LOG.warning(
                    "cannot list AvailableCapacity, retrying: %s", str(error) or repr(error)
                )
            await asyncio.sleep(RESEND_TIMEOUT_SECONDS)
        for item in msgspec.json.decode(content, type=ObjectList[Named]).items:
            name = item.metadata.name
            if name.startswith(_NAME_PREFIX) and name not in self._reported:
                self._stale.add(name)
                self._queue.add(name)

    async def _publish(self, name: str) -> None:
        update = self._latest.pop(name, None)
        try:
            if name in self._stale or (update is not None and update.withdrawn):
                await self._delete(name)
                self._stale.discard(name)
            elif update is not None:
                await self._client.patch(
                    f"{_PATH}/{name}", availability_object(update), APPLY_PATCH, _APPLY
                )
        except Exception:
            if update is not None:
                self._latest.setdefault(name, update)
            raise

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(f"{_PATH}/{name}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _on_rejected(self, name: str, error: ApiError) -> None:
        self._latest.pop(name, None)
        _LOG.error("cannot publish AvailableCapacity %s: %s", name, error)


def availability_name(supersedes_key: str) -> str:
    """The object's name, the same for all hints about one demand."""
    return f"{_NAME_PREFIX}{hashlib.sha256(supersedes_key.encode()).hexdigest()[:16]}"


def availability_object(update: AvailableCapacityUpdate) -> dict[str, Any]:
    """The AvailableCapacity object. SAME is omitted: it is not a property of a machine."""
    requirements = [
        {"key": r.key, "operator": _OPERATORS[r.operator], "values": list(r.values)}
        for r in update.requirements
        if r.operator in _OPERATORS
    ]
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "AvailableCapacity",
        "metadata": {"name": availability_name(update.supersedes_key)},
        "spec": {
            "availability": _AVAILABILITY.get(update.confidence, "None"),
            "availableCount": update.available_count,
            "cost": f"{update.cost_per_hour:.6f}",
            "resources": dict(update.resources.resources),
            **({"requirements": requirements} if requirements else {}),
        },
    }
