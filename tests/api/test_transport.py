"""One helper opens every server and channel, so a large roll-up never tears a session down."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2, shard_pb2_grpc


class _Echo(shard_pb2_grpc.ShardServicer):
    async def Session(
        self,
        request: AsyncIterator[shard_pb2.OperatorMessage],
        context: grpc.aio.ServicerContext,  # type: ignore[type-arg]  # noqa: ARG002
    ) -> AsyncIterator[shard_pb2.ShardMessage]:
        async for message in request:
            echo = str(message.ByteSize())
            yield shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo=echo))


@pytest.mark.parametrize("mebibytes", [1, 5, 40])
async def test_messages_beyond_the_library_default_pass(mebibytes: int) -> None:
    """gRPC's own ceiling of 4 MiB does not apply on either side."""
    server = transport.server()
    shard_pb2_grpc.add_ShardServicer_to_server(_Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    blob = shard_pb2.BootstrapBlobResponse(user_data=bytes(mebibytes * 2**20))
    message = shard_pb2.OperatorMessage(bootstrap_response=blob)
    async with transport.channel(f"127.0.0.1:{port}") as channel:
        session = shard_pb2_grpc.ShardStub(channel).Session(iter([message]))
        answers = [answer.ack.echo async for answer in session]
    assert answers == [str(message.ByteSize())]
    await server.stop(None)


def test_the_ceiling_is_256_mebibytes() -> None:
    """Clusters of the largest size planned for send roll-ups of tens of MiB."""
    assert transport.MAX_MESSAGE_BYTES == 256 * 2**20
    assert capacity_pb2.ClusterCapacityNeeds().ByteSize() == 0
