"""A leading coordinator that answers UNAVAILABLE."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from bigfleet.adapters.coordinator.client import LEADER_TRAILER
from bigfleet.api import transport
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import (
    CoordinatorServicer,
    add_CoordinatorServicer_to_server,
)


class _UnavailableLeader(CoordinatorServicer):
    def __init__(self, why: str) -> None:
        self.why, self.address = why, ""

    async def RemoveShard(
        self,
        request: wire.RemoveShardRequest,  # noqa: ARG002 - gRPC's
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> wire.RemoveShardResponse:
        """UNAVAILABLE."""
        trailer = ((LEADER_TRAILER, self.address),)
        await context.abort(grpc.StatusCode.UNAVAILABLE, self.why, trailer)


@asynccontextmanager
async def unavailable_leader(why: str) -> AsyncIterator[str]:
    """Serve it; yield its address."""
    server, answers = transport.server(), _UnavailableLeader(why)  # type: ignore[abstract]
    add_CoordinatorServicer_to_server(answers, server)
    answers.address = f"127.0.0.1:{transport.listen(server, '127.0.0.1:0', None)}"
    await server.start()
    try:
        yield answers.address
    finally:
        await server.stop(None)
