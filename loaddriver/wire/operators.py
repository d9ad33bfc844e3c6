"""Clusters' operators without clusters: each has a session of its own, and sends roll-ups."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field

import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub

_ANSWER_SECONDS = 30.0
# After a session has ended: long enough for a shard that starts again not to be asked in vain too
# often, short enough that a redirect is followed at once by comparison.
_RETRY_SECONDS = 0.2, 2.0
_MOST_CHANGE = 0.05
_Call = grpc.aio.StreamStreamCall[shard_pb2.OperatorMessage, shard_pb2.ShardMessage]


@dataclass
class Tally:
    """What all operators together have seen. `connected` is how many have a session now."""

    connected: int = 0
    sent: int = 0
    #: why sessions ended that the operator did not end, by cluster
    ended: list[str] = field(default_factory=list)
    #: why roll-ups were rejected, by cluster
    rejected: list[str] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)


Change = Callable[[MutableSequence[capacity_pb2.CapacityNeed], random.Random], None]
"""Changes some of a cluster's needs."""


@dataclass(frozen=True)
class Rhythm:
    """How often roll-ups are sent, and how each differs from the last once `changing` is set."""

    rollup_seconds: float
    change: Change
    changing: asyncio.Event


def change_counts(share: float) -> Change:
    """Request a few more or fewer pods in this share of the needs, but not in gangs or in groups
    that spread, which come and go as a whole.
    """

    def change(needs: MutableSequence[capacity_pb2.CapacityNeed], choice: random.Random) -> None:
        plain = [at for at, need in enumerate(needs) if not need.group]
        expected = share * len(needs) + choice.random()
        for at in choice.sample(plain, min(len(plain), int(expected))):
            counts = needs[at].sizes.counts
            for size, pods in enumerate(counts):
                factor = choice.uniform(1 - _MOST_CHANGE, 1 + _MOST_CHANGE)
                counts[size] = max(1, round(pods * factor))

    return change


class Operator:
    """One cluster's: it dials any of the `shards`, and goes where it is redirected to."""

    def __init__(
        self,
        cluster: str,
        needs: Sequence[capacity_pb2.CapacityNeed],
        shards: Callable[[], Sequence[str]],
        identity: Identity | None,
        rhythm: Rhythm,
        tally: Tally,
    ) -> None:
        self._cluster, self._shards = cluster, shards
        # Made once: of a roll-up that is sent again only the time is another.
        rollup = capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster, needs=needs)
        self._message = shard_pb2.OperatorMessage(rollup=rollup)
        self._identity, self._rhythm, self._tally = identity, rhythm, tally
        self._random = random.Random(cluster)
        self._answers: dict[str, asyncio.Future[shard_pb2.Acknowledgement]] = {}
        self._redirect = ""
        self._writing = asyncio.Lock()

    async def run(self, after_seconds: float) -> None:
        """Connect after that time, and again whenever the session ends, until cancelled."""
        await asyncio.sleep(after_seconds)
        address = self._random.choice(self._shards())
        while True:
            self._redirect = ""
            try:
                await self._session(address)
                why = "by the shard"
            # grpc.aio raises InvalidStateError when it writes to a call that has just ended.
            except* (grpc.aio.AioRpcError, TimeoutError, asyncio.InvalidStateError) as errors:
                why = repr(errors.exceptions[0])
            if self._redirect:
                address = self._redirect
                continue
            self._tally.ended.append(f"{self._cluster}: {why}")
            await asyncio.sleep(self._random.uniform(*_RETRY_SECONDS))
            address = self._random.choice(self._shards())

    async def _session(self, address: str) -> None:
        """One session, until either side ends it."""
        async with transport.channel(address, self._identity, "shard") as channel:
            call: _Call = ShardStub(channel).Session(None)  # written to below
            receiving = asyncio.create_task(self._receive(call))
            try:
                async with asyncio.TaskGroup() as both:
                    sending = both.create_task(self._send(call))
                    both.create_task(self._end_with(receiving, sending))
            finally:
                call.cancel()
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)

    async def _end_with(self, receiving: asyncio.Task[None], sending: asyncio.Task[None]) -> None:
        """Stop sending once the shard has ended the session."""
        await asyncio.wait([receiving])
        sending.cancel()
        await receiving  # raises why

    async def _send(self, call: _Call) -> None:
        hello = shard_pb2.Hello(cluster_id=self._cluster)
        await self._ask(call, shard_pb2.OperatorMessage(hello=hello), self._cluster)
        self._tally.connected += 1
        try:
            await self._send_rollups(call)
        finally:
            self._tally.connected -= 1

    async def _send_rollups(self, call: _Call) -> None:
        every, rollup = self._rhythm.rollup_seconds, self._message.rollup
        while True:
            asked = time.monotonic()
            rollup.timestamp_unix_nanos = time.time_ns()
            ack = await self._ask(call, self._message, str(rollup.timestamp_unix_nanos))
            self._tally.answer_seconds.append(time.monotonic() - asked)
            self._tally.sent += 1
            if ack.rejected or ack.rejected_items:
                why = ack.rejected or ack.rejected_items[0].why
                self._tally.rejected.append(f"{self._cluster}: {why}")
            # Not all clusters at the same moment; and one that is late is not made up for.
            due = asked + every * self._random.uniform(0.9, 1.1)
            await asyncio.sleep(due - time.monotonic())
            if self._rhythm.changing.is_set():
                self._rhythm.change(rollup.needs, self._random)

    async def _ask(
        self, call: _Call, message: shard_pb2.OperatorMessage, echo: str
    ) -> shard_pb2.Acknowledgement:
        answer: asyncio.Future[shard_pb2.Acknowledgement] = asyncio.Future()
        self._answers[echo] = answer
        try:
            await self._write(call, message)
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer
        finally:
            self._answers.pop(echo, None)

    async def _write(self, call: _Call, message: shard_pb2.OperatorMessage) -> None:
        async with self._writing:  # gRPC ends a call that is written to twice at a time
            await call.write(message)

    async def _receive(self, call: _Call) -> None:
        async for message in call:
            match message.WhichOneof("message"):
                case "ack":
                    answer = self._answers.get(message.ack.echo)
                    if answer is not None and not answer.done():
                        answer.set_result(message.ack)
                case "redirect":
                    self._redirect = message.redirect.address
                    return
                case "bootstrap_request":
                    request = message.bootstrap_request.request_id
                    blob = shard_pb2.BootstrapBlobResponse(request_id=request, user_data=b"blob")
                    await self._write(call, shard_pb2.OperatorMessage(bootstrap_response=blob))
                case "reclaim_instruction":
                    ack = shard_pb2.ReclaimAck(
                        instruction_id=message.reclaim_instruction.instruction_id, nodes_started=1
                    )
                    await self._write(call, shard_pb2.OperatorMessage(reclaim_ack=ack))
                case "disruption_inquiry":
                    report = _report_of(message.disruption_inquiry)
                    await self._write(call, shard_pb2.OperatorMessage(disruption_report=report))


def _report_of(inquiry: shard_pb2.DisruptionInquiry) -> shard_pb2.DisruptionReport:
    """All machines may go, each with one pod."""
    machines = [
        shard_pb2.MachineDisruption(machine_id=name, pods=1, cost=1.0)
        for name in inquiry.machine_ids[: inquiry.max_machines]
    ]
    return shard_pb2.DisruptionReport(inquiry_id=inquiry.inquiry_id, machines=machines)
