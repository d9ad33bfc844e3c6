"""Tells requests that they are known: one paced write each, never in the way of roll-ups."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Set
from datetime import UTC, datetime

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import NOT_FOUND, ApiError, KubeClient
from bigfleet.controllers.operator.aggregate import RowKey
from bigfleet.controllers.operator.ledger import Key, Ledger
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 16
_TICK_SECONDS = 0.05


class Acknowledger:
    """Acknowledges at most `per_second` requests a second; 0 means none at all.

    `now` is the time in seconds since 1970.
    """

    def __init__(
        self, client: KubeClient, ledger: Ledger, per_second: float, now: Callable[[], float]
    ) -> None:
        self._client, self._ledger, self._per_second, self._now = client, ledger, per_second, now
        self._due: deque[Key] = deque()
        self._accepted_at: dict[Key, str] = {}
        self._something_due = asyncio.Event()
        self._queue: WorkQueue[Key] = WorkQueue(self._acknowledge, _CONCURRENCY, self._refused)

    def accepted(self, version: int, left_out: Set[RowKey]) -> None:
        """A roll-up of this version of the aggregate, without these rows, is in force."""
        if not self._per_second:
            return
        moment = rfc3339(self._now())
        for key in self._ledger.answered(version, left_out):
            self._accepted_at[key] = moment
            self._due.append(key)
            self._something_due.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._pace())

    async def _pace(self) -> None:
        allowance = 0.0
        while True:
            if not self._due:
                self._something_due.clear()
                allowance = 0.0
                await self._something_due.wait()
            allowance += self._per_second * _TICK_SECONDS
            while self._due and allowance >= 1:
                allowance -= 1
                self._queue.add(self._due.popleft())
            await asyncio.sleep(_TICK_SECONDS)

    async def _acknowledge(self, key: Key) -> None:
        moment = self._accepted_at.get(key)
        if moment is None or key not in self._ledger:
            self._accepted_at.pop(key, None)
            return
        path = f"{GROUP_VERSION}/namespaces/{key.namespace}/capacityrequests/{key.name}/status"
        status = {"phase": "Acknowledged", "acknowledgedAt": moment}
        await self._client.patch(path, {"status": status})
        self._accepted_at.pop(key, None)
        metrics.operator_acknowledged.inc()

    def _refused(self, key: Key, error: ApiError) -> None:
        self._accepted_at.pop(key, None)
        if error.status != NOT_FOUND:
            _LOG.error("cannot acknowledge %s/%s: %s", key.namespace, key.name, error)


def rfc3339(seconds: float) -> str:
    """Seconds since 1970 as Kubernetes writes moments, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
