"""Carries out the coordinator's instructions, and keeps acknowledgements until delivered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import Domain
from bigfleet.model.errors import BigFleetError
from bigfleet.observe import metrics
from bigfleet.ports.ownership import DrainTask
from bigfleet.services.shard.coordination import instructions
from bigfleet.services.shard.coordination.instructions import Draft
from bigfleet.services.shard.fleet.ownership import Ownership

_LOG = logging.getLogger(__name__)
_Ack = wire.InstructAck


class InstructionHandler:
    """`is_busy` returns whether anything is under way in a domain, `objection` why machines may not
    be drained for another shard.

    Changes are saved before they are acknowledged, so that no restart contradicts an answer.
    """

    def __init__(
        self,
        ownership: Ownership,
        is_busy: Callable[[Domain], bool],
        objection: Callable[[DrainTask], str] = lambda _: "",
    ) -> None:
        self._ownership, self._is_busy, self._objection = ownership, is_busy, objection
        self._due: dict[str, _Ack] = {}

    @property
    def due(self) -> Sequence[_Ack]:
        """Acknowledgements that the coordinator has not received yet."""
        return list(self._due.values())

    @property
    def has_accepted(self) -> bool:
        """Whether any is ACCEPTED. Others wait for the next regular report."""
        return any(answer.outcome == _Ack.ACCEPTED for answer in self._due.values())

    def take(self, received: Sequence[wire.CoordinatorInstruction]) -> None:
        """Carry out instructions in order."""
        draft = Draft(self._ownership.record)
        repeated = draft.answered.keys() | draft.leaving.keys()
        answers = [
            answer
            for each in received
            for answer in instructions.take(draft, each, self._objection)
        ]
        self._conclude(draft, answers)
        _log_moves(each for each in received if each.instruction_id not in repeated)
        types = {each.instruction_id: each.WhichOneof("instruction") for each in received}
        for answer in answers:
            _report(answer, types.get(answer.instruction_id) or "unknown")

    def settle(self) -> None:
        """Release the domains to be released in which nothing is under way any more."""
        leaving = self._ownership.record.leaving.items()
        idle = [number for number, domain in leaving if not self._is_busy(domain)]
        if idle:
            draft = Draft(self._ownership.record)
            self._conclude(draft, [instructions.release(draft, number) for number in idle])

    def delivered(self, answers: Iterable[_Ack]) -> None:
        """Drop acknowledgements that the coordinator has received."""
        for answer in answers:
            if self._due.get(answer.instruction_id) == answer:
                del self._due[answer.instruction_id]

    def _conclude(self, draft: Draft, answers: Iterable[_Ack]) -> None:
        record = draft.to_record()
        try:
            if record != self._ownership.record:
                self._ownership.change(record)
        except BigFleetError as error:
            # Nothing has changed; the coordinator repeats the instructions.
            _LOG.error("instructions not carried out", extra={"why": str(error)})
            return
        self._due |= {answer.instruction_id: answer for answer in answers}


def _log_moves(received: Iterable[wire.CoordinatorInstruction]) -> None:
    for each in received:
        if each.quota_slice.reason:
            quota = each.quota_slice
            name = f"{quota.provider} {quota.region}".strip()
            fields = {"quota": name, "machines": quota.machines, "why": quota.reason}
            _LOG.info("part of a quota changed", extra=fields)
        for what in (each.assign_domain, each.unassign_domain, each.cross_shard_drain):
            if what.reason:
                domain = str(Domain(what.topology_key, what.topology_value))
                taken = each.HasField("assign_domain")
                text = "domain taken over" if taken else "domain to be released"
                _LOG.info(text, extra={"domain": domain, "why": what.reason})


def _report(answer: _Ack, instruction_type: str) -> None:
    outcome = _Ack.Outcome.Name(answer.outcome)
    metrics.shard_instructions.labels(instruction_type, outcome).inc()
    fields = {"instruction": answer.instruction_id, "type": instruction_type, "why": answer.reason}
    if answer.outcome == _Ack.REJECTED_STALE:
        metrics.shard_incidents.labels("stale-instruction").inc()
        _LOG.critical("incident: stale instruction from a deposed coordinator", extra=fields)
    elif answer.outcome == _Ack.FAILED:
        _LOG.warning("instruction not carried out", extra=fields)
    elif answer.outcome != _Ack.ACCEPTED:
        _LOG.error("instruction rejected", extra=fields)
