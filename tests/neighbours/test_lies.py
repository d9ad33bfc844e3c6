"""Messages of an operator about machines of other clusters have no effect."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.api.v1alpha1 import shard_pb2 as wire
from bigfleet.tasks import cancel_and_wait
from tests.support.neighbours_rig import Neighbourhood, neighbourhood
from tests.support.shard_process import decides
from tests.support.shard_rig import FakeOperator, rollup
from tests.support.waiting import eventually

_INTERVAL_SECONDS = 0.05
_CYCLES = 12


def disruptions(machines: list[str], **fields: Any) -> wire.OperatorMessage:
    """What giving these machines back would disturb."""
    told = [wire.MachineDisruption(machine_id=each, **fields) for each in machines]
    return wire.OperatorMessage(
        disruption_report=wire.DisruptionReport(inquiry_id="disruption-1", machines=told)
    )


def inquiry(machines: list[str]) -> wire.OperatorMessage:
    """That their Nodes are being emptied, for longer than time lasts."""
    told = [
        wire.NodeDrain(machine_id=each, seconds_left=left)
        for each, left in zip(machines, itertools.cycle((-5, 2**62)), strict=False)
    ]
    return wire.OperatorMessage(inquiry=wire.NodeStateInquiry(machine_ids=machines, drains=told))


def limited(machines: list[str], cluster: str = "liar") -> wire.OperatorMessage:
    """That they are broken, and that nobody asks for anything."""
    limits = [capacity.NodeLimit(machine_id=m, reason="Missing", broken=True) for m in machines]
    return wire.OperatorMessage(rollup=rollup(cluster, limits=limits))


def answers(_: list[str]) -> wire.OperatorMessage:
    """Answers to questions that others were asked."""
    ack = wire.ReclaimAck(instruction_id="reclaim-1", nodes_started=-3, refused="no")
    return wire.OperatorMessage(reclaim_ack=ack)


def blobs(_: list[str]) -> wire.OperatorMessage:
    """Credentials for machines that go elsewhere."""
    blob = wire.BootstrapBlobResponse(request_id="bootstrap-1", user_data=b"mine", ttl_seconds=-1)
    return wire.OperatorMessage(bootstrap_response=blob)


def too_large(_: list[str]) -> wire.OperatorMessage:
    """A roll-up of less than nothing."""
    told = wire.RollUpTooLarge(timestamp_unix_nanos=-1, bytes=-1, max_bytes=-(2**62))
    return wire.OperatorMessage(rollup_too_large=told)


def unknown(_: list[str]) -> wire.OperatorMessage:
    """A message that no release has, and one of a later release."""
    later = wire.OperatorMessage()
    later.ParseFromString(b"\xfa\x3f\x03abc")
    return later


def free(machines: list[str]) -> wire.OperatorMessage:
    """That nothing runs there."""
    return disruptions(machines, pods=0, cost=0.0)


def absurd(machines: list[str]) -> wire.OperatorMessage:
    """Numbers that are none."""
    return disruptions(machines, pods=-7, batch_pods=-(2**31), cost=math.nan)


def in_their_name(machines: list[str]) -> wire.OperatorMessage:
    """The healthy cluster's roll-up, of nothing at all."""
    return limited(machines, cluster="healthy")


LIES = [free, absurd, inquiry, limited, in_their_name, answers, blobs, too_large, unknown]
Lie = Callable[[list[str]], wire.OperatorMessage]


@asynccontextmanager
async def lying(
    here: Neighbourhood, lies: list[Lie], about: list[str]
) -> AsyncIterator[FakeOperator]:
    """An operator that says so again and again."""
    liar = await here.operator("liar")
    told = itertools.count()

    async def lie() -> None:
        for each in itertools.cycle(lies):
            message = each(about)
            await liar.say(**{message.WhichOneof("message") or "inquiry": _part(message)})
            next(told)
            await asyncio.sleep(_INTERVAL_SECONDS)

    task = asyncio.create_task(lie())
    try:
        yield liar
        assert next(told) > 2 * len(lies), "hardly anything was said"
        assert not task.done(), task
    finally:
        await cancel_and_wait(task)
        await liar.leave()


