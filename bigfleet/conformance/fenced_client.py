"""A client that calls the provider as a shard does, with a fence in every request."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from bigfleet.api.v1alpha1 import provider_pb2 as wire

if TYPE_CHECKING:  # only the type stubs know it
    from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderAsyncStub

CALL_TIMEOUT_SECONDS = 30.0

_Response = TypeVar("_Response")


def random_shard_id() -> str:
    """A new random shard id."""
    return f"conformance-{secrets.token_hex(4)}"


async def with_note(what: str, call: Awaitable[_Response]) -> _Response:
    """The response of `call`; a gRPC error gets `what` as a note."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        error.add_note(what)
        raise


@dataclass
class FencedClient:
    """Adds the fence to every call, with an increasing sequence number or the given one."""

    stub: CapacityProviderAsyncStub
    shard_id: str = field(default_factory=random_shard_id)
    epoch: int = 1
    sequence: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def _fence_fields(self, machine: str, sequence: int | None) -> dict[str, Any]:
        number = next(self.sequence) if sequence is None else sequence
        return {
            "machine_id": machine,
            "shard_id": self.shard_id,
            "shard_epoch": self.epoch,
            "sequence_number": number,
        }

    async def claim_epoch(self, at_least: int = 0) -> int:
        """Claim a new epoch, as a shard that has lost its own, and use it from now on."""
        request = wire.ClaimEpochRequest(shard_id=self.shard_id, at_least=at_least)
        answer = await with_note(
            "ClaimEpoch", self.stub.ClaimEpoch(request, timeout=CALL_TIMEOUT_SECONDS)
        )
        self.epoch, self.sequence = answer.shard_epoch, itertools.count(1)
        return self.epoch

    async def create(
        self,
        machine: str,
        metadata: Mapping[str, str] | None = None,
        sequence: int | None = None,
    ) -> wire.TransitionAck:
        """Create with a fence."""
        fence_fields = self._fence_fields(machine, sequence)
        request = wire.CreateRequest(shard_metadata=metadata or {}, **fence_fields)
        call = self.stub.Create(request, timeout=CALL_TIMEOUT_SECONDS)
        return await with_note(f"Create of {machine}", call)

    async def delete(self, machine: str, sequence: int | None = None) -> wire.TransitionAck:
        """Delete with a fence."""
        request = wire.DeleteRequest(**self._fence_fields(machine, sequence))
        call = self.stub.Delete(request, timeout=CALL_TIMEOUT_SECONDS)
        return await with_note(f"Delete of {machine}", call)

    async def drain(
        self, machine: str, grace_seconds: int = 0, sequence: int | None = None
    ) -> wire.TransitionAck:
        """Drain with a fence."""
        fence_fields = self._fence_fields(machine, sequence)
        request = wire.DrainRequest(grace_period_seconds=grace_seconds, **fence_fields)
        call = self.stub.Drain(request, timeout=CALL_TIMEOUT_SECONDS)
        return await with_note(f"Drain of {machine}", call)

    async def configure(
        self,
        machine: str,
        cluster: str,
        blob: bytes,
        metadata: Mapping[str, str] | None = None,
        sequence: int | None = None,
    ) -> wire.TransitionAck:
        """Configure with a fence."""
        request = wire.ConfigureRequest(
            cluster_id=cluster,
            bootstrap_blob=blob,
            shard_metadata=metadata or {},
            **self._fence_fields(machine, sequence),
        )
        call = self.stub.Configure(request, timeout=CALL_TIMEOUT_SECONDS)
        return await with_note(f"Configure of {machine}", call)
