"""The outbox keeps the latest message per key."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from bigfleet.api.v1alpha1.shard_pb2 import Acknowledgement, NodeStateUpdate, ShardMessage
from bigfleet.services.shard.sessions.outbox import MAX_UNKEYED, Outbox


def news(machine_id: str, error: str) -> ShardMessage:
    return ShardMessage(node_state_update=NodeStateUpdate(machine_id=machine_id, last_error=error))


async def test_a_newer_message_replaces_a_queued_one_in_its_place() -> None:
    """Two updates of one machine go out as one, no later than the first would have."""
    outbox = Outbox()
    outbox.put(news("m-1", "old"), "node:m-1")
    outbox.put(news("m-2", "x"), "node:m-2")
    outbox.put(news("m-1", "new"), "node:m-1")
    outbox.close()
    updates = [m.node_state_update async for m in outbox.drain()]
    sent = [(u.machine_id, u.last_error) for u in updates]
    assert sent == [("m-1", "new"), ("m-2", "x")]


async def test_messages_without_a_key_all_arrive() -> None:
    """Acknowledgements replace nothing, and nothing enters a closed outbox."""
    outbox = Outbox()
    for echo in "ab":
        outbox.put(ShardMessage(ack=Acknowledgement(echo=echo)))
    outbox.close()
    outbox.put(ShardMessage(ack=Acknowledgement(echo="late")))
    assert [m.ack.echo async for m in outbox.drain()] == ["a", "b"]


async def test_who_reads_no_answers_is_not_listened_to_any_more() -> None:
    """Until it reads again: however much it says, so many answers wait and no more."""
    outbox = Outbox()
    for number in range(MAX_UNKEYED):
        await asyncio.wait_for(outbox.wait_for_space(), 1)
        outbox.put(ShardMessage(ack=Acknowledgement(echo=str(number))))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outbox.wait_for_space(), 0.05)
    outbox.put(news("m-1", "x"), "node:m-1")
    async with aclosing(outbox.drain()) as reading:
        assert (await anext(reading)).ack.echo == "0"
        await asyncio.wait_for(outbox.wait_for_space(), 1)
    outbox.put(ShardMessage(ack=Acknowledgement(echo="full again")))
    outbox.close()
    await asyncio.wait_for(outbox.wait_for_space(), 1)
