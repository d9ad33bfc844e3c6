"""Evicts pods with bounded concurrency, by Node deadline, with a lower limit per owner.

The API server handles evictions under one disruption budget one at a time. Concurrent ones
conflict, and each conflict blocks the request for half a second, up to ten times: pods of one
budget would occupy all slots while more urgent Nodes wait.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from bigfleet.controllers.operator.pods import PodOnNode
from bigfleet.kube.client import (
    CONFLICT,
    CONNECTION_ERRORS,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    ApiError,
    KubeClient,
    is_transient,
)
from bigfleet.kube.types import eviction_of
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_MAX_CONCURRENT = 64
_MAX_PER_OWNER = 16
_REFUSED = "refused"


@dataclass(order=True)
class _Waiting:
    deadline: float
    number: int
    owner: str = field(compare=False)
    admitted: asyncio.Future[None] = field(compare=False)


class EvictionSlots:
    """At most `max_concurrent` slots, and `max_per_owner` for one owner; the earliest deadline
    comes first.
    """

    def __init__(self, max_concurrent: int, max_per_owner: int) -> None:
        self._max_concurrent, self._max_per_owner = max_concurrent, max_per_owner
        self._numbers = count()
        self._waiting: list[_Waiting] = []
        self._taken: Counter[str] = Counter()
        self._serialized: set[str] = set()

    @asynccontextmanager
    async def slot(self, owner: str, deadline: float) -> AsyncIterator[None]:
        """Hold a slot of this owner."""
        admitted = asyncio.get_running_loop().create_future()
        waiting = _Waiting(deadline, next(self._numbers), owner, admitted)
        insort(self._waiting, waiting)
        self._admit()
        try:
            await admitted
            yield
        finally:
            if admitted.cancelled():
                self._waiting.remove(waiting)
            else:
                self._taken[owner] -= 1
                self._admit()

    def serialize_owner(self, owner: str) -> None:
        """Limit this owner to one slot from now on."""
        self._serialized.add(owner)

    def reset(self) -> None:
        """Lift the limits of `serialize_owner`."""
        self._serialized.clear()

    def _admit(self) -> None:
        for waiting in list(self._waiting):
            if self._taken.total() >= self._max_concurrent:
                return
            most = 1 if waiting.owner in self._serialized else self._max_per_owner
            if self._taken[waiting.owner] < most:
                self._waiting.remove(waiting)
                self._taken[waiting.owner] += 1
                waiting.admitted.set_result(None)


class Evictor:
    """Evicts pods of all Nodes that are being drained."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._slots = EvictionSlots(_MAX_CONCURRENT, _MAX_PER_OWNER)

    async def evict_all(self, pods: Iterable[PodOnNode], deadline: float) -> None:
        """Request once the eviction of each pod that is not terminating."""
        by_owner: defaultdict[str, deque[PodOnNode]] = defaultdict(deque)
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                by_owner[pod.owner].append(pod)
        await asyncio.gather(
            *(
                self._evict_those_of(owner, own, deadline)
                for owner, own in by_owner.items()
                for _ in range(min(_MAX_PER_OWNER, len(own)))
            )
        )

    def reset(self) -> None:
        """Forget which budgets refused evictions, when no Node is being drained any more."""
        self._slots.reset()

    async def _evict_those_of(self, owner: str, left: deque[PodOnNode], deadline: float) -> None:
        while left:
            async with self._slots.slot(owner, deadline):
                if left and await self._evict(left.popleft()) == _REFUSED:
                    self._slots.serialize_owner(owner)

    async def _evict(self, pod: PodOnNode) -> str:
        outcome = await self._outcome(*eviction_of(pod.metadata))
        metrics.operator_evictions.labels(outcome).inc()
        return outcome

    async def _outcome(self, path: str, eviction: Mapping[str, object]) -> str:
        try:
            await self._client.create(path, eviction)
        except ApiError as error:
            if error.status in (NOT_FOUND, CONFLICT):
                return "gone"  # or replaced by another Pod of that name
            if error.status == TOO_MANY_REQUESTS:
                return _REFUSED  # by a disruption budget; retried
            if is_transient(error):
                return "failed"
            _LOG.error("%s", error)
            return "failed"
        except CONNECTION_ERRORS as error:
            _LOG.warning("%s: %r; retrying", path, error)
            return "failed"
        return "evicted"
