"""What a shard holds of the fleet, as the coordinator has told it, and how that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bigfleet.model.domain import Domain


class InstructionVersion(NamedTuple):
    """Where an instruction stands among all of them: terms first, then numbers in a term."""

    term: int
    sequence: int


NO_INSTRUCTION = InstructionVersion(0, 0)


class QuotaKey(NamedTuple):
    """Whose machines, and where."""

    provider: str
    region: str


class InstructionResult(NamedTuple):
    """How an instruction ended; `outcome` has the values of the wire enum."""

    outcome: int
    reason: str


@dataclass(frozen=True)
class OwnershipRecord:
    """`newest` is the mark of the newest instruction taken. Of the `domains`, those in `leaving`
    (by the instruction that takes them away) are given up as soon as no order for them is under
    way. `slices` say how many elastic machines may be held bought. `answered` are the newest
    instructions that have ended, by id, in order of their end.
    """

    newest: InstructionVersion = NO_INSTRUCTION
    domains: frozenset[Domain] = frozenset()
    clusters: frozenset[str] = frozenset()
    slices: Mapping[QuotaKey, int] = field(default_factory=dict)
    leaving: Mapping[str, Domain] = field(default_factory=dict)
    answered: Mapping[str, InstructionResult] = field(default_factory=dict)


class OwnershipStore(Protocol):
    """Keeps a shard's holdings, so that it decides after a restart while no coordinator answers."""

    def load(self) -> OwnershipRecord:
        """What was saved last; empty at the very first start. BigFleetError when it is damaged: a
        shard that guesses what it owns could give orders for another's machines.
        """
        ...

    def save(self, record: OwnershipRecord) -> None:
        """Durable before it returns. BigFleetError when it cannot be made so."""
        ...
