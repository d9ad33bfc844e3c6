"""Repeated calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import expect
from bigfleet.conformance.subject import Subject, state_name


@check(
    "retry/same-operation",
    "A call repeated for the same machine and target, in progress or completed, returns the "
    "operation id of the first and starts nothing",
)
async def same_operation(subject: Subject) -> str:
    """Create, Configure, Drain and Delete, three times each."""
    shard = subject.fenced_client()
    ids: list[str] = []

    async def repeated(end: int, order: Callable[[], Awaitable[wire.TransitionAck]]) -> None:
        first, second = await order(), await order()
        await subject.wait_for_state(machine, end, within=subject.bounds.drain)
        third = await order()
        given = [ack.operation_id for ack in (first, second, third)]
        expect(bool(given[0]) and len(set(given)) == 1, f"three times one order: {given}")
        after = (await subject.get(machine)).state
        expect(after == end, f"after a repeated order it is {state_name(after)}")
        ids.append(given[0])

    async with subject.unused() as machine:
        await repeated(wire.IDLE, lambda: shard.create(machine))
        await repeated(wire.CONFIGURED, lambda: subject.configure(shard, machine))
        await subject.cluster.remove(machine)
        await repeated(wire.IDLE, lambda: shard.drain(machine, grace_seconds=1))
        await repeated(wire.SPECULATIVE, lambda: shard.delete(machine))
    expect(len(set(ids)) == len(ids), f"different orders have one operation id: {ids}")
    return ", ".join(ids)
