"""A provider that only lists, for what no real provider answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import provider_pb2 as wire


@asynccontextmanager
async def listing_provider(
    listing: Callable[[Any, Any], Awaitable[wire.MachineList | bytes]],
) -> AsyncIterator[str]:
    """The address of a provider that answers List with `listing`, as a message or as its bytes."""

    def encoded(answer: wire.MachineList | bytes) -> bytes:
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    server = transport.server()
    method = grpc.unary_unary_rpc_method_handler(listing, wire.ListFilter.FromString, encoded)
    service = "bigfleet.v1alpha1.CapacityProvider"
    handler = grpc.method_handlers_generic_handler(service, {"List": method})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
