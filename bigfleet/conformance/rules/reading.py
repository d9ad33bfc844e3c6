"""Get and List."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import grpc
import grpc.aio

from bigfleet.api import machine_codec
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import RuleViolation, describe_error, expect, rejection
from bigfleet.conformance.subject import UNKNOWN_MACHINE, Subject, state_name
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import VALID_ID, is_valid_id

_UNKNOWN_STATE = 99
# A listing is read in about so many.
_PAGES = 3
_SHOWN_MACHINES = 5
# Another check detects CONFIGURED too early.
_IN_PROGRESS = (wire.CONFIGURING, wire.CONFIGURED)


@check(
    "list/well-formed",
    "Every machine has a unique id that is a valid Node name, an instance type, a zone, resources "
    "as Kubernetes quantities, a state, a capacity type, a price >= 0 and an interruption "
    "probability from 0 to 1: what a shard accepts",
)
async def well_formed(subject: Subject) -> str:
    """All machines of a full listing."""
    machines = (await subject.listed()).machines
    for machine in machines:
        named = machine.id and machine.instance_type and machine.zone
        known = machine.state and machine.capacity_type and machine.resources.resources
        chance = 0 <= machine.interruption_probability <= 1
        sound = bool(named and known) and machine.price_per_hour >= 0 and chance
        expect(sound, f"machine {machine.id!r}: {machine}")
        _acceptable_to_a_shard(machine)
    ids = {machine.id for machine in machines}
    expect(len(ids) == len(machines), f"{len(machines)} machines have {len(ids)} ids")
    return f"{len(machines)} machines"


def _acceptable_to_a_shard(machine: wire.Machine) -> None:
    """RuleViolation if a shard would ignore the machine."""
    expect(
        is_valid_id(machine.id),
        f"machine {machine.id!r}: its id is not {VALID_ID}",
    )
    try:
        machine_codec.machine_from_wire(machine)
    except InvalidInput as error:
        raise RuleViolation(str(error)) from None


@check("unknown-id/not-found", "Get and every operation on an unknown id are NOT_FOUND")
async def unknown_ids(subject: Subject) -> str:
    """All five calls that name a machine."""
    shard = subject.fenced_client()
    calls: Mapping[str, Callable[[], Awaitable[object]]] = {
        "Get": lambda: subject.get(UNKNOWN_MACHINE),
        "Create": lambda: shard.create(UNKNOWN_MACHINE),
        "Configure": lambda: shard.configure(UNKNOWN_MACHINE, subject.cluster.id, b"{}"),
        "Drain": lambda: shard.drain(UNKNOWN_MACHINE),
        "Delete": lambda: shard.delete(UNKNOWN_MACHINE),
    }
    for name, call in calls.items():
        error = await rejection(call(), f"{name} of {UNKNOWN_MACHINE}")
        unknown = error.code() is grpc.StatusCode.NOT_FOUND
        expect(unknown, f"{name} of {UNKNOWN_MACHINE} was rejected with {describe_error(error)}")
    return f"{', '.join(calls)}: NOT_FOUND"


@check(
    "list/states",
    "List(states) returns exactly the machines in those states; an unknown state selects nothing "
    "or is INVALID_ARGUMENT",
)
async def states_select(subject: Subject) -> str:
    """One IDLE machine among others, then an unknown state."""
    async with subject.idle(subject.fenced_client()) as machine:
        listed = (await subject.listed(states=[wire.IDLE])).machines
        expect(machine in {m.id for m in listed}, f"List(IDLE) lacks {machine}, which is IDLE")
        strangers = {m.id: state_name(m.state) for m in listed if m.state != wire.IDLE}
        expect(not strangers, f"List(IDLE) holds {strangers}")
    try:
        unknown = len((await subject.listed(states=[_UNKNOWN_STATE])).machines)
    except grpc.aio.AioRpcError as error:
        invalid = error.code() is grpc.StatusCode.INVALID_ARGUMENT
        expect(invalid, f"List of an unknown state: {error.code().name}")
    else:
        expect(not unknown, f"List of an unknown state held {unknown} machines")
    return f"{len(listed)} IDLE of all"


@check(
    "list/in-progress",
    "A machine stays in every listing while an operation is in progress: in a full one, in one of "
    "its state, and in one since a revision before the operation",
)
async def listed_in_progress(subject: Subject) -> str:
    """A CONFIGURING machine whose Node is kept from being Ready."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        before = (await subject.listed()).revision
        async with subject.joining(shard, machine):
            now = await subject.wait_for_state(machine, *_IN_PROGRESS)
            for what, listed in (
                ("List", await subject.listed()),
                ("List of its state", await subject.listed(states=_IN_PROGRESS)),
                ("List since a revision", await subject.listed(since_revision=before)),
            ):
                seen = f"{what} lacks {machine}, which is {state_name(now.state)}"
                expect(machine in {m.id for m in listed.machines}, seen)
    return f"{machine} was in all three while {state_name(now.state)}"


