"""What a cycle decides: orders in a defined sequence, and what could not be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bigfleet.engine.carry import Carry
from bigfleet.engine.snapshot import Ints


class ActionKind(Enum):
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

    kind: ActionKind
    row: int
    need: int
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A need that all supply it may have does not cover, by how much, and for how long."""

    need: int
    deficit: Mapping[str, int]
    age_cycles: int
    since_seconds: float


@dataclass(frozen=True)
class Decision:
    """Actions in the order in which they should be carried out: bootstraps and provisions by the
    demand's order, preemptions likewise, reclaims, then deletes.

    `shortfalls` are all of them, in the demand's order. `claimed_by` gives for each fleet row the
    need that counts it as its supply, now or once it is drained, or NONE. The next snapshot gives
    it back as `Fleet.wanted_by`, and the next decision gets `carry`. `headroom` are the rows that
    are kept or acquired though nobody needs them, to be one machine ahead of small gangs.
    `reclaims_capped` counts reclaims kept back by the cap.
    """

    actions: Sequence[Action]
    shortfalls: Sequence[Shortfall]
    claimed_by: Ints
    headroom: frozenset[int]
    reclaims_capped: int
    carry: Carry