def _part(message: wire.OperatorMessage) -> Any:
    return getattr(message, message.WhichOneof("message") or "inquiry")


async def test_no_lie_moves_a_machine_of_another_cluster(tmp_path: Path) -> None:
    """Neither drained nor deleted nor configured anew, and the next one still comes."""
    async with neighbourhood(tmp_path) as here:
        for _ in range(3):
            await here.healthy.grows()
        theirs = sorted(here.at_work("healthy"))
        before = [*here.provider.orders]
        async with lying(here, [*LIES], theirs):
            await decides(here.shard, int(await _cycles(here)) + _CYCLES)
            assert sorted(here.at_work("healthy")) == theirs
            assert here.provider.orders == before
            await here.healthy.grows()
        told = await here.shard.metrics()
    assert told.get("bigfleet_shard_cycle_failures_total", 0) == 0
    assert told["bigfleet_shard_needs_quarantined"] == 0


async def test_nobody_else_can_say_that_a_clusters_machines_are_empty(tmp_path: Path) -> None:
    """Its own operator says that pods run there which must not be disturbed: they stay."""
    async with neighbourhood(tmp_path) as here:
        healthy = here.healthy
        for _ in range(3):
            await healthy.grows()
        theirs = sorted(here.at_work("healthy"))
        healthy.operator.reports = False
        async with lying(here, [free], theirs):
            await healthy.operator.roll_up(*healthy.needs[:1])
            first = await _cycles(here)
            while await _cycles(here) < first + _CYCLES:
                blocked = disruptions(theirs, pods=1, cost=5.0, blocked="a budget allows none")
                await healthy.operator.say(disruption_report=blocked.disruption_report)
                await asyncio.sleep(3 * _INTERVAL_SECONDS)
            assert sorted(here.at_work("healthy")) == theirs


async def test_nobody_else_can_say_that_a_clusters_machines_must_stay(tmp_path: Path) -> None:
    """Its own operator says that they are empty: those to spare are given back."""

    def blocked(machines: list[str]) -> wire.OperatorMessage:
        return disruptions(machines, pods=1, cost=1.0, blocked="because I say so")

    async with neighbourhood(tmp_path) as here:
        healthy = here.healthy
        for _ in range(3):
            await healthy.grows()
        theirs = sorted(here.at_work("healthy"))
        async with lying(here, [blocked], theirs):
            await healthy.operator.roll_up(*healthy.needs[:1])
            await eventually(lambda: len(here.at_work("healthy")) < 3)


@pytest.mark.parametrize("rubbish", [b"\xff\xff\xff", b"\x0a\x05abc", b"\x0a\xff\xff\xff\x7f"])
async def test_bytes_that_are_no_message_end_their_own_session_only(
    tmp_path: Path, rubbish: bytes
) -> None:
    """What cannot be read ends the stream that it came on."""
    async with neighbourhood(tmp_path) as here:
        async with transport.channel(here.shard.address) as channel:
            raw = channel.stream_stream("/bigfleet.v1alpha1.Shard/Session", bytes, bytes)

            async def says() -> AsyncIterator[bytes]:
                hello = wire.OperatorMessage(hello=wire.Hello(cluster_id="liar"))
                yield hello.SerializeToString()
                yield rubbish
                await asyncio.Event().wait()

            with suppress(grpc.aio.AioRpcError):
                async with asyncio.timeout(60):
                    async for _ in raw(says()):
                        pass
        await here.healthy.grows()


async def _cycles(here: Neighbourhood) -> float:
    """How many have ended."""
    return (await here.shard.metrics())["bigfleet_shard_cycle_duration_seconds_count"]
