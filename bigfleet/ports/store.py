"""What a shard must not forget: how many times it has been started, whom it is evicting, which
clusters are being removed, and how much clusters asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigfleet.model.need import NeedKey


class EpochStore(Protocol):
    """Durable count of a shard's starts; the epoch in all its orders.

    Providers refuse orders of an epoch older than one they have seen, so two properties matter
    more than speed: an epoch is never handed out twice, and it never goes back.
    """

    def last(self) -> int:
        """The epoch returned last; 0 when none ever was, or all was lost. BigFleetError when it
        cannot be read.
        """
        ...

    def next_epoch(self, at_least: int = 1) -> int:
        """One more than any epoch returned before, not below `at_least`, durable before this
        returns.

        Raises BigFleetError when the old value cannot be read or the new one cannot be made
        durable: a shard that guesses its epoch could be mistaken for its predecessor.
        """
        ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """The emptying of one machine's Node in `cluster`, within `grace_seconds`.

    `incarnation` tells which of the machine's services of that cluster is meant: one that is
    configured anew is to be left alone, even if the end of its eviction was never written down.
    `preemptor_priority` is that of `need`, for which the machine is emptied; None and 0 when it is
    given back because nobody needs it.
    """

    machine_id: str
    cluster: str
    grace_seconds: int
    need: NeedKey | None = None
    preemptor_priority: int = 0
    incarnation: int = 0


class EvictionStore(Protocol):
    """Evictions that an operator may have been told of and that have not ended yet.

    What is written survives the death of the process at any instant. Losing it all is no disaster:
    a machine whose Node is being emptied then passes for supply until a decision takes it up.
    """

    def load(self) -> Sequence[Eviction]:
        """What had begun and not ended, in the order of its beginning."""
        ...

    def record_started(self, eviction: Eviction) -> None:
        """Remember it; an earlier one of the same machine is replaced. BigFleetError if it cannot
        be kept: then it must not begin.
        """
        ...

    def record_ended(self, machine_id: str) -> None:
        """Forget it; harmless for a machine that has none. What cannot be written down now is
        written with what comes next.
        """
        ...


class RemovalStore(Protocol):
    """The clusters that are being taken out of the fleet, so that a restart goes on with it."""

    def load(self) -> Collection[str]:
        """What was saved last. BigFleetError when it is damaged."""
        ...

    def save(self, clusters: Collection[str]) -> None:
        """Durable before it returns. BigFleetError when it cannot be made so."""
        ...


class DemandStore(Protocol):
    """How many pods each cluster asked for, by which a collapse of its demand is told after a
    restart. Losing it is no disaster: then its machines say how much it was at least.
    """

    def load(self) -> Mapping[str, int]:
        """What was saved last; nothing when that is damaged. BigFleetError when it cannot be
        read.
        """
        ...

    def save(self, pods: Mapping[str, int]) -> None:
        """Durable before it returns. BigFleetError when it cannot be made so."""
        ...
