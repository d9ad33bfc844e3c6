"""A played operator survives whatever its shard does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
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


class InquiresBeforeItReads(ShardServicer):
    """Acknowledges Hello, and sends an inquiry before it reads a roll-up."""

    async def Session(
        self,
        request_iterator: AsyncIterator[shard_pb2.OperatorMessage],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[shard_pb2.ShardMessage]:
        inquiry = shard_pb2.DisruptionInquiry(inquiry_id="i", machine_ids=["m"], max_machines=1)
        async for message in request_iterator:
            if message.HasField("hello"):
                ack = shard_pb2.Acknowledgement(echo=message.hello.cluster_id)
                yield shard_pb2.ShardMessage(ack=ack)
                await asyncio.sleep(0.2)  # the roll-up is under way, and larger than gRPC buffers
                yield shard_pb2.ShardMessage(disruption_inquiry=inquiry)
                await asyncio.sleep(0.2)
            elif message.HasField("rollup"):
                ack = shard_pb2.Acknowledgement(echo=str(message.rollup.timestamp_unix_nanos))
                yield shard_pb2.ShardMessage(ack=ack)


@asynccontextmanager
async def _served(servicer: ShardServicer) -> AsyncIterator[str]:
    """The address of a shard."""
    server = transport.server()
    add_ShardServicer_to_server(servicer, server)
    address = f"127.0.0.1:{transport.listen(server, '127.0.0.1:0', None)}"
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


async def _end(operators: Sequence[asyncio.Task[None]]) -> None:
    for operator in operators:
        operator.cancel()
    await asyncio.gather(*operators, return_exceptions=True)


async def test_an_operator_answers_while_it_sends_a_large_rollup() -> None:
    """gRPC takes one message of a call at a time, and ends a call that is written to twice."""
    tally, rhythm = Tally(), Rhythm(60.0, change_counts(0.0), asyncio.Event())
    needs = [capacity_pb2.CapacityNeed(group="g" * 1_000_000) for _ in range(30)]
    async with _served(InquiresBeforeItReads()) as address:
        operator = Operator("c", needs, lambda: [address], None, rhythm, tally)
        running = asyncio.create_task(operator.run(0))
        await eventually(lambda: tally.sent == 1 or bool(tally.ended))
        ended = [*tally.ended]
        await _end([running])
    assert ended == []


async def test_a_session_that_ends_at_any_moment_is_counted_and_opened_again() -> None:
    """Also when the operator is just about to write: gRPC then raises another error."""
    tally, rhythm = Tally(), Rhythm(0.01, change_counts(0.0), asyncio.Event())
    async with _served(EndsAfterHello()) as address:
        operators = [
            Operator(f"c{n}", [], lambda: [address], None, rhythm, tally) for n in range(20)
        ]
        running = [asyncio.create_task(operator.run(0)) for operator in operators]
        await eventually(lambda: len(tally.ended) > 60)
        assert not any(operator.done() for operator in running)
        await _end(running)
    assert tally.connected == 0
