"""Acknowledges CapacityRequests in their status, rate limited, without delaying roll-ups."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Set

from bigfleet.api.install import GROUP_VERSION
from bigfleet.controllers.operator.aggregate import NeedKey
from bigfleet.controllers.operator.request_cache import RequestCache, RequestKey
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.timestamps import rfc3339_micro
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 16
_TICK_SECONDS = 0.05


class Acknowledger:
    """Acknowledges at most `per_second` requests a second, none for 0. `now` is Unix time."""

    def __init__(
        self,
        client: KubeClient,
        request_cache: RequestCache,
        per_second: float,
        now: Callable[[], float],
    ) -> None:
        self._client, self._request_cache, self._per_second, self._now = (
            client,
            request_cache,
            per_second,
            now,
        )
        self._due: deque[RequestKey] = deque()
        self._accepted_at: dict[RequestKey, str] = {}
        self._due_event = asyncio.Event()
        self._queue: WorkQueue[RequestKey] = WorkQueue(
            self._acknowledge, _CONCURRENCY, self._on_rejected
        )

    def accepted(self, version: int, excluded: Set[NeedKey]) -> None:
        """The shard accepted a roll-up of this version, but for the rows `excluded`."""
        if not self._per_second:
            return
        accepted_at = rfc3339_micro(self._now())
        for key in self._request_cache.take_unacknowledged(version, excluded):
            self._accepted_at[key] = accepted_at
            self._due.append(key)
            self._due_event.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._pace())

    async def _pace(self) -> None:
        allowance = 0.0
        while True:
            if not self._due:
                self._due_event.clear()
                allowance = 0.0
                await self._due_event.wait()
            allowance += self._per_second * _TICK_SECONDS
            while self._due and allowance >= 1:
                allowance -= 1
                self._queue.add(self._due.popleft())
            await asyncio.sleep(_TICK_SECONDS)

    async def _acknowledge(self, key: RequestKey) -> None:
        accepted_at = self._accepted_at.get(key)
        if accepted_at is None or key not in self._request_cache:
            self._accepted_at.pop(key, None)
            return
        path = f"{GROUP_VERSION}/namespaces/{key.namespace}/capacityrequests/{key.name}/status"
        status = {"phase": "Acknowledged", "acknowledgedAt": accepted_at}
        await self._client.patch(path, {"status": status})
        self._accepted_at.pop(key, None)
        metrics.operator_acknowledged.inc()

    def _on_rejected(self, key: RequestKey, error: ApiError) -> None:
        self._accepted_at.pop(key, None)
        if error.status != NOT_FOUND:
            _LOG.error("cannot acknowledge %s/%s: %s", key.namespace, key.name, error)
