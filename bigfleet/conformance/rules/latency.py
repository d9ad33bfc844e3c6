"""Calls return once an operation is accepted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import expect
from bigfleet.conformance.subject import Subject


@check(
    "latency/orders-return-immediately",
    "A call returns as soon as the operation is accepted: Configure before the Node is Ready, "
    "Drain before the Node is deleted",
)
async def orders_answer_at_once(subject: Subject) -> str:
    """Timed, with a Node that is kept from being Ready, and then not deleted."""
    shard, slowest = subject.fenced_client(), 0.0

    async def timed(name: str, call: Awaitable[object]) -> None:
        nonlocal slowest
        task, bound = asyncio.ensure_future(call), subject.bounds.answer
        began = time.monotonic()
        done, _ = await asyncio.wait([task], timeout=bound)
        slowest = max(slowest, time.monotonic() - began)
        late.extend([] if done else [task])
        expect(bool(done), f"{name} did not return within {bound:g} s, the operation in progress")
        task.result()

    late: list[asyncio.Future[object]] = []
    try:
        async with subject.unused() as machine:
            await timed("Create", shard.create(machine))
            await subject.wait_for_state(machine, wire.IDLE)
            async with subject.cluster.readiness_withheld():
                await timed("Configure", subject.configure(shard, machine))
            await subject.wait_for_state(machine, wire.CONFIGURED)
            grace = 2 * int(subject.bounds.answer) + 1
            await timed("Drain", shard.drain(machine, grace_seconds=grace))
            await subject.wait_for_state(machine, wire.IDLE, within=grace + subject.bounds.drain)
            await timed("Delete", shard.delete(machine))
    finally:
        # Late calls must not complete during another check.
        await asyncio.gather(*late, return_exceptions=True)
    return f"the slowest of four calls took {1000 * slowest:.0f} ms"
