"""Durable state of a shard: its epoch, evictions, clusters being removed, demand, machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigfleet.model.need import NeedKey


class EpochStore(Protocol):
    """Durable counter of a shard's starts: the epoch in all its requests.

    Providers reject requests of an epoch older than one they have seen. So an epoch must never be
    returned twice, and must never decrease.
    """

    def last(self) -> int:
        """The epoch returned last, 0 if none; raises BigFleetError if it cannot be read."""
        ...

    def next_epoch(self, at_least: int = 1) -> int:
        """An epoch larger than any returned before and at least `at_least`, durable before this
        returns.

        Raises BigFleetError if the old value cannot be read or the new one cannot be made durable:
        a shard that guesses its epoch could be mistaken for its predecessor.
        """
        ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """The eviction of all pods of one machine's Node in `cluster`."""

    machine_id: str
    cluster: str
    grace_seconds: int
    #: the need that the machine is preempted for; None for a voluntary reclaim
    need: NeedKey | None = None
    #: the priority of `need`, or 0
    preemptor_priority: int = 0
    #: which of the machine's bindings to the cluster is meant: a machine that was configured again
    #: is left alone, even if the end of the eviction was never recorded
    incarnation: int = 0
    #: the operator refuses it if it would cost more; None for a preemption, or once pods leave
    max_cost: float | None = None
    #: the operator refuses it if no pod of the gang with this group runs there; "" once pods leave
    gang: str = ""


class EvictionStore(Protocol):
    """Durable evictions that an operator may know of and that have not ended.

    Records survive a crash at any time. Losing them is safe: a machine whose Node is being drained
    counts as supply until a decision drains it again.
    """

    def load(self) -> Sequence[Eviction]:
        """The evictions in progress, in the order of their start."""
        ...

    def record_started(self, eviction: Eviction) -> None:
        """Add an eviction, replacing an earlier one of the same machine. Raises BigFleetError if it
        cannot be written; then the eviction must not start.
        """
        ...

    def record_ended(self, machine_id: str) -> None:
        """Remove the machine's eviction, if any. If it cannot be written now, it is written with
        the next record.
        """
        ...


class RemovalStore(Protocol):
    """The clusters being removed from the fleet, so that removal continues after a restart."""

    def load(self) -> Collection[str]:
        """The clusters saved last. Raises BigFleetError if the record is damaged."""
        ...

    def save(self, clusters: Collection[str]) -> None:
        """Save durably before returning; raises BigFleetError if that fails."""
        ...


class DemandStore(Protocol):
    """How many pods each cluster requested, to detect a collapse of its demand after a restart.
    Losing it is safe: the cluster's machines give a lower bound.
    """

    def load(self) -> Mapping[str, int]:
        """The numbers saved last; empty if they are damaged. Raises BigFleetError if they cannot be
        read.
        """
        ...

    def save(self, pods: Mapping[str, int]) -> None:
        """Save durably before returning; raises BigFleetError if that fails."""
        ...


class InventoryStore(Protocol):
    """What the shard knows of each machine, so that it reads only what has changed after a restart.
    Losing it is safe: all machines are read again.
    """

    def load(self) -> bytes | None:
        """The content saved last, None if there is none. Raises BigFleetError if it cannot be
        read.
        """
        ...

    def save(self, content: bytes) -> None:
        """Save durably before returning; raises BigFleetError if that fails."""
        ...


@dataclass(frozen=True)
class ShardStores:
    """A shard's stores, except those of its epoch and ownership. Without `demand`, a cluster's
    former demand is estimated from its machines after a restart; without `inventory`, all machines
    are read again.
    """

    evictions: EvictionStore
    removals: RemovalStore
    demand: DemandStore | None = None
    inventory: InventoryStore | None = None
