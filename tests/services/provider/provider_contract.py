"""What every CapacityProvider must do, checked over a channel: one function per rule.

The provider under test needs at least two SPECULATIVE machines of an elastic capacity type; every
check takes one of them and gives it back. `CHECKS` holds all functions, in the order of reading.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub

if TYPE_CHECKING:  # only the type stubs know it
    from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderAsyncStub

ELASTIC = (wire.ON_DEMAND, wire.SPOT)
TRANSITIONAL = (wire.CREATING, wire.CONFIGURING, wire.DRAINING, wire.DELETING)
_POLL_SECONDS = 0.02

Answer = Callable[[], Awaitable[wire.TransitionAck]]


class ContractBrokenError(AssertionError):
    """The provider broke a rule; the text is the rule and what was seen instead."""


def expect(holds: bool, rule: str, seen: object) -> None:
    """Raise ContractBrokenError unless the rule holds."""
    if not holds:
        raise ContractBrokenError(f"{rule}; seen: {seen}")


@dataclass
class Shard:
    """A shard's side of the wire: stamps every order with a growing sequence."""

    stub: CapacityProviderAsyncStub
    shard_id: str
    epoch: int = 1
    sequence: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def stamp(self, sequence: int | None = None) -> dict[str, str | int]:
        """The fencing fields of the next order, or of the given sequence."""
        number = next(self.sequence) if sequence is None else sequence
        return {"shard_id": self.shard_id, "shard_epoch": self.epoch, "sequence_number": number}

    async def create(self, machine: str, sequence: int | None = None) -> wire.TransitionAck:
        """Create, stamped."""
        request = wire.CreateRequest(machine_id=machine, **self.stamp(sequence))  # type: ignore[arg-type]
        return await self.stub.Create(request)

    async def delete(self, machine: str, sequence: int | None = None) -> wire.TransitionAck:
        """Delete, stamped."""
        request = wire.DeleteRequest(machine_id=machine, **self.stamp(sequence))  # type: ignore[arg-type]
        return await self.stub.Delete(request)

    async def drain(self, machine: str, grace_seconds: int = 0) -> wire.TransitionAck:
        """Drain, stamped."""
        request = wire.DrainRequest(
            machine_id=machine,
            grace_period_seconds=grace_seconds,
            **self.stamp(),  # type: ignore[arg-type]
        )
        return await self.stub.Drain(request)

    async def configure(
        self, machine: str, cluster: str, blob: bytes, metadata: dict[str, str] | None = None
    ) -> wire.TransitionAck:
        """Configure, stamped."""
        request = wire.ConfigureRequest(
            machine_id=machine,
            cluster_id=cluster,
            bootstrap_blob=blob,
            shard_metadata=metadata or {},
            **self.stamp(),  # type: ignore[arg-type]
        )
        return await self.stub.Configure(request)


