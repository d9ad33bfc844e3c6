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
# After an urgent key, others are likely to become urgent.
_CALM_AFTER_SECONDS = 5.0
_LATE_AFTER_SECONDS = 60.0

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Keys to reconcile; a key added while it is processed is processed again.

    `work(key)` reconciles one key, for up to `concurrency` keys at once. Those for which
    `is_urgent(key)` holds when they are added come first. Of the others at most `not_urgent` are
    processed at once (as many as urgent ones when None), unless an urgent one was added in the last
    seconds, or the oldest has waited for a minute.

    After a transient or unexpected error, or a conflict, the key is requeued with exponential
    backoff. Any other ApiError goes to `on_rejected`; of these, what was denied (401, 403) is
    requeued as well, since an API server that has just started, a policy or a full ResourceQuota
    denies what it permits later.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[None]],
        concurrency: int,
        on_rejected: Callable[[K, ApiError], None],
        is_urgent: Callable[[K], bool] = lambda _: False,
        not_urgent: int | None = None,
    ) -> None:
        self._work, self._concurrency, self._on_rejected = work, concurrency, on_rejected
        self._is_urgent = is_urgent
        self._not_urgent = concurrency if not_urgent is None else not_urgent
        # A key that becomes urgent while it waits is in both.
        self._urgent: deque[K] = deque()
        self._waiting: deque[tuple[float, K]] = deque()  # since when, on the event loop's clock
        self._queued: dict[K, bool] = {}  # whether it is urgent
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._failures: dict[K, int] = {}
        self._done_events: dict[K, asyncio.Event] = {}
        # The second one is for the workers that only process urgent keys, as long as it is calm.
        self._added, self._added_for_all = asyncio.Event(), asyncio.Event()
        self._calm_from = 0.0  # on the same clock

    def __len__(self) -> int:
        return len(self._queued) + len(self._processing)

    def add(self, key: K) -> None:
        """Queue `key`, unless it is queued already; it may have become urgent since."""
        if key in self._processing:
            self._dirty.add(key)
            return
        urgent = self._is_urgent(key)
        if key in self._queued and (self._queued[key] or not urgent):
            return
        self._queued[key] = urgent
        now = asyncio.get_running_loop().time()
        if urgent:
            self._urgent.append(key)
            self._calm_from = now + _CALM_AFTER_SECONDS
        else:
            self._waiting.append((now, key))
        self._added.set()
        if urgent or self._in_a_hurry():
            self._added_for_all.set()

    async def wait_done(self, key: K) -> None:
        """Wait until `key` is neither queued nor processed; pending retries do not count."""
        while key in self._queued or key in self._processing:
            waiter = self._done_events.setdefault(key, asyncio.Event())
            await waiter.wait()

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for number in range(self._concurrency):
                workers.create_task(self._worker(only_urgent=number >= self._not_urgent))

    async def _worker(self, *, only_urgent: bool) -> None:
        added = self._added_for_all if only_urgent else self._added
        while True:
            while (key := self._take(only_urgent=only_urgent)) is None:
                added.clear()
                await added.wait()
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

    def _in_a_hurry(self) -> bool:
        """Whether all workers process keys that are not urgent, too."""
        now = asyncio.get_running_loop().time()
        is_late = bool(self._waiting) and self._waiting[0][0] < now - _LATE_AFTER_SECONDS
        return is_late or now < self._calm_from

    def _take(self, *, only_urgent: bool) -> K | None:
        """The next key, no longer queued; None if there is none."""
        while self._urgent:
            if self._queued.pop(key := self._urgent.popleft(), None) is not None:
                return key
        while self._waiting and (not only_urgent or self._in_a_hurry()):
            # A key that has become urgent since, and is done, is not queued any more.
            if self._queued.pop(key := self._waiting.popleft()[1], None) is not None:
                return key
        return None

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
