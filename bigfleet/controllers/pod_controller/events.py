"""Events on Pods, for `kubectl describe pod`, rate limited and deduplicated."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from bigfleet.controllers.work_queue import RateLimiter, WorkQueue
from bigfleet.kube.client import APPLY_PATCH, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.timestamps import rfc3339
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_PER_SECOND = 20.0
_CONCURRENCY = 4
_REPEAT_INTERVAL_SECONDS = 600.0
_CACHE_SIZE = 100_000
_COMPONENT = "bigfleet-pod-controller"
_APPLY = {"fieldManager": _COMPONENT, "force": "true"}
_MAX_MESSAGE_LENGTH, _MAX_NAME_LENGTH = 1024, 200


class PodName(NamedTuple):
    """A Pod's name and UID."""

    namespace: str
    name: str
    uid: str


class _Key(NamedTuple):
    pod: PodName
    reason: str


@dataclass(slots=True)
class _EventState:
    type: str
    message: str
    first: float
    written_at: float | None = None
    count: int = 0
    waiting: bool = True


class PodEvents:
    """Writes one Event object for each Pod and reason, with a count.

    It is written when it is new or its message changes, and again every ten minutes while it still
    holds. `now` is Unix time.
    """

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now
        self._event_states: OrderedDict[_Key, _EventState] = OrderedDict()
        self._rate_limiter = RateLimiter(_PER_SECOND)
        self._queue: WorkQueue[_Key] = WorkQueue(self._write, _CONCURRENCY, self._on_rejected)
        self.run = self._queue.run

    def enqueue(self, pod: PodName, event_type: str, reason: str, message: str) -> None:
        """Record an event for `pod`; `event_type` is Normal or Warning."""
        key, message = _Key(pod, reason), message[:_MAX_MESSAGE_LENGTH]
        state = self._event_states.get(key)
        if state is None:
            state = self._event_states[key] = _EventState(event_type, message, self._now())
            self._queue.add(key)
            self._evict_oldest()
        elif not state.waiting and self._needs_write(state, message):
            state.waiting = True
            self._queue.add(key)
        state.message = message if state.waiting else state.message

    def forget(self, pod: PodName, reason: str) -> None:
        """Drop an event that no longer holds, if it has not been written yet."""
        state = self._event_states.get(_Key(pod, reason))
        if state is not None and state.written_at is None:
            del self._event_states[_Key(pod, reason)]

    def _needs_write(self, state: _EventState, message: str) -> bool:
        silent = self._now() - (state.written_at or 0.0)
        return silent >= _REPEAT_INTERVAL_SECONDS or (message != state.message and silent >= 60.0)

    def _evict_oldest(self) -> None:
        if len(self._event_states) > _CACHE_SIZE:
            self._event_states.popitem(last=False)

    async def _write(self, key: _Key) -> None:
        await self._rate_limiter.wait()
        state = self._event_states.get(key)
        if state is None:
            return
        now = self._now()
        body = _event(key, state, state.count + 1, now)
        path = f"/api/v1/namespaces/{key.pod.namespace}/events/{body['metadata']['name']}"
        await self._client.patch(path, body, APPLY_PATCH, _APPLY)
        state.count, state.written_at, state.waiting = state.count + 1, now, False
        metrics.pod_controller_events.labels(key.reason).inc()

    def _on_rejected(self, key: _Key, error: ApiError) -> None:
        state = self._event_states.get(key)
        if state is not None:
            state.written_at, state.waiting = self._now(), False
        if error.status != NOT_FOUND:
            _LOG.warning("no Event for pod %s/%s: %s", key.pod.namespace, key.pod.name, error)


def _event(key: _Key, state: _EventState, count: int, now: float) -> dict[str, Any]:
    pod = key.pod
    unique = blake2b(f"{pod.uid}/{key.reason}".encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.name[:_MAX_NAME_LENGTH].rstrip('.-')}.{unique}",
            "namespace": pod.namespace,
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **pod._asdict()},
        "type": state.type,
        "reason": key.reason,
        "message": state.message,
        "count": count,
        "firstTimestamp": rfc3339(state.first),
        "lastTimestamp": rfc3339(now),
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
    }
