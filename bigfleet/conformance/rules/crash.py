"""A provider's state survives its crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import RuleViolation, Skipped, expect, expect_stale
from bigfleet.conformance.subject import Subject

_METADATA = {"kept": "over a crash"}
# Until a killed provider serves again.
_RESTART_SECONDS = 60.0
_POLL_INTERVAL_SECONDS = 0.1


@check(
    "crash/orders-survive",
    "An accepted operation continues after a crash, with its operation id and metadata",
)
async def orders_survive(subject: Subject) -> str:
    """A machine that is CONFIGURING when the provider crashes."""
    _restart_hook(subject)
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        async with subject.cluster.readiness_withheld():
            before = await subject.configure(shard, machine, _METADATA)
            await _crash(subject)
        after = await subject.wait_for_state(machine, wire.CONFIGURED, within=_RESTART_SECONDS)
        kept = dict(after.shard_metadata) == _METADATA
        expect(kept, f"shard_metadata is {dict(after.shard_metadata)} after the crash")
        again = await subject.configure(shard, machine, _METADATA)
        ids = (before.operation_id, again.operation_id)
        expect(ids[0] == ids[1], f"operation {ids[0]!r} is called {ids[1]!r} after the crash")
    return f"{machine} was CONFIGURED by {ids[0]}"


@check(
    "crash/fencing-survives",
    "Fencing tokens, epochs and sequences, survive a crash",
)
async def fencing_survives(subject: Subject) -> str:
    """A duplicate of a call before the crash, then a call of an older epoch."""
    _restart_hook(subject)
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        shard.epoch = 5
        await shard.create(machine, sequence=10)
        await _crash(subject)
        await expect_stale(shard.create(machine, sequence=10), "its duplicate after a crash")
        shard.epoch = 4
        what = "epoch 4 after epoch 5 and a crash"
        await expect_stale(shard.create(machine, sequence=1000), what)
    return "its duplicate and an older epoch after a crash: FAILED_PRECONDITION"


def _restart_hook(subject: Subject) -> Callable[[], Awaitable[None]]:
    if subject.restart is None:
        raise Skipped("needs --restart-command, which kills and restarts the provider")
    return subject.restart


async def _crash(subject: Subject) -> None:
    await _restart_hook(subject)()
    try:
        async with asyncio.timeout(_RESTART_SECONDS):
            while not await _answers(subject):  # noqa: ASYNC110  it is another process
                await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    except TimeoutError:
        raise RuleViolation(
            f"the provider did not answer within {_RESTART_SECONDS:g} s of its restart"
        ) from None


async def _answers(subject: Subject) -> bool:
    try:
        await subject.listed(max_results=1)
    except grpc.aio.AioRpcError as error:
        return error.code() is not grpc.StatusCode.UNAVAILABLE
    return True
