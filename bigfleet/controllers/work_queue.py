"""A work queue of keys: bounded concurrency, one worker per key, retries with backoff."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from bigfleet.kube.client import CONFLICT, FORBIDDEN, UNAUTHORIZED, ApiError, is_transient
from bigfleet.model.retry_delays import RetryDelays
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_RETRIES = RetryDelays(0.1, 30.0)
# Of what is denied: rights that are not known yet come soon, those that are missing after hours.
_RETRIES_IF_DENIED = RetryDelays(5.0, 600.0)

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Keys to reconcile; a key added while it is processed is processed again.

    `work(key)` reconciles one key. After a transient or unexpected error, or a conflict, the key is
    requeued with exponential backoff. Any other ApiError goes to `on_rejected`; of these, what was
    denied (401, 403) is requeued as well, since an API server that has just started, a policy or a
    full ResourceQuota denies what it permits later.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[None]],
        concurrency: int,
        on_rejected: Callable[[K, ApiError], None],
    ) -> None:
        self._work, self._concurrency, self._on_rejected = work, concurrency, on_rejected
        self._waiting: deque[K] = deque()
        self._queued: set[K] = set()
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._failures: dict[K, int] = {}
        self._done_events: dict[K, asyncio.Event] = {}
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queued) + len(self._processing)

    def add(self, key: K) -> None:
        """Queue `key`, unless it is queued already."""
        if key in self._processing:
            self._dirty.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._waiting.append(key)
            self._not_empty.set()

    async def wait_done(self, key: K) -> None:
        """Wait until `key` is neither queued nor processed; pending retries do not count."""
        while key in self._queued or key in self._processing:
            waiter = self._done_events.setdefault(key, asyncio.Event())
            await waiter.wait()

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._concurrency):
                workers.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            while not self._waiting:
                self._not_empty.clear()
                await self._not_empty.wait()
            key = self._waiting.popleft()
            self._queued.discard(key)
            self._processing.add(key)
            try:
                await self._attempt(key)
            finally:
                self._processing.discard(key)
            if key in self._dirty:
                self._dirty.discard(key)
                self.add(key)
            elif waiter := self._done_events.pop(key, None):
                waiter.set()

    async def _attempt(self, key: K) -> None:
        try:
            await self._work(key)
        except Exception as error:  # noqa: BLE001 - unexpected errors are reported
            if is_transient(error):
                self._requeue_after(key, error)
            elif not isinstance(error, ApiError):
                self._unexpected(key, error)
            elif error.status == CONFLICT:
                self._requeue_after(key, error)
            else:
                self._on_rejected(key, error)
                if error.status in (UNAUTHORIZED, FORBIDDEN):
                    self._requeue(key, _RETRIES_IF_DENIED)
                else:
                    self._failures.pop(key, None)
        else:
            self._failures.pop(key, None)

    def _unexpected(self, key: K, error: Exception) -> None:
        """One object that triggers a bug must not block all others."""
        metrics.internal_errors.inc()
        _LOG.exception("unexpected error while reconciling %s; this is a bug", key)
        self._requeue_after(key, error)

    def _requeue_after(self, key: K, error: Exception) -> None:
        delay = self._requeue(key, _RETRIES)
        _LOG.warning("requeued, retrying in %.1f s: %s", delay, str(error) or repr(error))

    def _requeue(self, key: K, retries: RetryDelays) -> float:
        """Add the key again after a delay that doubles with each failure; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = retries.after(failures)
        asyncio.get_running_loop().call_later(delay, self.add, key)
        return delay


class RateLimiter:
    """Allows `per_second` operations a second, evenly spaced, over all callers."""

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._next = 0.0

    async def wait(self) -> None:
        """Wait for the next slot."""
        now = asyncio.get_running_loop().time()
        slot = max(now, self._next)
        self._next = slot + self._interval
        await asyncio.sleep(slot - now)