@dataclass
class Subject:
    """The provider under test, and what its machines can join. Bounds are per state reached."""

    channel: InitVar[grpc.aio.Channel]
    blob_for: Callable[[str], bytes]
    cluster: str = "conformance"
    state_deadline_seconds: float = 10.0
    drain_deadline_seconds: float = 30.0
    stub: CapacityProviderAsyncStub = field(init=False)

    def __post_init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = CapacityProviderStub(channel)

    def shard(self) -> Shard:
        """A shard that no provider has heard of."""
        return Shard(self.stub, f"conformance-{secrets.token_hex(4)}")

    async def get(self, machine: str) -> wire.Machine:
        """The machine now."""
        return await self.stub.Get(wire.MachineRef(id=machine))

    async def reaches(self, machine: str, *states: int) -> wire.Machine:
        """The machine once it is in one of `states`, within the bound."""
        drains = (await self.get(machine)).state == wire.DRAINING
        bound = self.drain_deadline_seconds if drains else self.state_deadline_seconds
        try:
            async with asyncio.timeout(bound):
                return await self._polled(machine, states)
        except TimeoutError:
            now = await self.get(machine)
            names = [wire.MachineState.Name(wire.MachineState.ValueType(s)) for s in states]
            expect(False, f"{machine} must be {names} within {bound:g} s", now)
            raise

    async def _polled(self, machine: str, states: tuple[int, ...]) -> wire.Machine:
        now = await self.get(machine)
        while now.state not in states:
            await asyncio.sleep(_POLL_SECONDS)
            now = await self.get(machine)
        return now

    async def configured(self, shard: Shard, machine: str) -> wire.Machine:
        """The machine taken from IDLE to CONFIGURED."""
        await shard.configure(machine, self.cluster, self.blob_for(machine))
        return await self.reaches(machine, wire.CONFIGURED)

    @asynccontextmanager
    async def speculative(self) -> AsyncIterator[str]:
        """A machine that is SPECULATIVE, given back so."""
        listed = await self.stub.List(wire.ListFilter(states=[wire.SPECULATIVE]))
        ids = [m.id for m in listed.machines if m.capacity_type in ELASTIC]
        expect(bool(ids), "the provider needs SPECULATIVE machines of an elastic type", "none")
        try:
            yield ids[0]
        finally:
            await self._give_back(ids[0])

    @asynccontextmanager
    async def idle(self, shard: Shard) -> AsyncIterator[str]:
        """A machine that is IDLE."""
        async with self.speculative() as machine:
            await shard.create(machine)
            await self.reaches(machine, wire.IDLE)
            yield machine

    async def _give_back(self, machine: str) -> None:
        shard = self.shard()
        settled = [s for s in wire.MachineState.values() if s not in TRANSITIONAL]
        if (await self.reaches(machine, *settled)).state == wire.CONFIGURED:
            await shard.drain(machine)
            await self.reaches(machine, wire.IDLE)
        if (await self.get(machine)).state != wire.SPECULATIVE:
            await shard.delete(machine)
            await self.reaches(machine, wire.SPECULATIVE)


