"""A provider that only lists, for what no real provider answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import provider_pb2 as wire


def list_handler(listing: Callable[[Any, Any], Any]) -> grpc.GenericRpcHandler[Any, Any]:
    """Answers List with `listing`, as a message or as its bytes, and nothing else."""

    def encoded(answer: wire.MachineList | bytes) -> bytes:
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    method = grpc.unary_unary_rpc_method_handler(listing, wire.ListFilter.FromString, encoded)
    service = "bigfleet.v1alpha1.CapacityProvider"
    return grpc.method_handlers_generic_handler(service, {"List": method})


@asynccontextmanager
async def listing_provider(
    listing: Callable[[Any, Any], Awaitable[wire.MachineList | bytes]],
) -> AsyncIterator[str]:
    """The address of a provider that answers with `list_handler`."""
    server = transport.server()
    server.add_generic_rpc_handlers((list_handler(listing),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
