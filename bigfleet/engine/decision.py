"""What a cycle decides: orders in a defined sequence, and what could not be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bigfleet.engine.snapshot import Ints


class ActionKind(Enum):
    """BOOTSTRAP: Idle machine to a need's cluster. PROVISION: Speculative machine to be created
    for a need. RECLAIM: Configured machine to be drained, nobody needs it. DELETE: Idle machine to
    be given back.
    """

    BOOTSTRAP = "Bootstrap"
    PROVISION = "Provision"
    RECLAIM = "Reclaim"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Action:
    """One order. `row` indexes the fleet; `need` the demand (NONE for RECLAIM and DELETE)."""

    kind: ActionKind
    row: int
    need: int
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A need that all matching supply together does not cover, and by how much."""

    need: int
    deficit: Mapping[str, int]


@dataclass(frozen=True)
class Decision:
    """Actions in the order in which they should be carried out: bootstraps and provisions by the
    demand's order, then reclaims, then deletes.

    `claimed_by` gives for each fleet row the need that counts it as its supply, or NONE. The next
    snapshot gives it back as `Fleet.wanted_by`, so that needs keep their machines.
    `reclaims_capped` counts excess machines kept back by the reclaim cap.
    """

    actions: Sequence[Action]
    shortfalls: Sequence[Shortfall]
    claimed_by: Ints
    reclaims_capped: int
