"""Very many operators in one process, each with a session of its own and a roll-up now and then."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc.aio

from bigfleet.api import transport
from bigfleet.api.need_codec import need_from_wire
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.services.shard.fleet.assignment import to_metadata
from tests.support.fake_provider import TYPES

LEAST_NEEDS, MOST_NEEDS = 30, 300
CHANGED_SHARE = 0.01
ARRIVE_WITHIN_SECONDS = 30.0
SLOW_SECONDS = 1.0
_ZERO = capacity_pb2.PenaltyBucket.ValueType(1)


def machine_for(cluster: int, number: int, clusters: int) -> int:
    """The number of the stand-in's machine that just serves a need."""
    return number * clusters + cluster


def need(
    cluster: int, number: int, clusters: int, generation: int = 0
) -> capacity_pb2.CapacityNeed:
    """One of a cluster's needs: a profile that other clusters have too, in a group of its own.

    Each asks for most of one machine, so that it is served by one; a later generation asks for a
    little more.
    """
    kind = machine_for(cluster, number, clusters) % TYPES
    cpu = 2 ** (kind % 4 + 1) * 1000 - 900 + generation % 500
    return capacity_pb2.CapacityNeed(
        requirements=[
            capacity_pb2.NodeSelectorRequirement(
                key="node.kubernetes.io/instance-type",
                operator=capacity_pb2.NodeSelectorRequirement.IN,
                values=[f"t{kind}.large"],
            )
        ],
        aggregate_resources={"cpu": f"{cpu}m", "memory": "1Gi"},
        min_unit={"cpu": "100m", "memory": "64Mi"},
        priority=1000 * (number % 5),
        interruption_penalty_bucket=_ZERO,
        reclamation_penalty_bucket=_ZERO,
        group=f"g{number}",
    )


def bound_machines(operators: Sequence[Operator]) -> dict[int, dict[str, str]]:
    """The machines that serve all needs, by number, each with the metadata that binds it."""
    return {
        machine_for(cluster, number, len(operators)): to_metadata(need_from_wire(each, "need"))
        for cluster, operator in enumerate(operators)
        for number, each in enumerate(operator.needs)
    }


@dataclass
class Tally:
    """What all operators together have seen."""

    sent: int = 0
    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)
    slow_at: Counter[int] = field(default_factory=Counter)

    def answered(self, asked: float, received: float) -> None:
        """Note how long it took; slow ones also with the tenth of a minute in which they ended."""
        self.answer_seconds.append(received - asked)
        if received - asked > SLOW_SECONDS:
            self.slow_at[int(received // 6)] += 1


class Operator:
    """One cluster's. A `fickle` one changes a few of its needs from roll-up to roll-up."""

    def __init__(
        self, number: int, of: int, period_seconds: float, tally: Tally, *, fickle: bool = True
    ) -> None:
        self._number, self._of, self._tally = number, of, tally
        self._period_seconds, self._fickle = period_seconds, fickle
        self._random = random.Random(number)
        count = self._random.randint(LEAST_NEEDS, MOST_NEEDS)
        self.needs = [need(number, each, of) for each in range(count)]
        self._answers: dict[str, asyncio.Future[shard_pb2.Acknowledgement]] = {}

    async def run(self, address: str) -> None:
        """Until cancelled; a session that ends or is not answered is counted, and not opened again.

        They come one after another: all at once, they would time this process and not the shard.
        """
        cluster = f"cluster-{self._number:04d}"
        await asyncio.sleep(self._number / self._of * ARRIVE_WITHIN_SECONDS)
        async with transport.channel(address) as channel:
            call = ShardStub(channel).Session(None)  # written to below
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._receive(call))
                    both.create_task(self._send_rollups(call, cluster))
            except* (grpc.aio.AioRpcError, TimeoutError) as errors:
                self._tally.lost.append(f"{cluster}: {errors.exceptions[0]!r}")
            finally:
                call.cancel()

    async def _send_rollups(self, call: grpc.aio.StreamStreamCall, cluster: str) -> None:  # type: ignore[type-arg]
        hello = shard_pb2.Hello(cluster_id=cluster)
        await self._ask(call, shard_pb2.OperatorMessage(hello=hello), cluster)
        await asyncio.sleep(self._random.random() * self._period_seconds)
        generation = 0
        while True:
            started = time.monotonic()
            rollup = capacity_pb2.ClusterCapacityNeeds(
                cluster_id=cluster, timestamp_unix_nanos=time.time_ns(), needs=self.needs
            )
            echo = str(rollup.timestamp_unix_nanos)
            ack = await self._ask(call, shard_pb2.OperatorMessage(rollup=rollup), echo)
            self._tally.answered(started, time.monotonic())
            self._tally.sent += 1
            if ack.rejected:
                self._tally.refused.append(f"{cluster}: {ack.rejected}")
            await asyncio.sleep(self._period_seconds - (time.monotonic() - started))
            generation += 1
            changes = max(1, int(CHANGED_SHARE * len(self.needs))) if self._fickle else 0
            for _ in range(changes):
                chosen = self._random.randrange(len(self.needs))
                self.needs[chosen] = need(self._number, chosen, self._of, generation)

    async def _ask(
        self,
        call: grpc.aio.StreamStreamCall,  # type: ignore[type-arg]
        message: shard_pb2.OperatorMessage,
        echo: str,
    ) -> shard_pb2.Acknowledgement:
        answer: asyncio.Future[shard_pb2.Acknowledgement] = asyncio.Future()
        self._answers[echo] = answer
        await call.write(message)
        async with asyncio.timeout(30):
            return await answer

    async def _receive(self, call: grpc.aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
        async for message in call:
            if message.HasField("ack") and message.ack.echo in self._answers:
                self._answers.pop(message.ack.echo).set_result(message.ack)
            elif message.HasField("bootstrap_request"):
                blob = shard_pb2.BootstrapBlobResponse(
                    request_id=message.bootstrap_request.request_id, user_data=b"blob"
                )
                await call.write(shard_pb2.OperatorMessage(bootstrap_response=blob))
            elif message.HasField("reclaim_instruction"):
                ack = shard_pb2.ReclaimAck(
                    instruction_id=message.reclaim_instruction.instruction_id, nodes_started=1
                )
                await call.write(shard_pb2.OperatorMessage(reclaim_ack=ack))
        self._tally.lost.append(f"cluster-{self._number:04d}: ended by the shard")
