"""A cache of the cluster's CapacityRequests: their aggregate, and which await acknowledgement."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Set
from contextlib import aclosing
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec

from bigfleet.api.install import GROUP_VERSION, gang_members
from bigfleet.api.wellknown import CAPACITY_SHORT
from bigfleet.controllers.operator.aggregate import Aggregate, NeedKey
from bigfleet.controllers.operator.request_demand import RequestDemand, RequestSpec, demand_of
from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Listed, Watch, WatchStats
from bigfleet.model.errors import InvalidInput
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_ACKNOWLEDGED = "Acknowledged"
#: the path of all requests
REQUESTS = f"{GROUP_VERSION}/capacityrequests"


class RequestKey(NamedTuple):
    """A request's identity."""

    namespace: str
    name: str


class Metadata(msgspec.Struct, rename="camel"):
    """The parts of a request's metadata that the operator reads."""

    name: str
    namespace: str
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class Condition(msgspec.Struct, rename="camel"):
    """A condition of a request."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class Status(msgspec.Struct):
    """A request's status, as written by the operator."""

    phase: str = ""
    conditions: list[Condition] | None = None

    @property
    def short(self) -> Condition | None:
        """The condition CapacityShort, if it was ever written."""
        return next((c for c in self.conditions or () if c.type == CAPACITY_SHORT), None)


class CapacityRequest(msgspec.Struct):
    """The parts of a request that the operator reads; equal specs are parsed once."""

    metadata: Metadata
    spec: msgspec.Raw
    status: Status = msgspec.field(default_factory=Status)

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.metadata.namespace, self.metadata.name)

    @property
    def demand(self) -> RequestDemand:
        """Its demand; InvalidInput or a ValidationError when it is invalid."""
        return _demand(self.metadata.namespace, bytes(self.spec))

    @property
    def created(self) -> float:
        """In Unix time; 0 if unknown."""
        timestamp = self.metadata.creation_timestamp
        return timestamp.timestamp() if timestamp else 0.0

    @property
    def gang_members(self) -> int:
        """The size of its gang; 0 if unknown."""
        return gang_members(self.metadata.annotations) or 0


@lru_cache(maxsize=2**17)
def _demand(namespace: str, spec: bytes) -> RequestDemand:
    return demand_of(namespace, msgspec.json.decode(spec, type=RequestSpec))


class RequestCache:
    """The cluster's requests. `changed` is set with every change of their aggregate. `observed` is
    how many there have been, with those that are gone. `created` has their creation times, `short`
    their conditions CapacityShort, `invalid` the errors of invalid ones; `invalid_version`
    increases with every change of `invalid`.
    """

    def __init__(self) -> None:
        self.aggregate: Aggregate[RequestKey] = Aggregate()
        self.created: dict[RequestKey, float] = {}
        self.observed = 0
        self.short: dict[RequestKey, Condition] = {}
        self.listed, self.changed = asyncio.Event(), asyncio.Event()
        # In order of the aggregate's version that first contained them.
        self._unacknowledged: dict[RequestKey, int] = {}
        self.invalid: dict[RequestKey, str] = {}
        self.invalid_version = 0
        self._watch_stats = WatchStats()

    def not_ready(self) -> str:
        """Why the requests are not listed yet; "" once they are."""
        if self.listed.is_set():
            return ""
        return f"CapacityRequests are not listed: {self._watch_stats.last_error or 'no answer yet'}"

    async def follow(self, client: KubeClient) -> None:
        """Watch until cancelled."""
        watch = Watch(client, REQUESTS, CapacityRequest, stats=self._watch_stats)
        async with aclosing(watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self.replace(change.items)
                elif change.deleted:
                    self.remove(change.item.key)
                else:
                    self.put(change.item)

    def replace(self, requests: list[CapacityRequest]) -> None:
        """Replace all requests."""
        started = time.perf_counter()
        listed = {request.key for request in requests}
        for gone in [key for key in self._keys() if key not in listed]:
            self.remove(gone)
        for request in requests:
            self.put(request)
        if not self.listed.is_set():
            # If a running gang were held back as incomplete, the shard would take its machines.
            self.aggregate.mark_all_complete()
        metrics.operator_rollup_seconds.labels("list").observe(time.perf_counter() - started)
        self.listed.set()

    def put(self, request: CapacityRequest) -> None:
        """Add or update a request; an invalid or terminating one adds no demand."""
        key = request.key
        if request.metadata.deletion_timestamp is not None:
            self.remove(key)
            return
        before = self.aggregate.version
        self.observed += key not in self.created
        self.created[key] = request.created
        if (short := request.status.short) is not None:
            self.short[key] = short
        else:
            self.short.pop(key, None)
        try:
            self.aggregate.put(key, request.demand, request.gang_members, request.created)
        except (InvalidInput, msgspec.ValidationError) as error:
            self._mark_invalid(key, error)
            return
        self._mark_valid(key)
        self._track_acknowledgement(key, request.status.phase, self.aggregate.version != before)
        self._notify_if_changed(before)

    def remove(self, key: RequestKey) -> None:
        """Remove a request."""
        before = self.aggregate.version
        self.aggregate.remove(key)
        self._unacknowledged.pop(key, None)
        self.created.pop(key, None)
        self.short.pop(key, None)
        self._mark_valid(key)
        self._notify_if_changed(before)

    def take_unacknowledged(
        self, version: int, excluded: Set[NeedKey] = frozenset()
    ) -> list[RequestKey]:
        """Remove and return the unacknowledged requests that `version` of the aggregate contained,
        except those in the rows `excluded`.
        """
        due = []
        for key, contained_in in self._unacknowledged.items():
            if contained_in > version:
                break
            if not excluded or self.aggregate.need_key_of(key) not in excluded:
                due.append(key)
        for key in due:
            del self._unacknowledged[key]
        return due

    def newer_than(self, version: int) -> list[RequestKey]:
        """The unacknowledged requests that `version` of the aggregate did not contain, newest
        first.
        """
        found = (k for k, contained_in in self._unacknowledged.items() if contained_in > version)
        return sorted(found, key=lambda key: -self.created[key])

    def __contains__(self, key: RequestKey) -> bool:
        return key in self.aggregate

    def _track_acknowledgement(self, key: RequestKey, phase: str, changed: bool) -> None:
        if phase == _ACKNOWLEDGED:
            self._unacknowledged.pop(key, None)
        elif changed or key not in self._unacknowledged:
            self._unacknowledged.pop(key, None)  # to the end: ordered by version
            self._unacknowledged[key] = self.aggregate.version

    def _mark_invalid(self, key: RequestKey, error: Exception) -> None:
        before = self.aggregate.version
        self.aggregate.remove(key)
        self._unacknowledged.pop(key, None)
        self._notify_if_changed(before)
        if self.invalid.get(key) != str(error):
            self.invalid[key] = str(error)
            self._invalid_changed()
            _LOG.warning("ignoring CapacityRequest %s/%s: %s", key.namespace, key.name, error)

    def _mark_valid(self, key: RequestKey) -> None:
        if self.invalid.pop(key, None) is not None:
            self._invalid_changed()

    def _invalid_changed(self) -> None:
        self.invalid_version += 1
        metrics.operator_invalid_requests.set(len(self.invalid))

    def _notify_if_changed(self, before: int) -> None:
        if self.aggregate.version != before:
            self.changed.set()

    def _keys(self) -> Iterator[RequestKey]:
        yield from self.aggregate.keys()
        yield from self.invalid
