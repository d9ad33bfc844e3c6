"""gRPC client of a provider; maps messages to model records and status codes to errors."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from bigfleet.api import machine_codec, transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.model.errors import (
    BigFleetError,
    Fenced,
    IllegalTransition,
    InvalidInput,
    Unavailable,
    UnknownObject,
)
from bigfleet.model.machine import Machine, MachineEvent
from bigfleet.ports.provider import Fence, Listing, Operation, Unchanged, nothing_known

CALL_SECONDS = 30.0
LIST_SECONDS = 120.0
_ROLE = "provider"
# Machines asked for at once, so that decoding an answer does not keep sessions waiting: 1 MB.
PAGE_MACHINES = 2000

# Four bytes a machine are enough: they hide one change of two thousand million, until the record's
# next one, and listings of changes do not use them.
_DIGEST_BITS = 0x7FFF_FFFF

_Response = TypeVar("_Response")


class GrpcProvider:
    """The provider at `address` (HOST:PORT); connects on the first call and reconnects."""

    def __init__(self, address: str, identity: Identity | None = None) -> None:
        self._address, self._identity = address, identity
        self._channel = transport.channel(address, identity, _ROLE)
        self._stub = CapacityProviderStub(self._channel)

    async def create(
        self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
    ) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        request = wire.CreateRequest(
            machine_id=machine_id,
            shard_id=fence.shard_id,
            shard_epoch=fence.epoch,
            sequence_number=fence.sequence,
            shard_metadata=shard_metadata,
        )
        call = self._stub.Create(request, timeout=CALL_SECONDS)
        return _operation(await self._call(call, machine_id, MachineEvent.CREATE.value))

    async def configure(
        self,
        machine_id: str,
        cluster: str,
        bootstrap_blob: bytes,
        shard_metadata: Mapping[str, str],
        fence: Fence,
    ) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        request = wire.ConfigureRequest(
            machine_id=machine_id,
            cluster_id=cluster,
            bootstrap_blob=bootstrap_blob,
            shard_id=fence.shard_id,
            shard_epoch=fence.epoch,
            sequence_number=fence.sequence,
            shard_metadata=shard_metadata,
        )
        call = self._stub.Configure(request, timeout=CALL_SECONDS)
        return _operation(await self._call(call, machine_id, MachineEvent.CONFIGURE.value))

    async def drain(self, machine_id: str, grace_seconds: int, fence: Fence) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        request = wire.DrainRequest(
            machine_id=machine_id,
            grace_period_seconds=grace_seconds,
            shard_id=fence.shard_id,
            shard_epoch=fence.epoch,
            sequence_number=fence.sequence,
        )
        call = self._stub.Drain(request, timeout=CALL_SECONDS)
        return _operation(await self._call(call, machine_id, MachineEvent.DRAIN.value))

    async def delete(self, machine_id: str, fence: Fence) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        request = wire.DeleteRequest(
            machine_id=machine_id,
            shard_id=fence.shard_id,
            shard_epoch=fence.epoch,
            sequence_number=fence.sequence,
        )
        call = self._stub.Delete(request, timeout=CALL_SECONDS)
        return _operation(await self._call(call, machine_id, MachineEvent.DELETE.value))

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """See `ports.provider.CapacityProvider`."""
        request = wire.ClaimEpochRequest(shard_id=shard_id, at_least=at_least)
        try:
            answer = await self._stub.ClaimEpoch(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return at_least
            reason = await explain_failure(error, self._address, self._identity, _ROLE)
            raise Unavailable(f"provider at {self._address}: {reason}") from None
        return int(answer.shard_epoch)

    async def get(self, machine_id: str) -> Machine:
        """See `ports.provider.CapacityProvider`."""
        call = self._stub.Get(wire.MachineRef(id=machine_id), timeout=CALL_SECONDS)
        return machine_codec.machine_from_wire(await self._call(call, machine_id, "Get"))

    async def list(
        self, since_revision: bytes = b"", unchanged: Unchanged = nothing_known
    ) -> AsyncGenerator[Listing, None]:
        """See `ports.provider.CapacityProvider`. A page is fetched while the one before it is
        consumed.
        """
        answer = await self._answer(self._ask(since_revision, b"", PAGE_MACHINES))
        if not answer.next_page_token and len(answer.machines) == PAGE_MACHINES:
            # It may have cut its answer without saying so: it may not know of pages.
            answer = await self._answer(self._ask(since_revision, b"", 0))
        while token := answer.next_page_token:
            following = self._ask(since_revision, token, PAGE_MACHINES)
            try:
                await asyncio.sleep(0)  # the call is sent by the event loop
                yield await _listing(answer, unchanged)
                answer = await self._answer(following, token)
            finally:
                following.cancel()
            if answer.next_page_token == token:
                what = f"provider at {self._address}: the page after {token!r} leads to itself"
                raise Unavailable(what)
        yield await _listing(answer, unchanged)

    def _ask(self, since_revision: bytes, token: bytes, limit: int) -> Any:
        """The call for a page."""
        request = wire.ListFilter(
            since_revision=since_revision, max_results=limit, page_token=token
        )
        return self._stub.List(request, timeout=LIST_SECONDS)

    async def _answer(
        self, call: Awaitable[wire.MachineList], token: bytes = b""
    ) -> wire.MachineList:
        try:
            return await self._call(call, "of any id", "List")
        except InvalidInput as error:
            if not token:
                raise
            what = f"provider at {self._address}: the listing must begin again: {error.hint}"
            raise Unavailable(what) from None

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)

    async def _call(self, call: Awaitable[_Response], machine_id: str, event: str) -> _Response:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            reason = await explain_failure(error, self._address, self._identity, _ROLE)
            raise _to_error(
                error, f"provider at {self._address}: {reason}", machine_id, event
            ) from None


def _to_error(
    error: grpc.aio.AioRpcError, unavailable: str, machine_id: str, event: str
) -> BigFleetError:
    code, details = error.code(), error.details() or "no reason given"
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return Fenced(details)
    if code is grpc.StatusCode.NOT_FOUND:
        return UnknownObject(details)
    if code is grpc.StatusCode.ABORTED:
        return IllegalTransition(f"machine {machine_id}", "in another state", event, details)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidInput(
            f"machine {machine_id}", event, f"was rejected by the provider: {details}"
        )
    return Unavailable(unavailable)


def _operation(ack: wire.TransitionAck) -> Operation:
    return Operation(ack.operation_id, machine_codec.machine_from_wire(ack.machine))


async def _listing(answer: wire.MachineList, unchanged: Unchanged) -> Listing:
    machines: list[Machine] = []
    rejected: dict[str, InvalidInput] = {}
    kept: set[str] = set()
    hosts = (record.host.provider for record in answer.machines)
    provider_name = answer.provider or next(filter(None, hosts), "")
    repeated = _repeated([record.id for record in answer.machines])
    for start in range(0, len(answer.machines), PAGE_MACHINES):
        if start:  # of a provider without pages
            await asyncio.sleep(0)
        records = answer.machines[start : start + PAGE_MACHINES]
        ids, digests = [record.id for record in records], [*map(_digest, records)]
        known = set(unchanged(ids, digests)) - repeated
        kept |= known
        for record, digest in zip(records, digests, strict=True):
            if record.id in known:
                continue
            try:
                machines.append(machine_codec.machine_from_wire(record, digest))
            except InvalidInput as error:
                rejected[record.id] = error
    return Listing(machines, rejected, answer.revision, provider_name, kept)


def _digest(record: wire.Machine) -> int:
    """Equal for equal records, also in another process, and in whatever order a provider encodes
    the entries of their maps.
    """
    return zlib.crc32(record.SerializeToString(deterministic=True)) & _DIGEST_BITS


def _repeated(ids: Sequence[str]) -> set[str]:
    """Those that occur more than once: which of them counts is not decided here."""
    return {each for each, times in Counter(ids).items() if times > 1}
