"""A played operator survives whatever its shard does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardServicer, add_ShardServicer_to_server
from loaddriver.wire.operators import Operator, Rhythm, Tally, change_counts
from tests.support.waiting import eventually


class EndsAfterHello(ShardServicer):
    """Acknowledges each Hello, and ends the session."""

    async def Session(
        self,
        request_iterator: AsyncIterator[shard_pb2.OperatorMessage],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[shard_pb2.ShardMessage]:
        hello = await anext(request_iterator)
        ack = shard_pb2.Acknowledgement(echo=hello.hello.cluster_id)
        yield shard_pb2.ShardMessage(ack=ack)


async def test_a_session_that_ends_at_any_moment_is_counted_and_opened_again() -> None:
    """Also when the operator is just about to write: gRPC then raises another error."""
    server = transport.server()
    add_ShardServicer_to_server(EndsAfterHello(), server)
    address = f"127.0.0.1:{transport.listen(server, '127.0.0.1:0', None)}"
    await server.start()
    tally = Tally()
    rhythm = Rhythm(0.01, change_counts(0.0), asyncio.Event())
    operators = [
        asyncio.create_task(Operator(f"c{n}", [], lambda: [address], None, rhythm, tally).run(0))
        for n in range(20)
    ]
    await eventually(lambda: len(tally.ended) > 60)
    assert not any(operator.done() for operator in operators)
    for operator in operators:
        operator.cancel()
    await asyncio.gather(*operators, return_exceptions=True)
    assert tally.connected == 0
    await server.stop(None)
