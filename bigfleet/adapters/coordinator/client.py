"""Finds the coordinator's leader, whichever replica that is just now, and finds it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.identity import Identity
from bigfleet.api.refusals import explained
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from bigfleet.model.errors import BigFleetError, Fenced, InvalidInput, Unavailable, UnknownObject

LEADER_TRAILER, TERM_TRAILER = "bigfleet-leader", "bigfleet-term"
_ROLE = "coordinator"
# Between two rounds in which nobody led: an election takes some hundred milliseconds.
_ROUND_SECONDS = 0.05
# Longer than any call: those of others that still wait on a channel that is given up.
_LAST_CALLS_SECONDS = 120.0

_Answer = TypeVar("_Answer")

Asked = dict[str, grpc.aio.AioRpcError]


class _NobodyLeads(Exception):
    """What each replica said."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked


class Replicas:
    """The replicas at `addresses`, each host:port. Several may ask at once."""

    def __init__(self, addresses: Sequence[str], identity: Identity | None = None) -> None:
        self._addresses, self._identity = list(addresses), identity
        self._target = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._given_up: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    @property
    def target(self) -> str:
        """Who is asked next; after an answer, the leader."""
        return self._target

    async def ask(
        self, call: Callable[[Any], Awaitable[_Answer]], patience_seconds: float = 0.0
    ) -> _Answer:
        """The leader's answer. Each replica is asked once at most, the last leader first, and then
        whom that one names; all again until the patience is at its end.

        Unavailable with what each said when none leads; Fenced, UnknownObject, InvalidInput or
        BigFleetError when the leader refuses, in its words.
        """
        ends = time.monotonic() + patience_seconds
        while True:
            try:
                return await self._round(call)
            except _NobodyLeads as nobody:
                if time.monotonic() >= ends:
                    raise Unavailable(await self._explained(nobody.asked)) from None
            await asyncio.sleep(_ROUND_SECONDS)

    async def _round(self, call: Callable[[Any], Awaitable[_Answer]]) -> _Answer:
        asked: Asked = {}
        target = self._target
        while target not in asked:
            self._target, channel = target, self._channel(target)
            try:
                return await call(CoordinatorStub(channel))
            except grpc.aio.AioRpcError as error:
                _raise_refusal(error)
                asked[target] = error
                leader = trailer(error.trailing_metadata(), LEADER_TRAILER)
                if leader is None:
                    self._give_up(target, channel)
                target = self._next(asked, leader)
        self._target = target
        raise _NobodyLeads(asked)

    async def _explained(self, asked: Asked) -> str:
        for address, error in asked.items():
            if trailer(error.trailing_metadata(), LEADER_TRAILER) == address:
                return f"coordinator {address} leads, and cannot do that yet: {error.details()}"
        told = [
            f"{address}: {await explained(error, address, self._identity, _ROLE)}"
            for address, error in asked.items()
        ]
        return f"no coordinator leads: {'; '.join(told)}"

    async def close(self) -> None:
        """Close all channels."""
        for task in self._given_up:
            task.cancel()
        for channel in (*self._given_up.values(), *self._channels.values()):
            await channel.close(None)
        self._channels.clear()

    def _next(self, asked: Collection[str], leader: str | None) -> str:
        """The leader when it is known, else who was not asked yet, else the first again."""
        if leader and leader not in asked:
            return leader
        others = [each for each in self._addresses if each not in asked]
        return (others or self._addresses)[0]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = transport.channel(address, self._identity, _ROLE)
        return self._channels[address]

    def _give_up(self, address: str, channel: grpc.aio.Channel) -> None:
        """A channel that found nobody would wait before it tries again; a new one does not.

        To close it at once would cancel whoever else waits on it, instead of failing them.
        """
        if self._channels.get(address) is channel:
            del self._channels[address]
            task = asyncio.create_task(channel.close(_LAST_CALLS_SECONDS))
            self._given_up[task] = channel
            task.add_done_callback(self._given_up.pop)


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
        self._replicas = Replicas(addresses, identity)
        self._call_seconds = call_seconds
        self.term = 0

    @property
    def leader(self) -> str:
        """Who answered last."""
        return self._replicas.target

    async def call(self, method: str, request: Any, patience_seconds: float = 10.0) -> Any:
        """The leader's answer; for a streaming method the list of its messages.

        Errors as `Replicas.ask`.
        """
        return await self._replicas.ask(
            lambda stub: self._invoke(stub, method, request), patience_seconds
        )

    async def close(self) -> None:
        """Give up all connections."""
        await self._replicas.close()

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


def _raise_refusal(error: grpc.aio.AioRpcError) -> None:
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
