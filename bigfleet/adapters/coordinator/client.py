"""Clients that find the coordinator's leader and follow leader changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from bigfleet.model.errors import BigFleetError, Fenced, InvalidInput, Unavailable, UnknownObject

LEADER_TRAILER, TERM_TRAILER = "bigfleet-leader", "bigfleet-term"
_ROLE = "coordinator"
# Between rounds without a leader: an election takes a few hundred milliseconds.
_RETRY_INTERVAL_SECONDS = 0.05
# Longer than any call that may still be in progress on a retired channel.
_DRAIN_TIMEOUT_SECONDS = 120.0

_Response = TypeVar("_Response")

CallErrors = dict[str, grpc.aio.AioRpcError]


class _NoLeader(Exception):
    """No replica leads; carries each replica's error."""

    def __init__(self, errors: CallErrors) -> None:
        super().__init__()
        self.errors = errors


class LeaderConnection:
    """A connection to the replicas at `addresses` (HOST:PORT); calls may be concurrent."""

    def __init__(self, addresses: Sequence[str], identity: Identity | None = None) -> None:
        self._addresses, self._identity = list(addresses), identity
        self._target = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._retired: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    @property
    def target(self) -> str:
        """The replica to call next; after a response, the leader."""
        return self._target

    async def call_leader(
        self, call: Callable[[Any], Awaitable[_Response]], timeout_seconds: float = 0.0
    ) -> _Response:
        """The leader's response. Calls each replica at most once, first the last leader and then
        the one it names, and starts over until the timeout.

        Unavailable with each replica's error if none leads; Fenced, UnknownObject, InvalidInput or
        BigFleetError with the leader's message if it rejects the call.
        """
        ends = time.monotonic() + timeout_seconds
        while True:
            try:
                return await self._attempt(call)
            except _NoLeader as no_leader:
                if time.monotonic() >= ends:
                    raise Unavailable(await self._explained(no_leader.errors)) from None
            await asyncio.sleep(_RETRY_INTERVAL_SECONDS)

    async def _attempt(self, call: Callable[[Any], Awaitable[_Response]]) -> _Response:
        errors: CallErrors = {}
        target = self._target
        while target not in errors:
            self._target, channel = target, self._channel(target)
            try:
                return await call(CoordinatorStub(channel))
            except grpc.aio.AioRpcError as error:
                _raise_if_final(error)
                errors[target] = error
                leader = trailer(error.trailing_metadata(), LEADER_TRAILER)
                if leader is None:
                    self._retire(target, channel)
                target = self._next(errors, leader)
        self._target = target
        raise _NoLeader(errors)

    async def _explained(self, errors: CallErrors) -> str:
        for address, error in errors.items():
            if trailer(error.trailing_metadata(), LEADER_TRAILER) == address:
                return f"coordinator {address} leads but cannot do that yet: {error.details()}"
        reasons = [
            f"{address}: {await explain_failure(error, address, self._identity, _ROLE)}"
            for address, error in errors.items()
        ]
        return f"no coordinator leads: {'; '.join(reasons)}"

    async def close(self) -> None:
        """Close all channels."""
        for task in self._retired:
            task.cancel()
        for channel in (*self._retired.values(), *self._channels.values()):
            await channel.close(None)
        self._channels.clear()

    def _next(self, errors: Collection[str], leader: str | None) -> str:
        """The leader if it is known, else a replica not called yet, else the first."""
        if leader and leader not in errors:
            return leader
        others = [each for each in self._addresses if each not in errors]
        return (others or self._addresses)[0]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = transport.channel(address, self._identity, _ROLE)
        return self._channels[address]

    def _retire(self, address: str, channel: grpc.aio.Channel) -> None:
        """Replace a channel that failed to connect: it would back off, and a new one does not.

        Closing it at once would cancel the other calls on it instead of failing them.
        """
        if self._channels.get(address) is channel:
            del self._channels[address]
            task = asyncio.create_task(channel.close(_DRAIN_TIMEOUT_SECONDS))
            self._retired[task] = channel
            task.add_done_callback(self._retired.pop)


class LeaderClient:
    """Calls the leader by method name, for commands and replicas; not for concurrent use.

    All calls of the coordinator are idempotent, so one without a response is sent again. `leader`
    and `term` are those of the last response.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        identity: Identity | None = None,
        call_seconds: float = 5.0,
    ) -> None:
        self._connection = LeaderConnection(addresses, identity)
        self._call_seconds = call_seconds
        self.term = 0

    @property
    def leader(self) -> str:
        """The replica that responded last."""
        return self._connection.target

    async def call(self, method: str, request: Any, timeout_seconds: float = 10.0) -> Any:
        """The leader's response; for a streaming method the list of its messages.

        Errors as `LeaderConnection.call_leader`.
        """
        return await self._connection.call_leader(
            lambda stub: self._invoke(stub, method, request), timeout_seconds
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def __aenter__(self) -> LeaderClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _invoke(self, stub: Any, method: str, request: Any) -> Any:
        call = getattr(stub, method)(request, timeout=self._call_seconds)
        streamed = isinstance(call, grpc.aio.UnaryStreamCall)
        answer = [message async for message in call] if streamed else await call
        self.term = int(trailer(await call.trailing_metadata(), TERM_TRAILER) or 0)
        return answer


def trailer(metadata: Any, name: str) -> str | None:
    """The value of `name` in a response's metadata; None if it is absent."""
    for key, value in metadata or ():
        if key == name:
            return value if isinstance(value, str) else value.decode()
    return None


def _raise_if_final(error: grpc.aio.AioRpcError) -> None:
    """Raise errors that every replica would return."""
    details = error.details() or "no reason given"
    match error.code():
        case grpc.StatusCode.FAILED_PRECONDITION:
            raise Fenced(details) from None
        case grpc.StatusCode.INVALID_ARGUMENT:
            raise InvalidInput("coordinator", "the request", f"was rejected: {details}") from None
        case grpc.StatusCode.NOT_FOUND:
            raise UnknownObject(details) from None
        case grpc.StatusCode.ABORTED:
            raise BigFleetError(details) from None
        case grpc.StatusCode.UNIMPLEMENTED:
            raise BigFleetError(
                f"not implemented by this version of the coordinator: {details}"
            ) from None
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            raise BigFleetError(f"denied by the coordinator: {details}") from None
