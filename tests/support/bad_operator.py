"""An operator that behaves badly, in a process of its own: `python bad_operator.py MANNER ADDRESS`.

It prints a line once it has begun, and goes on until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc.aio

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.api.v1alpha1 import shard_pb2 as wire
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.services.shard.demand.demand_limit import MAX_DEMAND_BYTES

CLUSTER = "bad"
# More urgent than any other cluster's.
_PRIORITY = 2**31 - 1
_SLOW_SECONDS = 3.0
_MANY_NEEDS = 300
_OFTEN_SECONDS = 0.5


def need(number: int, cpu: str = "1", **fields: Any) -> capacity.CapacityNeed:
    """One machine in zone b, where the others have none, in a group of its own."""
    return capacity.CapacityNeed(
        requirements=[
            capacity.NodeSelectorRequirement(
                key="topology.kubernetes.io/zone",
                operator=capacity.NodeSelectorRequirement.IN,
                values=["b"],
            )
        ],
        aggregate_resources={"cpu": cpu},
        min_unit={"cpu": cpu},
        priority=_PRIORITY,
        interruption_penalty_bucket=capacity.PENALTY_BUCKET_ZERO,
        reclamation_penalty_bucket=capacity.PENALTY_BUCKET_ZERO,
        group=f"g{number}",
        **fields,
    )


def rollup(*needs: capacity.CapacityNeed, cluster: str = CLUSTER) -> wire.OperatorMessage:
    """A roll-up newer than all before."""
    message = capacity.ClusterCapacityNeeds(
        cluster_id=cluster, timestamp_unix_nanos=time.time_ns(), needs=needs
    )
    return wire.OperatorMessage(rollup=message)


def hello() -> wire.OperatorMessage:
    """How a session begins."""
    return wire.OperatorMessage(hello=wire.Hello(cluster_id=CLUSTER))


class Session:
    """One session that says what it is given, as fast as the other side takes it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call: Any = ShardStub(channel).Session(None)

    async def say(self, message: wire.OperatorMessage) -> None:
        """Send one message."""
        await self.call.write(message)

    async def receive(self) -> AsyncIterator[wire.ShardMessage]:
        """Whatever comes."""
        end: object = vars(grpc.aio)["EOF"]  # the stubs forget it
        while (message := await self.call.read()) is not end:
            yield message


async def _rest(session: Session) -> None:
    async for _ in session.receive():
        pass


async def silent(session: Session) -> None:
    """Asks for twenty machines, and answers nothing."""
    await session.say(rollup(*(need(number) for number in range(20))))
    await _rest(session)


async def slow(session: Session) -> None:
    """Answers each question after a while, and takes all the machines it can get."""
    await session.say(rollup(*(need(number) for number in range(20))))
    async for message in session.receive():
        if message.bootstrap_request.request_id:
            await asyncio.sleep(_SLOW_SECONDS)
            blob = wire.BootstrapBlobResponse(
                request_id=message.bootstrap_request.request_id, user_data=b"late"
            )
            await session.say(wire.OperatorMessage(bootstrap_response=blob))


def _changing(number_of_needs: int) -> Iterator[wire.OperatorMessage]:
    """Roll-ups of which each differs from the one before in every need."""
    for generation in itertools.count():
        cpu = f"{1000 + generation % 1000}m"
        yield rollup(*(need(number, cpu) for number in range(number_of_needs)))


async def flooding(session: Session) -> None:
    """Says roll-ups of hundreds of needs, each changed, as fast as they are taken."""
    receiving = asyncio.create_task(_rest(session))
    try:
        for message in _changing(_MANY_NEEDS):
            await session.say(message)
    finally:
        receiving.cancel()


async def never_reading(session: Session) -> None:
    """Says small roll-ups as fast as they are taken, and never reads an answer."""
    for message in itertools.cycle((rollup(need(1)), rollup(need(2)))):
        message.rollup.timestamp_unix_nanos += 1
        await session.say(message)


async def _again_and_again(session: Session, *messages: wire.OperatorMessage) -> None:
    receiving = asyncio.create_task(_rest(session))
    try:
        for message in itertools.cycle(messages):
            message.rollup.timestamp_unix_nanos += 1
            await session.say(message)
            await asyncio.sleep(_OFTEN_SECONDS)
    finally:
        receiving.cancel()


async def oversized(session: Session) -> None:
    """Beyond the limits: too many bytes in all, one need of too many, one of too many sizes."""
    long = [need(number) for number in range(3 * MAX_DEMAND_BYTES // 2**18)]
    for number, each in enumerate(long):
        each.group = f"{number}{'x' * 2**17}"
    endless = need(0)
    endless.group = "x" * 2**19
    sizes = capacity.PodSizes(resources=["cpu"], amounts=range(1, 2000), counts=[1] * 1999)
    await _again_and_again(
        session,
        rollup(*long),
        rollup(need(1), endless),
        rollup(need(1), need(2, sizes=sizes)),
    )


async def burning(session: Session) -> None:
    """Bothers nobody but by the CPU that it takes: what the others are compared with."""
    del session
    while True:
        sum(range(100_000))
        await asyncio.sleep(0)


async def storming(session: Session) -> None:
    """Dials again and again: each new session replaces the one before, and is told everything."""
    del session
    async with transport.channel(sys.argv[2]) as channel:
        while True:
            fresh = Session(channel)
            await fresh.say(hello())
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await fresh.call.read()
                await fresh.say(hello())  # a second Hello breaks the protocol
                await fresh.call.read()
            fresh.call.cancel()


MANNERS: dict[str, Callable[[Session], Awaitable[None]]] = {
    each.__name__: each
    for each in (silent, slow, flooding, never_reading, oversized, storming, burning)
}


async def main(manner: str, address: str) -> None:
    """Until this process is ended."""
    async with transport.channel(address) as channel:
        session = Session(channel)
        await session.say(hello())
        await session.call.read()
        print("begun", flush=True)
        await MANNERS[manner](session)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
