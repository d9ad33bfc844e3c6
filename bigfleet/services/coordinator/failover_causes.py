"""Records the cause of each failover by probing the previous leader."""

from __future__ import annotations

import asyncio
import logging

import grpc
import grpc.aio

from bigfleet.adapters.coordinator.client import trailer
from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from bigfleet.observe import metrics
from bigfleet.services.coordinator.rows import Leader

_LOG = logging.getLogger(__name__)
# Health of a replica's own etcd member: healthy, starting or silent.
MEMBER_TRAILER = "bigfleet-member"
_REQUEST_TIMEOUT_SECONDS = 1.0


class FailoverCauses:
    """Counts elections by the state of the previous leader; `healthy` is a false election."""

    def __init__(self, identity: Identity | None) -> None:
        self._identity = identity
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, predecessor: Leader | None, now: Leader) -> None:
        """Record that `now` follows `predecessor`; the probe runs in the background."""
        task = asyncio.ensure_future(self._record(predecessor, now))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record(self, predecessor: Leader | None, now: Leader) -> None:
        if predecessor is not None and (predecessor.id, predecessor.term) == (now.id, now.term):
            return  # the same leader, still in its term
        state = await self._cause(predecessor, now)
        metrics.coordinator_elections.labels(state).inc()
        if state == metrics.HEALTHY_PREDECESSOR:
            assert predecessor is not None
            _LOG.warning(
                "false election: previous leader %s is healthy",
                predecessor.id,
                extra={"term": now.term},
            )

    async def _cause(self, predecessor: Leader | None, now: Leader) -> str:
        if predecessor is None:
            return "none"
        if predecessor.resigned:
            return "resigned"
        if predecessor.id == now.id:
            return "self"
        try:
            return await self._ask(predecessor.address)
        except grpc.aio.AioRpcError as error:
            return trailer(error.trailing_metadata(), MEMBER_TRAILER) or "gone"

    async def _ask(self, address: str) -> str:
        async with transport.channel(address, self._identity, "coordinator") as channel:
            call = CoordinatorStub(channel).ListShards(
                wire.ListShardsRequest(), timeout=_REQUEST_TIMEOUT_SECONDS
            )
            await call
            return trailer(await call.trailing_metadata(), MEMBER_TRAILER) or "gone"
