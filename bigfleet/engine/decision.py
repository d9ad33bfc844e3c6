"""What a cycle decides: orders in a defined sequence, and what could not be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import Ints, Longs, Rows
from bigfleet.model.need import Size, total_of


class ActionType(Enum):
    """BOOTSTRAP: Idle machine to a need's cluster. PROVISION: Speculative machine to be created
    for a need. PREEMPT: Configured machine to be drained for a need, though another one counts it.
    RECLAIM: Configured machine to be drained, nobody counts it. DELETE: Idle machine to be given
    back.
    """

    BOOTSTRAP = "Bootstrap"
    PROVISION = "Provision"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Action:
    """One order. `row` indexes the fleet. `need` indexes the demand: who will have the machine;
    NONE for DELETE, and for a RECLAIM that nobody waits for.
    """

    type: ActionType
    row: int
    need: int
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A need with pods that have no place, and for how long it has had such.

    `sizes` are those that some machine of the fleet could hold, `impossible` those that none could
    ever hold.
    """

    need: int
    sizes: tuple[Size, ...]
    impossible: tuple[Size, ...]
    age_cycles: int
    since_seconds: float

    @property
    def pods(self) -> int:
        """How many pods have no place."""
        return sum(size.pods for size in (*self.sizes, *self.impossible))

    @property
    def deficit(self) -> Mapping[str, int]:
        """What they ask for together, by resource name."""
        return total_of((*self.sizes, *self.impossible))


class Placements(NamedTuple):
    """Where the pods are counted: `pods` of size number `size` of need number `need` on the machine
    in `row`. In the order of rows, then needs.
    """

    row: Ints
    need: Ints
    size: Ints
    pods: Longs


class ClusterUsage(NamedTuple):
    """Machines of a cluster, those that come to it included, and millionths of a dollar an hour."""

    machines: int
    micros: int


@dataclass(frozen=True)
class Decision:
    """Actions in the order in which they should be carried out: bootstraps and provisions by the
    demand's order, preemptions likewise, reclaims, then deletes.

    `shortfalls` are all of them, in the demand's order. `claimed_by` gives for each fleet row the
    need that counts it as its supply, now or once it is drained, or NONE: the one that ordered it,
    or else the first with pods on it; `placements` are those of all needs. The next snapshot gives
    it back as `Fleet.last_claimed_by`, and the next decision gets `cycle_memory`. `headroom` are
    the rows that are kept or acquired though nobody needs them, to be one machine ahead of small
    gangs. `reclaims_capped` counts reclaims kept back by the cap. `disruption_cost_queries` are the
    clusters that may have machines to spare, with those of their machines that are used least as
    far as counting tells: their operators are worth asking what giving some back would disturb.
    `held` says of clusters whose ceiling bounds that what they hold once everything is carried out,
    and `at_ceiling` are the needs that lack what such a ceiling withheld.
    """

    actions: Sequence[Action]
    shortfalls: Sequence[Shortfall]
    claimed_by: Ints
    placements: Placements
    headroom: frozenset[int]
    reclaims_capped: int
    disruption_cost_queries: Mapping[int, Rows]
    cycle_memory: CycleMemory
    held: Mapping[int, ClusterUsage] = field(default_factory=dict)
    at_ceiling: frozenset[int] = frozenset()
