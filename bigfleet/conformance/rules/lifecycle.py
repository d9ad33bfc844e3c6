"""From SPECULATIVE to SPECULATIVE."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import describe_error, expect, expect_rejected_not_stale
from bigfleet.conformance.fenced_client import FencedClient
from bigfleet.conformance.subject import Subject, state_name
from bigfleet.tasks import cancel_and_wait


@check(
    "lifecycle/full",
    "SPECULATIVE -> IDLE (with a host) -> CONFIGURED (with it, naming its cluster) -> IDLE -> "
    "SPECULATIVE (without a host), under one id",
)
async def full_lifecycle(subject: Subject) -> str:
    """Every operation once."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        idle = await subject.get(machine)
        expect(bool(idle.host.ref) and not idle.cluster, f"IDLE: {idle}")
        configured = await subject.configured(shard, machine)
        expect(configured.cluster == subject.cluster.id, f"CONFIGURED in {configured.cluster!r}")
        expect(bool(configured.host.ref), f"CONFIGURED without a host: {configured}")
        drained = await subject.drained(shard, machine)
        expect(not drained.cluster, f"drained but still in cluster {drained.cluster!r}")
        await shard.delete(machine)
        deleted = await subject.wait_for_state(machine, wire.SPECULATIVE)
        expect(not deleted.host.ref, f"deleted but still with host {deleted.host.ref!r}")
    return f"{machine} passed through it"


@check(
    "lifecycle/forbidden-orders",
    "A call that the machine's state forbids is rejected, never with FAILED_PRECONDITION, and "
    "changes nothing",
)
async def forbidden_orders(subject: Subject) -> str:
    """Drain of a SPECULATIVE, Delete of a CONFIGURED, and its Configure for another cluster."""
    shard = subject.fenced_client()
    async with subject.unused() as machine:
        first = await expect_rejected_not_stale(shard.drain(machine), "Drain of a SPECULATIVE")
        await shard.create(machine)
        await subject.wait_for_state(machine, wire.IDLE)
        await subject.configured(shard, machine)
        second = await expect_rejected_not_stale(shard.delete(machine), "Delete of a CONFIGURED")
        after = (await subject.get(machine)).state
        expect(after == wire.CONFIGURED, f"after a rejected Delete it is {state_name(after)}")
        await _stays_where_it_is(subject, shard, machine)
    return f"{first.name}, {second.name}"


async def _stays_where_it_is(subject: Subject, shard: FencedClient, machine: str) -> None:
    """RuleViolation if a CONFIGURED machine can be configured away: its pods would be lost."""
    blob = subject.cluster.blob(machine)
    try:
        await shard.configure(machine, "another-cluster", blob)  # may be treated as a retry
    except grpc.aio.AioRpcError as error:
        stale = error.code() is grpc.StatusCode.FAILED_PRECONDITION
        expect(
            not stale, f"Configure for another cluster was rejected with {describe_error(error)}"
        )
    after = await subject.get(machine)
    same = after.state == wire.CONFIGURED and after.cluster == subject.cluster.id
    seen = f"{state_name(after.state)} in {after.cluster!r}"
    expect(same, f"Configure for another cluster made a CONFIGURED machine {seen}")


@check(
    "lifecycle/drain-ends-with-its-grace",
    "A drain whose Node is not deleted ends with its grace period, in IDLE or in FAILED with "
    "last_error, never in CONFIGURED",
)
async def grace(subject: Subject) -> str:
    """A grace period of 0, and the Node is not deleted."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        await subject.configured(shard, machine)
        await shard.drain(machine, grace_seconds=0)
        ends = (wire.IDLE, wire.FAILED, wire.CONFIGURED)
        ended = await subject.wait_for_state(machine, *ends, within=subject.bounds.drain)
        sound = ended.state == wire.IDLE or (ended.state == wire.FAILED and bool(ended.last_error))
        expect(
            sound,
            (f"it ended {state_name(ended.state)}, last_error {ended.last_error!r}"),
        )
    return f"it ended {state_name(ended.state)}"


@check(
    "lifecycle/independent-machines",
    "Concurrent operations on two machines, with concurrent reads, both complete and have "
    "different operation ids",
)
async def independent_machines(subject: Subject) -> str:
    """Two machines at the same time, and a List every few milliseconds."""
    one, two = subject.fenced_client(), subject.fenced_client()

    async def live(number: int) -> str:
        shard = (one, two)[number]
        ack = await shard.create(machines[number])
        await subject.wait_for_state(machines[number], wire.IDLE)
        await subject.configured(shard, machines[number])
        return ack.operation_id

    async with subject.unused(0) as first, subject.unused(1) as second:
        machines = (first, second)
        reading = asyncio.create_task(_read(subject))
        try:
            operations = await asyncio.gather(live(0), live(1))
        finally:
            await cancel_and_wait(reading)
        expect(operations[0] != operations[1], f"both operations are called {operations[0]!r}")
    return f"{first} and {second} were CONFIGURED at once"


async def _read(subject: Subject) -> None:
    while True:
        await subject.listed()
        await asyncio.sleep(0.005)
