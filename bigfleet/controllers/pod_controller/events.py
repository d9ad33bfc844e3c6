"""Events on Pods, for `kubectl describe pod`: few a second, and each story once in a while."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from bigfleet.api.kube.client import APPLY_PATCH, NOT_FOUND, ApiError, KubeClient
from bigfleet.controllers.work_queue import Pace, WorkQueue
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_PER_SECOND = 20.0
_CONCURRENCY = 4
_AGAIN_SECONDS = 600.0
_REMEMBERED = 100_000
_COMPONENT = "bigfleet-pod-controller"
_APPLY = {"fieldManager": _COMPONENT, "force": "true"}
_MOST_MESSAGE, _MOST_NAME = 1024, 200


class PodName(NamedTuple):
    """Which Pod, among all that ever had its name."""

    namespace: str
    name: str
    uid: str


class _Key(NamedTuple):
    pod: PodName
    reason: str


@dataclass(slots=True)
class _Story:
    type: str
    message: str
    first: float
    written_at: float | None = None
    count: int = 0
    waiting: bool = True


class PodEvents:
    """One Event object for each Pod and reason, which counts.

    It is written when it is new or says something else, and again ten minutes later if it is still
    true. `now` is the time in seconds since 1970.
    """

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now
        self._stories: OrderedDict[_Key, _Story] = OrderedDict()
        self._pace = Pace(_PER_SECOND)
        self._queue: WorkQueue[_Key] = WorkQueue(self._write, _CONCURRENCY, self._refused)
        self.run = self._queue.run

    def offer(self, pod: PodName, kind: str, reason: str, message: str) -> None:
        """This is true of `pod` now; `kind` is Normal or Warning."""
        key, message = _Key(pod, reason), message[:_MOST_MESSAGE]
        story = self._stories.get(key)
        if story is None:
            story = self._stories[key] = _Story(kind, message, self._now())
            self._queue.add(key)
            self._shorten()
        elif not story.waiting and self._is_news(story, message):
            story.waiting = True
            self._queue.add(key)
        story.message = message if story.waiting else story.message

    def forget(self, pod: PodName, reason: str) -> None:
        """It is not true any more: it need not be written if it has not been."""
        story = self._stories.get(_Key(pod, reason))
        if story is not None and story.written_at is None:
            del self._stories[_Key(pod, reason)]

    def _is_news(self, story: _Story, message: str) -> bool:
        silent = self._now() - (story.written_at or 0.0)
        return silent >= _AGAIN_SECONDS or (message != story.message and silent >= 60.0)

    def _shorten(self) -> None:
        if len(self._stories) > _REMEMBERED:
            self._stories.popitem(last=False)

    async def _write(self, key: _Key) -> None:
        await self._pace.turn()
        story = self._stories.get(key)
        if story is None:
            return
        now = self._now()
        body = _event(key, story, story.count + 1, now)
        path = f"/api/v1/namespaces/{key.pod.namespace}/events/{body['metadata']['name']}"
        await self._client.patch(path, body, APPLY_PATCH, _APPLY)
        story.count, story.written_at, story.waiting = story.count + 1, now, False
        metrics.pod_controller_events.labels(key.reason).inc()

    def _refused(self, key: _Key, error: ApiError) -> None:
        story = self._stories.get(key)
        if story is not None:
            story.written_at, story.waiting = self._now(), False
        if error.status != NOT_FOUND:
            _LOG.warning("no event for pod %s/%s: %s", key.pod.namespace, key.pod.name, error)


def _event(key: _Key, story: _Story, count: int, now: float) -> dict[str, Any]:
    pod = key.pod
    unique = blake2b(f"{pod.uid}/{key.reason}".encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.name[:_MOST_NAME].rstrip('.-')}.{unique}",
            "namespace": pod.namespace,
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **pod._asdict()},
        "type": story.type,
        "reason": key.reason,
        "message": story.message,
        "count": count,
        "firstTimestamp": _moment(story.first),
        "lastTimestamp": _moment(now),
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
