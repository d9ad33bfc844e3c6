"""Calls the coordinator's leader, whichever replica that is just now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.identity import Identity
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from bigfleet.model.errors import BigFleetError, Fenced, Unavailable, UnknownObject

LEADER, TERM = "bigfleet-leader", "bigfleet-term"
_ELSEWHERE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_ERRORS: Mapping[grpc.StatusCode, type[BigFleetError]] = {
    grpc.StatusCode.FAILED_PRECONDITION: Fenced,
    grpc.StatusCode.NOT_FOUND: UnknownObject,
}
# Between two rounds in which nobody led: an election takes some hundred milliseconds.
_ROUND_SECONDS = 0.05


class LeaderClient:
    """Goes from replica to replica until one leads. Not for two tasks at once.

    All calls of the coordinator may be repeated, so one that was not answered is sent again, to
    another. `leader` and `term` are what the last answer said.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        identity: Identity | None = None,
        call_seconds: float = 5.0,
    ) -> None:
        self._addresses, self._identity = list(addresses), identity
        self._call_seconds = call_seconds
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._next = 0
        self.leader, self.term = "", 0

    async def call(self, method: str, request: Any, patience_seconds: float = 10.0) -> Any:
        """The leader's answer; for a streaming method the list of its messages.

        Unavailable when none led within the patience, with what was said last. Refusals are
        Fenced, UnknownObject or BigFleetError in the coordinator's words.
        """
        ends = time.monotonic() + patience_seconds
        hint = self.leader
        while True:
            address = hint or self._one_more()
            try:
                return await self._ask(address, method, request)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _ELSEWHERE:
                    raise _refusal(error) from None
                said = f"{address}: {error.details() or error.code().name}"
                hint = await self._after_failure(address, error)
            if time.monotonic() >= ends:
                raise Unavailable(f"no coordinator leads; {said}")
            if not hint and self._next % len(self._addresses) == 0:
                await asyncio.sleep(_ROUND_SECONDS)

    async def close(self) -> None:
        """Give up all connections."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def __aenter__(self) -> LeaderClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _one_more(self) -> str:
        address = self._addresses[self._next % len(self._addresses)]
        self._next += 1
        return address

    async def _ask(self, address: str, method: str, request: Any) -> Any:
        if address not in self._channels:
            channel = transport.channel(address, self._identity, "coordinator")
            self._channels[address] = channel
        call = getattr(CoordinatorStub(self._channels[address]), method)(
            request, timeout=self._call_seconds
        )
        streamed = isinstance(call, grpc.aio.UnaryStreamCall)
        answer = [message async for message in call] if streamed else await call
        self._note(await call.trailing_metadata())
        return answer

    async def _after_failure(self, address: str, error: grpc.aio.AioRpcError) -> str:
        """Where to go next, "" for the next in the list."""
        known = self._note(error.trailing_metadata())
        if not known:
            # It could not be reached. A channel would wait before it tries again; a new one not.
            self.leader = ""
            channel = self._channels.pop(address, None)
            if channel is not None:
                await channel.close()
        return self.leader if self.leader != address else ""

    def _note(self, metadata: Any) -> bool:
        trailers = dict(metadata or ())
        if LEADER not in trailers:
            return False
        self.leader, self.term = str(trailers[LEADER]), int(trailers.get(TERM, 0))
        return True


def _refusal(error: grpc.aio.AioRpcError) -> BigFleetError:
    kind = _ERRORS.get(error.code(), BigFleetError)
    return kind(error.details() or error.code().name)
