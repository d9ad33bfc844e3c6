"""Finds the coordinator's leader, whichever replica that is just now, and finds it again."""

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
# Between two rounds in which nobody led: an election takes some hundred milliseconds.
_RETRY_INTERVAL_SECONDS = 0.05
# Longer than any call: those of others that still wait on a channel that is given up.
_DRAIN_TIMEOUT_SECONDS = 120.0

_Response = TypeVar("_Response")

CallErrors = dict[str, grpc.aio.AioRpcError]


class _NoLeader(Exception):
    """What each replica said."""

    def __init__(self, errors: CallErrors) -> None:
        super().__init__()
        self.errors = errors


class LeaderConnection:
    """The replicas at `addresses`, each host:port. Several may ask at once."""

    def __init__(self, addresses: Sequence[str], identity: Identity | None = None) -> None:
        self._addresses, self._identity = list(addresses), identity
        self._target = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._retired: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    @property
    def target(self) -> str:
        """Who is asked next; after an answer, the leader."""
        return self._target

    async def call_leader(
        self, call: Callable[[Any], Awaitable[_Response]], timeout_seconds: float = 0.0
    ) -> _Response:
        """The leader's answer. Each replica is asked once at most, the last leader first, and then
        whom that one names; all again until the patience is at its end.

        Unavailable with what each said when none leads; Fenced, UnknownObject, InvalidInput or
        BigFleetError when the leader refuses, in its words.
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
                return f"coordinator {address} leads, and cannot do that yet: {error.details()}"
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
        """The leader when it is known, else who was not asked yet, else the first again."""
        if leader and leader not in errors:
            return leader
        others = [each for each in self._addresses if each not in errors]
        return (others or self._addresses)[0]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = transport.channel(address, self._identity, _ROLE)
        return self._channels[address]

    def _retire(self, address: str, channel: grpc.aio.Channel) -> None:
        """A channel that found nobody would wait before it tries again; a new one does not.

        To close it at once would cancel whoever else waits on it, instead of failing them.
        """
        if self._channels.get(address) is channel:
            del self._channels[address]
            task = asyncio.create_task(channel.close(_DRAIN_TIMEOUT_SECONDS))
            self._retired[task] = channel
            task.add_done_callback(self._retired.pop)


class LeaderClient:
    """Calls by name, for commands and replicas. Not for two tasks at once.

    All calls of the coordinator may be repeated, so one that was not answered is sent again.
    `leader` and `term` are what the last answer said.
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
        """Who answered last."""
        return self._connection.target

    async def call(self, method: str, request: Any, timeout_seconds: float = 10.0) -> Any:
        """The leader's answer; for a streaming method the list of its messages.

        Errors as `LeaderConnection.call_leader`.
        """
        return await self._connection.call_leader(
            lambda stub: self._invoke(stub, method, request), timeout_seconds
        )

    async def close(self) -> None:
        """Give up all connections."""
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
    """What an answer's metadata say under `name`; None where they say nothing."""
    for key, value in metadata or ():
        if key == name:
            return value if isinstance(value, str) else value.decode()
    return None


def _raise_if_final(error: grpc.aio.AioRpcError) -> None:
    """Raise what no other replica would answer differently."""
    details = error.details() or "no reason given"
    match error.code():
        case grpc.StatusCode.FAILED_PRECONDITION:
            raise Fenced(details) from None
        case grpc.StatusCode.INVALID_ARGUMENT:
            raise InvalidInput("coordinator", "the request", f"was refused: {details}") from None
        case grpc.StatusCode.NOT_FOUND:
            raise UnknownObject(details) from None
        case grpc.StatusCode.ABORTED:
            raise BigFleetError(details) from None
        case grpc.StatusCode.UNIMPLEMENTED:
            raise BigFleetError(f"the coordinator is of an older release: {details}") from None
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            raise BigFleetError(f"refused by the coordinator: {details}") from None
