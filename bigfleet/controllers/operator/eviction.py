"""Asks for evictions: few at once, the most urgent Node's first, and of one owner fewer still.

The API server settles evictions under one disruption budget one after the other. Those that come at
the same time conflict, and each conflict costs half a second of waiting inside the request, up to
ten: pods of one budget would use up all places, and those of Nodes with less time would wait.
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
    """At most `max_concurrent` turns at a time, and `max_per_owner` of one owner; the earliest
    deadline comes first.
    """

    def __init__(self, max_concurrent: int, max_per_owner: int) -> None:
        self._max_concurrent, self._max_per_owner = max_concurrent, max_per_owner
        self._numbers = count()
        self._waiting: list[_Waiting] = []
        self._taken: Counter[str] = Counter()
        self._serialized: set[str] = set()

    @asynccontextmanager
    async def slot(self, owner: str, deadline: float) -> AsyncIterator[None]:
        """Within it, it is this owner's turn."""
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
        """From now on there is one turn of this owner at a time."""
        self._serialized.add(owner)

    def reset(self) -> None:
        """Nobody is guarded any more."""
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
    """Evicts pods of all Nodes that are being emptied."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._slots = EvictionSlots(_MAX_CONCURRENT, _MAX_PER_OWNER)

    async def evict_all(self, pods: Iterable[PodOnNode], deadline: float) -> None:
        """Ask once for the eviction of each pod that is not leaving yet."""
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
        """Nothing is being emptied: whose budget refused what is of no interest any more."""
        self._slots.reset()

    async def _evict_those_of(self, owner: str, left: deque[PodOnNode], deadline: float) -> None:
        while left:
            async with self._slots.slot(owner, deadline):
                if left and await self._evict(left.popleft()) == _REFUSED:
                    self._slots.serialize_owner(owner)

    async def _evict(self, pod: PodOnNode) -> str:
        metadata = pod.metadata
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        outcome = await self._outcome(path, eviction)
        metrics.operator_evictions.labels(outcome).inc()
        return outcome

    async def _outcome(self, path: str, eviction: Mapping[str, object]) -> str:
        try:
            await self._client.create(path, eviction)
        except ApiError as error:
            if error.status in (NOT_FOUND, CONFLICT):
                return "gone"  # or another Pod of its name by now
            if error.status == TOO_MANY_REQUESTS:
                return _REFUSED  # by a disruption budget; asked again
            if is_transient(error):
                return "failed"
            _LOG.error("%s", error)
            return "failed"
        except CONNECTION_ERRORS as error:
            _LOG.warning("%s: %r; asked again", path, error)
            return "failed"
        return "evicted"
