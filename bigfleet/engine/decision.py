"""Outputs of a decision: actions in a defined order, and shortfalls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import Ints, Longs, Rows
from bigfleet.model.machine import MachineEvent
from bigfleet.model.need import Size, total_of


class ActionType(Enum):
    """What is done with a machine.

    BOOTSTRAP configures an Idle machine for a need's cluster. PROVISION creates a Speculative
    machine for a need. PREEMPT drains a Configured machine for a need although another one claims
    it. RECLAIM drains an unclaimed Configured machine. DELETE returns an Idle machine to the
    provider.
    """

    BOOTSTRAP = "Bootstrap"
    PROVISION = "Provision"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"
    DELETE = "Delete"


#: what each action does to its machine, in the order of execution
EVENT_OF: Mapping[ActionType, MachineEvent] = {
    ActionType.BOOTSTRAP: MachineEvent.CONFIGURE,
    ActionType.PROVISION: MachineEvent.CREATE,
    ActionType.PREEMPT: MachineEvent.DRAIN,
    ActionType.RECLAIM: MachineEvent.DRAIN,
    ActionType.DELETE: MachineEvent.DELETE,
}


@dataclass(frozen=True, slots=True)
class Action:
    """One action on the machine in `row`, for need number `need`; NONE for DELETE, and for a
    RECLAIM without a requester.
    """

    type: ActionType
    row: int
    need: int
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A need with unplaced pods."""

    need: int
    #: pods that some machine of the fleet could hold
    sizes: tuple[Size, ...]
    #: pods that no machine of the fleet can hold
    impossible: tuple[Size, ...]
    #: for how many decisions in a row the need has been short, this one included
    age_cycles: int
    since_seconds: float

    @property
    def pods(self) -> int:
        """The number of unplaced pods."""
        return sum(size.pods for size in (*self.sizes, *self.impossible))

    @property
    def deficit(self) -> Mapping[str, int]:
        """The total requests of the unplaced pods, by resource name."""
        return total_of((*self.sizes, *self.impossible))


class Placements(NamedTuple):
    """P simulated placements of pods, sorted by row, need and size."""

    #: [P] int32, row of the fleet
    row: Ints
    #: [P] int32, index of the need
    need: Ints
    #: [P] int32, index of the need's sizes
    size: Ints
    #: [P] int64, how many pods
    pods: Longs


class ClusterUsage(NamedTuple):
    """What a cluster holds, machines on their way included."""

    machines: int
    #: micro-dollars an hour
    micros: int


@dataclass(frozen=True)
class Decision:
    """The result of one cycle for n machines."""

    #: in the order of execution: bootstraps and provisions in the demand's order, preemptions
    #: likewise, reclaims, deletes
    actions: Sequence[Action]
    #: in the demand's order
    shortfalls: Sequence[Shortfall]
    #: [n] int32, the need that claims the machine, now or once it is drained, or NONE: the one that
    #: ordered it, or else the first with pods on it; becomes `Fleet.last_claimed_by`
    claimed_by: Ints
    #: computes `placements`
    find_placements: Callable[[], Placements]
    #: rows kept or acquired as headroom for gangs
    headroom: frozenset[int]
    #: how many reclaims the cap held back
    reclaims_capped: int
    #: by cluster that may have surplus machines, its least utilized ones in the simulation: its
    #: operator is asked for their disruption cost
    disruption_cost_queries: Mapping[int, Rows]
    #: by cluster in which they were looked for, the machines without all of which its pods fit, but
    #: for those that are reclaimed
    surplus: Mapping[int, Rows]
    #: clusters whose demand as a whole grows: few of their machines, if any, will be reclaimed
    growing: frozenset[int]
    #: input of the next decision
    cycle_memory: CycleMemory
    #: usage of clusters with a ceiling once all actions are carried out
    held: Mapping[int, ClusterUsage] = field(default_factory=dict)
    #: needs that are short because their cluster's ceiling withheld a machine
    at_ceiling: frozenset[int] = frozenset()
    #: needs with pods that are counted beyond a term's maxSkew, since they ran before
    beyond_skew: frozenset[int] = frozenset()

    @cached_property
    def placements(self) -> Placements:
        """The simulated placements of all pods."""
        return self.find_placements()
