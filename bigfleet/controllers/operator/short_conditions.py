"""Writes the condition CapacityShort on CapacityRequests for which the shard is short of machines.

A short need does not identify the waiting pods: kube-scheduler chooses them. So for each size it is
written on as many requests as pods are short, the newest, which most likely wait; for a size that
fits no machine of the fleet, on all.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.need_codec import sizes_from_wire
from bigfleet.api.v1alpha1.shard_pb2 import DemandStatus, NeedStatus
from bigfleet.api.wellknown import CAPACITY_SHORT, INVALID, NO_MATCHING_SUPPLY
from bigfleet.controllers.operator.aggregate import NeedKey
from bigfleet.controllers.operator.request_cache import Condition, RequestCache, RequestKey
from bigfleet.controllers.work_queue import RateLimiter, WorkQueue
from bigfleet.kube.client import APPLY_PATCH, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.timestamps import rfc3339_micro
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import Size
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 8
_POLL_INTERVAL_SECONDS = 1.0
# The condition's reason when the shard rejected the need.
REJECTED = "Rejected"
# Changes of the message only, such as a count, are written at most this often.
_MESSAGE_REFRESH_SECONDS = 60.0
# Users read only a few, and equal requests have equal conditions.
_MAX_PER_NEED = 200
# For invalid requests: more at once most likely have one cause.
_MAX_INVALID = 1000
_MAX_MESSAGE_LENGTH = 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_APPLY = {"fieldManager": "bigfleet-operator", "force": "true"}


class _Short(NamedTuple):
    """A need that is short of pods by size; no sizes means all pods."""

    row: NeedKey
    sizes: tuple[Size, ...]
    reason: str
    message: str


class _ConditionValue(NamedTuple):
    """The desired condition of a request."""

    status: str
    reason: str
    message: str


class _Withheld(NamedTuple):
    """The condition for requests that the version `in_force` does not contain."""

    value: _ConditionValue
    in_force: int


class _Written(NamedTuple):
    """A written condition, when it was written, and the creation time of its request."""

    condition: Condition
    at: float
    created: float


_SATISFIED = _ConditionValue(
    "False", "Satisfied", "enough machines are available or being provisioned"
)


class ShortConditions:
    """Writes changed conditions, at most `per_second` a second.

    Until the shard has reported what is short, existing conditions stay. Requests that the shard
    rejected, or that were not sent to it, are short, too. `now` is Unix time.
    """

    def __init__(
        self,
        client: KubeClient,
        request_cache: RequestCache,
        per_second: float,
        now: Callable[[], float],
    ) -> None:
        self._client, self._request_cache, self._now = client, request_cache, now
        self._short: Sequence[_Short] | None = None
        self._rejected: Sequence[_Short] = []
        self._withheld: _Withheld | None = None
        self._wanted: dict[RequestKey, _ConditionValue] = {}
        # Written conditions that the request cache may not show yet.
        self._written: dict[RequestKey, _Written] = {}
        self._changed = asyncio.Event()
        self._computed: tuple[int, float] = (-1, 0.0)
        self._invalid_version = 0
        self._rate_limiter = RateLimiter(per_second)
        self._queue: WorkQueue[RequestKey] = WorkQueue(self._write, _CONCURRENCY, self._on_rejected)

    def set_rejected(self, refused: Mapping[NeedKey, str]) -> None:
        """Set the rows of the last roll-up that the shard rejected, and why."""
        found = [
            _Short(row, (), REJECTED, why[:_MAX_MESSAGE_LENGTH]) for row, why in refused.items()
        ]
        if found != self._rejected:
            self._rejected = found
            self._changed.set()

    def set_withheld(self, reason: str, why: str, in_force: int) -> None:
        """Set why the last roll-up is not in effect; "" when it is. `in_force` is the version of
        the aggregate that is.
        """
        current = _ConditionValue("True", reason, why[:_MAX_MESSAGE_LENGTH])
        found = _Withheld(current, in_force) if reason else None
        if found != self._withheld:
            self._withheld = found
            self._changed.set()

    def enqueue(self, status: DemandStatus) -> None:
        """Replace what is short."""
        try:
            self._short = [_short(each) for each in status.short]
        except InvalidInput as error:
            _LOG.error("ignoring an invalid DemandStatus of the shard: %s", error)
            return
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._recompute_loop())

    async def _recompute_loop(self) -> None:
        """Recompute after changes, also of the requests, as the newest are affected."""
        while True:
            changed = self._changed.is_set()
            self._changed.clear()
            if changed or self._is_stale():
                self._compute()
            try:
                async with asyncio.timeout(_POLL_INTERVAL_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _is_stale(self) -> bool:
        version, at = self._computed
        if self._request_cache.invalid_version != self._invalid_version:
            return True
        if not (self._short or self._rejected or self._withheld or self._request_cache.invalid):
            return False
        elapsed = self._now() - at
        return (
            version != self._request_cache.aggregate.version or elapsed >= _MESSAGE_REFRESH_SECONDS
        )

    def _compute(self) -> None:
        self._computed = self._request_cache.aggregate.version, self._now()
        self._invalid_version = self._request_cache.invalid_version
        created = self._request_cache.created
        self._written = {k: w for k, w in self._written.items() if created.get(k) == w.created}
        wanted = self._condition_values([*(self._short or ()), *self._rejected])
        wanted.update(self._unreported_requests())
        for key in self._currently_short() if self._short is not None else ():
            wanted.setdefault(key, _SATISFIED)
        self._wanted = {
            key: value for key, value in wanted.items() if self._needs_write(key, value)
        }
        for key in self._wanted:
            self._queue.add(key)

    def _condition_values(self, short: Iterable[_Short]) -> dict[RequestKey, _ConditionValue]:
        """The desired conditions for the affected requests of short needs."""
        wanted: dict[RequestKey, _ConditionValue] = {}
        for each in short:
            value = _ConditionValue("True", each.reason, each.message)
            for key in self._affected_requests(each):
                wanted[key] = value
        return wanted

    def _unreported_requests(self) -> Iterator[tuple[RequestKey, _ConditionValue]]:
        """The desired conditions of requests that the shard does not know."""
        if self._withheld is not None:
            for key in self._request_cache.newer_than(self._withheld.in_force)[:_MAX_PER_NEED]:
                yield key, self._withheld.value
        for key, why in islice(self._request_cache.invalid.items(), _MAX_INVALID):
            yield key, _ConditionValue("True", INVALID, why[:_MAX_MESSAGE_LENGTH])

    def _affected_requests(self, short: _Short) -> Iterable[RequestKey]:
        aggregate = self._request_cache.aggregate
        if not short.sizes:
            yield from (aggregate.requests_of(short.row, None) or ())[:_MAX_PER_NEED]
            return
        most = max(1, _MAX_PER_NEED // len(short.sizes))
        for amounts, pods in short.sizes:
            keys = aggregate.requests_of(short.row, amounts)
            if keys is None:
                # Withdrawn, or merged into another size by now: keep until the shard's next report.
                yield from (k for k in self._counted() if aggregate.need_key_of(k) == short.row)
            else:
                yield from keys[: most if short.reason == NO_MATCHING_SUPPLY else min(most, pods)]

    def _currently_short(self) -> list[RequestKey]:
        """The requests whose condition is True."""
        current = (
            (key, self._current_condition(key))
            for key in {**self._request_cache.short, **self._written}
        )
        known = self._request_cache.created
        return [k for k, c in current if c is not None and c.status == "True" and k in known]

    def _counted(self) -> Iterator[RequestKey]:
        """Those of them that are valid."""
        return (key for key in self._currently_short() if key in self._request_cache)

    def _current_condition(self, key: RequestKey) -> Condition | None:
        written = self._written.get(key)
        if written is not None and written.created == self._request_cache.created.get(key):
            return written.condition
        return self._request_cache.short.get(key)

    def _needs_write(self, key: RequestKey, value: _ConditionValue) -> bool:
        current = self._current_condition(key)
        if current is None or (current.status, current.reason) != (value.status, value.reason):
            return True
        written = self._written.get(key)
        silent = self._now() - (written.at if written else 0.0)
        return current.message != value.message and silent >= _MESSAGE_REFRESH_SECONDS

    async def _write(self, key: RequestKey) -> None:
        await self._rate_limiter.wait()
        value = self._wanted.get(key)
        known = key in self._request_cache.created
        if value is None or not known or not self._needs_write(key, value):
            self._wanted.pop(key, None)
            return
        current = self._current_condition(key)
        changed = current is None or current.status != value.status
        since = (
            current.last_transition_time if current and not changed else rfc3339_micro(self._now())
        )
        condition = {"type": CAPACITY_SHORT, **value._asdict(), "lastTransitionTime": since}
        head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest"}
        body = {**head, "metadata": {"name": key.name}, "status": {"conditions": [condition]}}
        path = f"{GROUP_VERSION}/namespaces/{key.namespace}/capacityrequests/{key.name}/status"
        await self._client.patch(path, body, APPLY_PATCH, _APPLY)
        written = Condition(CAPACITY_SHORT, *value, last_transition_time=since)
        self._written[key] = _Written(
            written, self._now(), self._request_cache.created.get(key, 0.0)
        )
        metrics.operator_short_conditions.labels(value.status).inc()

    def _on_rejected(self, key: RequestKey, error: ApiError) -> None:
        self._wanted.pop(key, None)
        if error.status != NOT_FOUND:
            _LOG.error("cannot write CapacityShort of %s/%s: %s", key.namespace, key.name, error)


def _short(status: NeedStatus) -> _Short:
    """InvalidInput when the shard's message is invalid."""
    row = NeedKey(status.profile_fingerprint, status.group)
    reason = status.reason if _REASON.fullmatch(status.reason) else "Short"
    sizes = sizes_from_wire(status.sizes, "sizes") if status.HasField("sizes") else ()
    return _Short(row, sizes, reason[:_MAX_MESSAGE_LENGTH], status.message[:_MAX_MESSAGE_LENGTH])
