"""Effects of the coordinator's instructions on a shard's ownership record. Pure.

A repeated instruction gets its former answer again. Any other must be newer than the newest one
accepted: otherwise it comes from a deposed coordinator, or was overtaken on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import Domain
from bigfleet.ports.ownership import (
    DrainTask,
    InstructionResult,
    InstructionVersion,
    OwnershipRecord,
    QuotaKey,
)

MAX_ANSWERS = 10_000
_ACK = wire.InstructAck
_DRAIN = "cross_shard_drain"


class Draft:
    """A mutable copy of an OwnershipRecord; `to_record` is the result."""

    def __init__(self, record: OwnershipRecord) -> None:
        self.newest = record.newest
        self.domains = set(record.domains)
        self.slices = dict(record.slices)
        self.leaving = dict(record.leaving)
        self.drains = dict(record.drains)
        self.answered = dict(record.answered)
        self._clusters = record.clusters

    def to_record(self) -> OwnershipRecord:
        """The record as changed so far, without the oldest answers beyond the limit."""
        too_many = max(0, len(self.answered) - MAX_ANSWERS)
        return OwnershipRecord(
            newest=self.newest,
            domains=frozenset(self.domains),
            clusters=self._clusters,
            slices=dict(self.slices),
            leaving=dict(self.leaving),
            drains=dict(self.drains),
            answered=dict(islice(self.answered.items(), too_many, None)),
        )

    def end(self, instruction_id: str, outcome: _ACK.Outcome.ValueType, reason: str = "") -> _ACK:
        """Record the outcome of an instruction; its acknowledgement."""
        self.leaving.pop(instruction_id, None)
        self.drains.pop(instruction_id, None)
        self.answered[instruction_id] = InstructionResult(int(outcome), reason)
        return _ACK(instruction_id=instruction_id, outcome=outcome, reason=reason)


def take(
    draft: Draft,
    instruction: wire.CoordinatorInstruction,
    objection: Callable[[DrainTask], str] = lambda _: "",
) -> list[_ACK]:
    """Carry out `instruction`; the acknowledgements now due, none while it is under way.

    `objection` says why machines may not be drained for others, "" if they may.
    """
    number = instruction.instruction_id
    version = InstructionVersion(instruction.coordinator_term, instruction.sequence_number)
    known = draft.answered.get(number)
    if known is not None or number in draft.leaving:
        draft.newest = max(draft.newest, version)
        return [] if known is None else [_repeated(number, known)]
    if version <= draft.newest:
        return [_rejected(number, _ACK.REJECTED_STALE, _stale(version, draft.newest))]
    instruction_type = instruction.WhichOneof("instruction") or "unknown type"
    if instruction_type not in (*_CARRY_OUT, _DRAIN):
        why = f"{instruction_type}: not supported by this shard's release"
        return [_rejected(number, _ACK.REJECTED_INVALID, why)]
    if invalid := _invalid_reason(instruction):
        return [_rejected(number, _ACK.REJECTED_INVALID, invalid)]
    draft.newest = version
    if instruction_type == _DRAIN:
        return _drain(draft, instruction, objection)
    return _CARRY_OUT[instruction_type](draft, instruction)


def release(draft: Draft, instruction_id: str) -> _ACK:
    """Release the domain that `instruction_id` unassigns, once no order is under way in it."""
    draft.domains.discard(draft.leaving[instruction_id])
    return draft.end(instruction_id, _ACK.ACCEPTED)


def _assign(draft: Draft, instruction: wire.CoordinatorInstruction) -> list[_ACK]:
    """Assign a domain; a pending release of it is cancelled."""
    domain = Domain(
        instruction.assign_domain.topology_key, instruction.assign_domain.topology_value
    )
    overtaken = [number for number, leaving in draft.leaving.items() if leaving == domain]
    why = f"overtaken by {instruction.instruction_id}, which assigns {domain} again"
    answers = [draft.end(number, _ACK.FAILED, why) for number in overtaken]
    draft.domains.add(domain)
    return [*answers, draft.end(instruction.instruction_id, _ACK.ACCEPTED)]


def _unassign(draft: Draft, instruction: wire.CoordinatorInstruction) -> list[_ACK]:
    domain = Domain(
        instruction.unassign_domain.topology_key, instruction.unassign_domain.topology_value
    )
    if domain not in draft.domains:
        return [draft.end(instruction.instruction_id, _ACK.ACCEPTED)]
    draft.leaving[instruction.instruction_id] = domain
    return []


def _drain(
    draft: Draft,
    instruction: wire.CoordinatorInstruction,
    objection: Callable[[DrainTask], str],
) -> list[_ACK]:
    """Drain machines, then release their domain; refused as a whole, or carried out."""
    number, what = instruction.instruction_id, instruction.cross_shard_drain
    domain = Domain(what.topology_key, what.topology_value)
    task = DrainTask(tuple(what.machine_ids), what.preemptor_priority, what.reason)
    if domain not in draft.domains:
        return [draft.end(number, _ACK.ACCEPTED)]
    if why := objection(task):
        return [draft.end(number, _ACK.FAILED, why)]
    draft.leaving[number], draft.drains[number] = domain, task
    return []


def _slice(draft: Draft, instruction: wire.CoordinatorInstruction) -> list[_ACK]:
    quota = instruction.quota_slice
    draft.slices[QuotaKey(quota.provider, quota.region)] = quota.machines
    return [draft.end(instruction.instruction_id, _ACK.ACCEPTED)]


_CARRY_OUT: Mapping[str, Callable[[Draft, wire.CoordinatorInstruction], list[_ACK]]] = {
    "assign_domain": _assign,
    "unassign_domain": _unassign,
    "quota_slice": _slice,
}


def _invalid_reason(instruction: wire.CoordinatorInstruction) -> str:
    if not instruction.instruction_id:
        return "an instruction needs an id"
    if instruction.HasField("cross_shard_drain") and not instruction.cross_shard_drain.machine_ids:
        return "it names no machine to drain"
    if instruction.quota_slice.machines < 0:
        return f"quota of {instruction.quota_slice.machines} machines: it cannot be negative"
    return ""


def _rejected(instruction_id: str, outcome: _ACK.Outcome.ValueType, reason: str) -> _ACK:
    return _ACK(instruction_id=instruction_id, outcome=outcome, reason=reason)


def _repeated(instruction_id: str, known: InstructionResult) -> _ACK:
    outcome = _ACK.Outcome.ValueType(known.outcome)
    return _ACK(instruction_id=instruction_id, outcome=outcome, reason=known.reason)


def _stale(version: InstructionVersion, newest: InstructionVersion) -> str:
    return (
        f"term {version.term} sequence {version.sequence} is not newer than term {newest.term} "
        f"sequence {newest.sequence}, which this shard has already accepted"
    )
