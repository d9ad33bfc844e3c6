"""The shard's hints about machines that could be had, published as AvailableCapacity objects."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import APPLY_PATCH, ApiError, KubeClient
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.api.v1alpha1.shard_pb2 import AvailableCapacityUpdate
from bigfleet.controllers.work_queue import WorkQueue

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


class Hints:
    """Publishes hints, the newest of each kind of demand only."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._latest: dict[str, AvailableCapacityUpdate] = {}
        self._queue: WorkQueue[str] = WorkQueue(self._publish, _CONCURRENCY, self._refused)
        self.run = self._queue.run

    def offer(self, update: AvailableCapacityUpdate) -> None:
        """Publish `update` soon, unless a newer one for the same demand comes first."""
        name = hint_name(update.supersedes_key)
        self._latest[name] = update
        self._queue.add(name)

    async def _publish(self, name: str) -> None:
        update = self._latest.pop(name, None)
        if update is None:
            return
        path = f"{GROUP_VERSION}/availablecapacities/{name}"
        try:
            await self._client.patch(path, hint_object(update), APPLY_PATCH, _APPLY)
        except Exception:
            self._latest.setdefault(name, update)
            raise

    def _refused(self, name: str, error: ApiError) -> None:
        self._latest.pop(name, None)
        _LOG.error("cannot publish the hint %s: %s", name, error)


def hint_name(supersedes_key: str) -> str:
    """The object's name: the same for every hint about the same demand."""
    return f"ac-{hashlib.sha256(supersedes_key.encode()).hexdigest()[:16]}"


def hint_object(update: AvailableCapacityUpdate) -> dict[str, Any]:
    """The AvailableCapacity object. Wanting one domain is no property of a machine: left out."""
    requirements = [
        {"key": r.key, "operator": _OPERATORS[r.operator], "values": list(r.values)}
        for r in update.requirements
        if r.operator in _OPERATORS
    ]
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "AvailableCapacity",
        "metadata": {"name": hint_name(update.supersedes_key)},
        "spec": {
            "availability": _AVAILABILITY.get(update.confidence, "None"),
            "availableCount": update.available_count,
            "cost": f"{update.cost_per_hour:.6f}",
            "resources": dict(update.resources.resources),
            **({"requirements": requirements} if requirements else {}),
        },
    }
