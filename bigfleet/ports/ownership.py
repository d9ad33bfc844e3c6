"""The part of the fleet that a shard owns, as instructed by the coordinator, and its storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bigfleet.model.domain import Domain


class InstructionVersion(NamedTuple):
    """The version of an instruction, ordered by leader term, then sequence number."""

    term: int
    sequence: int


NO_INSTRUCTION = InstructionVersion(0, 0)


class QuotaKey(NamedTuple):
    """A provider and region, for which a shard has a quota."""

    provider: str
    region: str


class InstructionResult(NamedTuple):
    """The result of an instruction; `outcome` has the values of the wire enum."""

    outcome: int
    reason: str


class DrainTask(NamedTuple):
    """Machines to drain for pods of this priority in another shard's cluster, and why."""

    machine_ids: tuple[str, ...]
    priority: int
    reason: str


@dataclass(frozen=True)
class OwnershipRecord:
    """What a shard owns."""

    #: the newest instruction accepted
    newest: InstructionVersion = NO_INSTRUCTION
    domains: frozenset[Domain] = frozenset()
    clusters: frozenset[str] = frozenset()
    #: how many elastic machines the shard may hold
    slices: Mapping[QuotaKey, int] = field(default_factory=dict)
    #: by instruction id: domains to release once no operation on their machines is in progress
    leaving: Mapping[str, Domain] = field(default_factory=dict)
    #: by instruction id, also one of `leaving`: what is to be drained before the release
    drains: Mapping[str, DrainTask] = field(default_factory=dict)
    #: by instruction id: the latest results, in order of completion
    answered: Mapping[str, InstructionResult] = field(default_factory=dict)


class OwnershipStore(Protocol):
    """Durable ownership of a shard, so that it can decide after a restart without a coordinator."""

    def load(self) -> OwnershipRecord:
        """The record saved last; empty at the first start. Raises BigFleetError if it is damaged: a
        shard that guesses what it owns could operate on another shard's machines.
        """
        ...

    def save(self, record: OwnershipRecord) -> None:
        """Save durably before returning; raises BigFleetError if that fails."""
        ...
