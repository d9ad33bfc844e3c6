"""What is explained of a need: how it was served, and why it is short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bigfleet.engine.decision import ActionType
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Size, total_of


class Reason(Enum):
    """Why a need is short; the names are those of the wire."""

    NO_MATCHING_SUPPLY = "no machine of the fleet could ever serve it"
    TOPOLOGY_UNSATISFIABLE = "there are machines, but not where its topology requires them"
    PREEMPTION_EXHAUSTED = "it preempts machines of lower priorities, which are not enough"
    OFFERINGS_UNAVAILABLE = "the machines that fit have just failed; they are retried later"
    CEILING_REACHED = "the cluster has reached its ceiling"
    CLUSTER_SUSPENDED = "nothing is acquired while the cluster's operator accepts no machines"
    PRIORITY_STARVED = "all machines that fit serve the same or higher priority, or are unavailable"


@dataclass(frozen=True)
class PlacedMachine:
    """A machine that holds pods of the need, perhaps beside others, or was ordered for it."""

    row: int
    state: MachineState
    #: effective dollars an hour
    cost: float
    #: how many pods of the need
    pods: int
    #: what these request, by resource name
    holds: Mapping[str, int]
    #: the action on it in this cycle
    ordered: ActionType | None


@dataclass(frozen=True)
class DomainCoverage:
    """How much of a gang fits on its machines and the free ones in one domain, per mille of its
    scarcest resource.
    """

    domain: str
    per_mille: int


@dataclass(frozen=True)
class Explanation:
    """How one need was served."""

    need: int
    #: machines that meet the per-machine conditions, by state
    matching: Mapping[MachineState, int]
    #: of these, machines that hold one of its pods when empty (that is short, if any is), by state
    usable: Mapping[MachineState, int]
    #: machines that meet each requirement alone
    by_requirement: Mapping[str, int]
    #: usable machines that are unclaimed
    free: int
    #: usable machines that serve lower priorities
    lower_priority: int
    counted: Sequence[PlacedMachine]
    #: unplaced pods that some machine could hold
    short: Sequence[Size]
    #: pods that no machine can hold
    impossible: Sequence[Size]
    age_cycles: int
    #: a gang's best domains
    domains: Sequence[DomainCoverage]
    #: None if the need is not short; then `message` is empty
    reason: Reason | None
    message: str

    @property
    def deficit(self) -> Mapping[str, int]:
        """The total requests of its unplaced pods, by resource name."""
        return total_of((*self.short, *self.impossible))