@check(
    "list/pages",
    "max_results limits an answer, and next_page_token leads to the next page until it is empty: "
    "together they hold every machine, and one that changes meanwhile is on a later page or in a "
    "listing since the last page's revision; an unknown page_token is INVALID_ARGUMENT",
)
async def listed_in_pages(subject: Subject) -> str:
    """A machine of the first page is created before the second is read; and an invented token."""
    everything = [m.id for m in (await subject.listed()).machines]
    usable = await subject.speculative()
    number = min(everything.index(machine) for machine in usable)
    size = max(number + 1, len(everything) // _PAGES)
    async with subject.using(everything[number]) as machine:
        first = await subject.listed(max_results=size)
        expect(bool(first.next_page_token), f"{size} of {len(everything)}: no next_page_token")
        await subject.fenced_client().create(machine)
        await subject.wait_for_state(machine, wire.IDLE)
        pages = [first, *await _pages_after(subject, first, size, len(everything))]
        later = await subject.listed(since_revision=pages[-1].revision)
    seen = {m.id: m.state for page in (*pages, later) for m in page.machines}
    missing = sorted(set(everything) - seen.keys())[:_SHOWN_MACHINES]
    expect(not missing, f"no page of {size} machines has {missing}")
    now = state_name(seen[machine])
    expect(seen[machine] == wire.IDLE, f"{machine} became IDLE and was last seen {now}")
    await _rejects_unknown_token(subject, size)
    return f"{len(everything)} machines on {len(pages)} pages, one changed meanwhile"


async def _pages_after(
    subject: Subject, page: wire.MachineList, size: int, machines: int
) -> list[wire.MachineList]:
    pages: list[wire.MachineList] = []
    while page.next_page_token:
        expect(len(pages) <= machines, f"{len(pages)} pages of {machines} machines, and no end")
        expect(len(page.machines) <= size, f"{len(page.machines)} machines for max_results {size}")
        page = await subject.listed(max_results=size, page_token=page.next_page_token)
        pages.append(page)
    expect(len(page.machines) <= size, f"{len(page.machines)} machines for max_results {size}")
    return pages


async def _rejects_unknown_token(subject: Subject, size: int) -> None:
    what = "List with an invented page_token"
    error = await rejection(subject.listed(max_results=size, page_token=b"\xffno such page"), what)
    invalid = error.code() is grpc.StatusCode.INVALID_ARGUMENT
    expect(invalid, f"{what} was rejected with {describe_error(error)}")


@check(
    "list/since-revision",
    "List(since_revision) returns all changes after it, and all machines for an unknown revision",
)
async def changes_since_a_revision(subject: Subject) -> str:
    """A machine created after the revision, and unknown revisions."""
    async with subject.unused() as machine:
        before = await subject.listed()
        await subject.fenced_client().create(machine)
        await subject.wait_for_state(machine, wire.IDLE)
        changed = await subject.listed(since_revision=before.revision)
        seen = {m.id: m.state for m in changed.machines}
        expect(seen.get(machine) == wire.IDLE, f"{machine} became IDLE and is not in the answer")
    whole = {m.id for m in (await subject.listed()).machines}
    for strange in (b"nonsense", b"\xff:1", before.revision + b"0000"):
        answer = {m.id for m in (await subject.listed(since_revision=strange)).machines}
        expect(answer == whole, f"since {strange!r}: {len(answer)} of {len(whole)} machines")
    return f"{len(seen)} of {len(whole)} machines after one change"
