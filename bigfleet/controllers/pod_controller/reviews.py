"""Answers the operator's DisruptionReviews, which ask what Nodes can be drained."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.controllers.pod_controller.disruption import NodeDisruption, review
from bigfleet.controllers.pod_controller.occupancy import ClusterSnapshot
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.timestamps import rfc3339_micro
from bigfleet.kube.types import ObjectMeta
from bigfleet.kube.watch import Listed, Watch
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_REVIEWS = f"{GROUP_VERSION}/disruptionreviews"


class _Spec(msgspec.Struct, rename="camel"):
    max_nodes: int
    nodes: list[str] = []
    preferred: list[str] = []
    reclaiming: list[str] = []


class _Status(msgspec.Struct, rename="camel"):
    observed_at: str = ""


class _Review(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class Reviews:
    """Answers reviews one at a time, each in a thread.

    `snapshot` waits until Nodes and Pods are listed. `wall` is Unix time.
    """

    def __init__(
        self,
        client: KubeClient,
        snapshot: Callable[[], Awaitable[ClusterSnapshot]],
        wall: Callable[[], float],
    ) -> None:
        self._client, self._snapshot, self._wall = client, snapshot, wall
        self._watch = Watch(client, _REVIEWS, _Review)
        self._open: dict[str, _Spec] = {}
        self._queue: WorkQueue[str] = WorkQueue(self._answer, 1, self._on_rejected)

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._queue.run())
            loops.create_task(self._follow())

    async def _follow(self) -> None:
        async with aclosing(self._watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._open.clear()
                    for each in change.items:
                        self._observe(each)
                elif change.deleted:
                    self._open.pop(change.item.metadata.name, None)
                else:
                    self._observe(change.item)

    def _observe(self, asked: _Review) -> None:
        if not asked.status.observed_at:
            self._open[asked.metadata.name] = asked.spec
            self._queue.add(asked.metadata.name)

    async def _answer(self, name: str) -> None:
        snapshot = await self._snapshot()
        spec = self._open.get(name)
        if spec is None:
            return
        observed, started = self._wall(), time.perf_counter()
        verdicts = await asyncio.to_thread(
            review, snapshot, spec.max_nodes, spec.nodes, spec.preferred, spec.reclaiming
        )
        metrics.pod_controller_review_seconds.observe(time.perf_counter() - started)
        status = _status(verdicts, observed)
        await self._client.patch(f"{_REVIEWS}/{name}/status", {"status": status})
        self._open.pop(name, None)

    def _on_rejected(self, name: str, error: ApiError) -> None:
        self._open.pop(name, None)
        if error.status != NOT_FOUND:
            _LOG.error("cannot answer DisruptionReview %s: %s", name, error)


def _status(verdicts: Sequence[NodeDisruption], observed: float) -> Mapping[str, Any]:
    return {
        "observedAt": rfc3339_micro(observed),
        "nodes": [
            {
                "name": each.node,
                "pods": each.pods,
                "cost": each.cost,
                "fits": each.fits,
                **({"message": each.why} if each.why else {}),
            }
            for each in verdicts
        ],
    }
