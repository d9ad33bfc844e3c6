"""The coordinator over gRPC: whichever replica leads is found, and found again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.identity import Identity
from bigfleet.api.refusals import explained
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from bigfleet.model.errors import Fenced, InvalidInput, Unavailable

CALL_SECONDS = 2.0
LEADER_TRAILER = "bigfleet-leader"
_ROLE = "coordinator"

_Answer = TypeVar("_Answer")


class GrpcCoordinator:
    """The replicas at `addresses`, each host:port.

    A call asks each of them once at most, the last leader first, and then whom that one names.
    """

    def __init__(self, addresses: Sequence[str], identity: Identity | None = None) -> None:
        self._addresses, self._identity = list(addresses), identity
        self._target = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def report(self, report: wire.ShardReport) -> wire.ReportAck:
        """See `ports.coordinator.Coordinator`."""
        return await self._ask(lambda stub: stub.ReportShard(report, timeout=CALL_SECONDS))

    async def resolve(self, cluster: str, shard_id: str) -> wire.ResolveClusterResponse:
        """See `ports.coordinator.Coordinator`."""
        request = wire.ResolveClusterRequest(cluster_id=cluster, asking_shard_id=shard_id)
        return await self._ask(lambda stub: stub.ResolveCluster(request, timeout=CALL_SECONDS))

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close(None)

    async def _ask(self, call: Callable[[CoordinatorStub], Awaitable[_Answer]]) -> _Answer:
        asked: dict[str, grpc.aio.AioRpcError] = {}
        while self._target not in asked:
            try:
                return await call(self._stub(self._target))
            except grpc.aio.AioRpcError as error:
                _raise_refusal(error)
                asked[self._target] = error
                self._target = self._next(asked, _leader(error))
        told = [
            f"{address}: {await explained(error, address, self._identity, _ROLE)}"
            for address, error in asked.items()
        ]
        raise Unavailable(f"no coordinator leads: {'; '.join(told)}")

    def _next(self, asked: Collection[str], leader: str) -> str:
        """The leader when it is known, else who was not asked yet, else the first again."""
        if leader and leader not in asked:
            return leader
        others = [each for each in self._addresses if each not in asked]
        return (others or self._addresses)[0]

    def _stub(self, address: str) -> CoordinatorStub:
        if address not in self._channels:
            self._channels[address] = transport.channel(address, self._identity, _ROLE)
        return CoordinatorStub(self._channels[address])


def _raise_refusal(error: grpc.aio.AioRpcError) -> None:
    """Raise what no other replica would answer differently."""
    details = error.details() or "no reason given"
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
        raise Fenced(details) from None
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        raise InvalidInput("coordinator", "the request", f"was refused: {details}") from None


def _leader(error: grpc.aio.AioRpcError) -> str:
    for key, value in error.trailing_metadata() or ():
        if key == LEADER_TRAILER:
            return value if isinstance(value, str) else value.decode()
    return ""
