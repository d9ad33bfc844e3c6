"""Servers and callers with certificates, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.api.v1alpha1 import provider_pb2, shard_pb2
from bigfleet.api.v1alpha1.provider_pb2_grpc import (
    CapacityProviderServicer,
    CapacityProviderStub,
    add_CapacityProviderServicer_to_server,
)
from bigfleet.api.v1alpha1.shard_pb2_grpc import (
    ShardServicer,
    ShardStub,
    add_ShardServicer_to_server,
)

DAY = timedelta(days=1)


def identity(
    out: Path, role: str, own: str = "", validity: timedelta = DAY, new_authority: bool = False
) -> Identity:
    """Made or renewed below `out`."""
    name = Principal(role, own)
    return issuing.issue(out, [name], validity, new_authority)[name]


class Provider(CapacityProviderServicer):
    """Answers all calls that are authorized."""

    async def Create(
        self,
        request: provider_pb2.CreateRequest,
        context: Any,  # noqa: ARG002
    ) -> provider_pb2.TransitionAck:
        return provider_pb2.TransitionAck(operation_id=request.shard_id)

    async def Get(self, request: provider_pb2.MachineRef, context: Any) -> provider_pb2.Machine:
        shown = context.auth_context().get("x509_pem_cert", [b""])[0].decode()
        return provider_pb2.Machine(id=request.id, host=provider_pb2.HostRef(ref=shown))


class Shard(ShardServicer):
    """Acknowledges every message."""

    async def Session(
        self,
        request: AsyncIterator[shard_pb2.OperatorMessage],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[shard_pb2.ShardMessage]:
        async for message in request:
            ack = shard_pb2.Acknowledgement(echo=message.hello.cluster_id)
            yield shard_pb2.ShardMessage(ack=ack)


@asynccontextmanager
async def serving(own: Identity | None) -> AsyncIterator[str]:
    """The address of a server with both services."""
    server = transport.server(own)
    add_CapacityProviderServicer_to_server(Provider(), server)  # type: ignore[abstract]
    add_ShardServicer_to_server(Shard(), server)
    port = transport.listen(server, "127.0.0.1:0", own)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def get(address: str, own: Identity | None, role: str = "provider") -> str:
    """A read; AioRpcError when it is denied."""
    async with transport.channel(address, own, role) as channel:
        stub: Any = CapacityProviderStub(channel)
        machine: provider_pb2.Machine = await stub.Get(provider_pb2.MachineRef(id="m"), timeout=60)
        return machine.id


async def create(address: str, own: Identity, shard: str) -> str:
    """A call under the name of `shard`; AioRpcError when it is denied."""
    async with transport.channel(address, own, "provider") as channel:
        stub: Any = CapacityProviderStub(channel)
        request = provider_pb2.CreateRequest(machine_id="m", shard_id=shard)
        ack: provider_pb2.TransitionAck = await stub.Create(request, timeout=60)
        return ack.operation_id


async def greet(address: str, own: Identity | None, cluster: str) -> str:
    """A session's first message; AioRpcError when it is denied."""
    async with transport.channel(address, own, "shard") as channel:
        hello = shard_pb2.Hello(cluster_id=cluster)
        session = ShardStub(channel).Session(iter([shard_pb2.OperatorMessage(hello=hello)]))
        return "".join([message.ack.echo async for message in session])


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """The error that `call` must end in."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"was not refused but answered {answer!r}")
