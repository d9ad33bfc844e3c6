"""Carries out what the coordinator says, and keeps the answers until they are delivered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import Domain
from bigfleet.model.errors import BigFleetError
from bigfleet.observe import metrics
from bigfleet.services.shard.coordination import instructions
from bigfleet.services.shard.coordination.estate import Estate
from bigfleet.services.shard.coordination.instructions import Draft

_log = logging.getLogger(__name__)
_Ack = wire.InstructAck


class Steward:
    """`is_busy` tells whether anything is under way in a domain.

    What is answered is on the disk first, so that a restart can contradict nothing that was said.
    """

    def __init__(self, estate: Estate, is_busy: Callable[[Domain], bool]) -> None:
        self._estate, self._is_busy = estate, is_busy
        self._due: dict[str, _Ack] = {}

    @property
    def due(self) -> Sequence[_Ack]:
        """Answers that the coordinator has not got yet."""
        return list(self._due.values())

    @property
    def has_good_news(self) -> bool:
        """Whether something carried out is among them. A refusal is repeated in its time only."""
        return any(answer.outcome == _Ack.ACCEPTED for answer in self._due.values())

    def take(self, told: Sequence[wire.CoordinatorInstruction]) -> None:
        """Carry out instructions in their order."""
        draft = Draft(self._estate.held)
        answers = [answer for each in told for answer in instructions.take(draft, each)]
        self._conclude(draft, answers)
        kinds = {each.instruction_id: each.WhichOneof("instruction") for each in told}
        for answer in answers:
            _report(answer, kinds.get(answer.instruction_id) or "unknown")

    def settle(self) -> None:
        """Give up the domains in which nothing is under way any more."""
        leaving = self._estate.held.leaving.items()
        quiet = [number for number, domain in leaving if not self._is_busy(domain)]
        if quiet:
            draft = Draft(self._estate.held)
            self._conclude(draft, [instructions.give_up(draft, number) for number in quiet])

    def delivered(self, answers: Iterable[_Ack]) -> None:
        """The coordinator has them."""
        for answer in answers:
            if self._due.get(answer.instruction_id) == answer:
                del self._due[answer.instruction_id]

    def _conclude(self, draft: Draft, answers: Iterable[_Ack]) -> None:
        held = draft.holdings()
        try:
            if held != self._estate.held:
                self._estate.change(held)
        except BigFleetError as error:
            # Nothing was done; the coordinator says it again.
            _log.error("instructions not carried out", extra={"why": str(error)})
            return
        self._due |= {answer.instruction_id: answer for answer in answers}


def _report(answer: _Ack, kind: str) -> None:
    outcome = _Ack.Outcome.Name(answer.outcome)
    metrics.shard_instructions.labels(kind, outcome).inc()
    said = {"instruction": answer.instruction_id, "kind": kind, "why": answer.reason}
    if answer.outcome == _Ack.REJECTED_STALE:
        metrics.shard_incidents.labels("stale-instruction").inc()
        _log.critical("incident: a coordinator that was deposed gives instructions", extra=said)
    elif answer.outcome != _Ack.ACCEPTED:
        _log.error("instruction refused", extra=said)