async def refusal(call: Awaitable[object], rule: str) -> grpc.StatusCode:
    """The code that `call` is refused with; ContractBrokenError if it succeeds."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    raise ContractBrokenError(f"{rule}; it was accepted: {answer}")


async def a_machine_lives_its_whole_life(subject: Subject) -> None:
    """SPECULATIVE, IDLE, CONFIGURED in the cluster, IDLE again, SPECULATIVE again."""
    shard = subject.shard()
    async with subject.idle(shard) as machine:
        idle = await subject.get(machine)
        expect(bool(idle.host.ref) and not idle.cluster, "an IDLE machine has a host only", idle)
        configured = await subject.configured(shard, machine)
        expect(configured.cluster == subject.cluster, "CONFIGURED names its cluster", configured)
        await shard.drain(machine, grace_seconds=1)
        drained = await subject.reaches(machine, wire.IDLE)
        expect(not drained.cluster, "a drained machine belongs to no cluster", drained)
        await shard.delete(machine)
        deleted = await subject.reaches(machine, wire.SPECULATIVE)
        expect(not deleted.host.ref, "a deleted machine has no host", deleted)


async def a_repeated_order_returns_the_same_operation(subject: Subject) -> None:
    """Create, Configure, Drain and Delete, repeated under way and at their end."""
    shard = subject.shard()
    async with subject.speculative() as machine:
        blob = subject.blob_for(machine)
        await _same_operation(subject, machine, wire.IDLE, lambda: shard.create(machine))
        await _same_operation(
            subject,
            machine,
            wire.CONFIGURED,
            lambda: shard.configure(machine, subject.cluster, blob),
        )
        await _same_operation(subject, machine, wire.IDLE, lambda: shard.drain(machine))
        await _same_operation(subject, machine, wire.SPECULATIVE, lambda: shard.delete(machine))


async def _same_operation(subject: Subject, machine: str, end: int, order: Answer) -> None:
    first, second = await order(), await order()
    await subject.reaches(machine, end)
    third = await order()
    ids = [first.operation_id, second.operation_id, third.operation_id]
    rule = "a repeated order must return the operation_id of the first"
    expect(bool(ids[0]) and len(set(ids)) == 1, rule, ids)
    after = await subject.get(machine)
    expect(after.state == end, "a repeated order must change nothing", after)


async def an_unknown_machine_is_not_found(subject: Subject) -> None:
    """Get and Delete of an id that nobody knows."""
    rule = "an unknown machine must be NOT_FOUND"
    shard = subject.shard()
    for call in (subject.get("no-such-machine"), shard.delete("no-such-machine")):
        code = await refusal(call, rule)
        expect(code is grpc.StatusCode.NOT_FOUND, rule, code)


async def an_order_that_the_state_forbids_is_refused(subject: Subject) -> None:
    """Drain of a SPECULATIVE and Delete of a CONFIGURED machine, not as if fenced."""
    shard = subject.shard()
    async with subject.speculative() as machine:
        await _forbidden(shard.drain(machine))
        await shard.create(machine)
        await subject.reaches(machine, wire.IDLE)
        await subject.configured(shard, machine)
        await _forbidden(shard.delete(machine))
        after = await subject.get(machine)
        expect(after.state == wire.CONFIGURED, "a refused order must change nothing", after)


async def _forbidden(call: Awaitable[object]) -> None:
    rule = "an order that the state forbids must be refused, not with FAILED_PRECONDITION"
    code = await refusal(call, rule)
    expect(code is not grpc.StatusCode.FAILED_PRECONDITION, rule, code)


async def a_drain_ends_when_its_grace_does(subject: Subject) -> None:
    """Grace 0: IDLE, or FAILED with last_error, and never CONFIGURED again."""
    shard = subject.shard()
    async with subject.idle(shard) as machine:
        await subject.configured(shard, machine)
        await shard.drain(machine, grace_seconds=0)
        rule = "a drain must end in IDLE, or in FAILED with last_error"
        end = await subject.reaches(machine, wire.IDLE, wire.FAILED, wire.CONFIGURED)
        sound = end.state == wire.IDLE or (end.state == wire.FAILED and end.last_error != "")
        expect(sound, rule, end)


async def metadata_is_echoed_verbatim_until_drained(subject: Subject) -> None:
    """Unknown keys and any text come back in Get and List; a drain clears them and the binding."""
    shard = subject.shard()
    metadata = {"bigfleet.lucy.sh/assigned-priority": "-7", "unknown/☃": 'a"\\\n\0b', "empty": ""}
    async with subject.idle(shard) as machine:
        await shard.configure(machine, subject.cluster, subject.blob_for(machine), metadata)
        seen = await subject.reaches(machine, wire.CONFIGURED)
        listed = await subject.stub.List(wire.ListFilter())
        for echo in (seen, next(m for m in listed.machines if m.id == machine)):
            same = dict(echo.shard_metadata) == metadata
            expect(same, "shard_metadata must be echoed verbatim", echo)
        await shard.drain(machine)
        idle = await subject.reaches(machine, wire.IDLE)
        clean = not idle.shard_metadata and not idle.cluster
        expect(clean, "a drained machine has neither shard_metadata nor cluster", idle)


async def stale_orders_are_fenced_and_new_epochs_begin_anew(subject: Subject) -> None:
    """Same or older sequence and older epoch: FAILED_PRECONDITION; a new epoch resets sequences."""
    shard = subject.shard()
    shard.epoch = 5
    async with subject.speculative() as machine:
        await shard.create(machine, sequence=10)
        await _fenced(shard.create(machine, sequence=10))
        await _fenced(shard.create(machine, sequence=9))
        shard.epoch = 4
        await _fenced(shard.create(machine, sequence=11))
        shard.epoch = 6
        await shard.create(machine, sequence=1)
        await subject.get(machine)
        await subject.stub.List(wire.ListFilter())
        await _fenced(shard.create(machine, sequence=1))
        await subject.shard().create(machine, sequence=1)  # a shard unknown so far is accepted


async def a_refused_order_advances_the_mark(subject: Subject) -> None:
    """An illegal order is still the newest one seen: its duplicate is fenced, not illegal."""
    shard = subject.shard()
    async with subject.idle(shard) as machine:
        await subject.configured(shard, machine)
        await _forbidden(shard.delete(machine, sequence=100))
        await _fenced(shard.delete(machine, sequence=100))
        shard.sequence = itertools.count(101)


async def _fenced(call: Awaitable[object]) -> None:
    rule = "a stale order must be refused with FAILED_PRECONDITION"
    code = await refusal(call, rule)
    expect(code is grpc.StatusCode.FAILED_PRECONDITION, rule, code)


async def fencing_is_per_machine(subject: Subject) -> None:
    """A high mark on one machine does not hold up orders for another."""
    shard = subject.shard()
    async with subject.speculative() as first:
        await shard.create(first, sequence=1000)
        async with subject.speculative() as second:
            expect(first != second, "the provider needs two SPECULATIVE machines", first)
            await shard.create(second, sequence=1)


async def list_filters_by_state_and_bounds_its_answer(subject: Subject) -> None:
    """Only the asked states; at most max_results, and the rest since the revision returned."""
    async with subject.idle(subject.shard()):
        idle = await subject.stub.List(wire.ListFilter(states=[wire.IDLE]))
        expect(bool(idle.machines), "List(IDLE) must hold the IDLE machine", idle)
        strangers = [m.id for m in idle.machines if m.state != wire.IDLE]
        expect(not strangers, "List(IDLE) must hold IDLE machines only", strangers)
        everything = await subject.stub.List(wire.ListFilter())
        first = await subject.stub.List(wire.ListFilter(max_results=1))
        rest = await subject.stub.List(wire.ListFilter(since_revision=first.revision))
        expect(len(first.machines) == 1, "max_results must bound the answer", len(first.machines))
        union = {m.id for m in (*first.machines, *rest.machines)}
        complete = union == {m.id for m in everything.machines}
        expect(complete, "listing on from a bounded answer must leave no gap", union)


async def since_revision_returns_what_changed_after_it(subject: Subject) -> None:
    """Nothing while nothing changes, then exactly the changed machine; nonsense gives all."""
    async with subject.speculative() as machine:
        before = await subject.stub.List(wire.ListFilter())
        same = await subject.stub.List(wire.ListFilter(since_revision=before.revision))
        expect(not same.machines, "no change must list nothing", same)
        await subject.shard().create(machine)
        changed = await subject.stub.List(wire.ListFilter(since_revision=before.revision))
        ids = [m.id for m in changed.machines]
        expect(ids == [machine], "the changed machine alone must be listed", ids)
        for strange in (b"nonsense", before.revision + b"0000", b"\xff:1"):
            answer = await subject.stub.List(wire.ListFilter(since_revision=strange))
            whole = len(answer.machines) == len(before.machines)
            expect(whole, "an unknown revision must list all machines", strange)


async def every_machine_is_well_formed(subject: Subject) -> None:
    """Instance type, known state and capacity type; price and probability within their bounds."""
    for machine in (await subject.stub.List(wire.ListFilter())).machines:
        named = machine.instance_type and machine.zone and machine.resources.resources
        known = machine.state and machine.capacity_type
        in_bounds = machine.price_per_hour >= 0 and 0 <= machine.interruption_probability <= 1
        expect(bool(named and known and in_bounds), "a machine must be well formed", machine)


CHECKS: tuple[Callable[[Subject], Awaitable[None]], ...] = (
    a_machine_lives_its_whole_life,
    a_repeated_order_returns_the_same_operation,
    an_unknown_machine_is_not_found,
    an_order_that_the_state_forbids_is_refused,
    a_drain_ends_when_its_grace_does,
    metadata_is_echoed_verbatim_until_drained,
    stale_orders_are_fenced_and_new_epochs_begin_anew,
    a_refused_order_advances_the_mark,
    fencing_is_per_machine,
    list_filters_by_state_and_bounds_its_answer,
    since_revision_returns_what_changed_after_it,
    every_machine_is_well_formed,
)
