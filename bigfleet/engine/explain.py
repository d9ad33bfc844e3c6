"""Why a need has what it has: read from a decision and what it was made from, on request.

Nothing here decides anything, so nothing here has to be fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.decision import ActionKind, Decision
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Rows
from bigfleet.engine.supply import ACQUIRABLE
from bigfleet.engine.wishes import Wish, Wishes
from bigfleet.model.machine import MachineState

_MOST_DOMAINS = 5


class Reason(Enum):
    """Why a need is short; the names are those of the wire."""

    NO_MATCHING_SUPPLY = "no machine of the fleet could ever serve it"
    TOPOLOGY_UNSATISFIABLE = "there are machines, but not where its topology wants them"
    PREEMPTION_EXHAUSTED = "it takes machines from lower priorities, and they are not enough"
    PRIORITY_STARVED = "what could serve it serves needs of at least its priority, or is out of use"


@dataclass(frozen=True)
class Counted:
    """A machine that the need counts: what it costs the need in dollars per hour, how much of the
    need it holds, and what is ordered for it in this cycle, if anything.
    """

    row: int
    state: MachineState
    cost: float
    holds: Mapping[str, int]
    ordered: ActionKind | None


@dataclass(frozen=True)
class DomainCoverage:
    """How much of a gang its machines in one domain and the free ones there hold, per mille of
    its scarcest resource.
    """

    domain: str
    per_mille: int


@dataclass(frozen=True)
class Explanation:
    """One need of a decision.

    `matching` and `usable` count machines by state: those that meet its requirements, and of these
    those that hold at least one unit of it. `by_requirement` counts the machines that meet each one
    alone. `free` are usable ones that nobody counts, `lower` those that serve lower priorities.
    `domains` are a gang's best. `reason` is None while nothing is lacking.
    """

    need: int
    matching: Mapping[MachineState, int]
    usable: Mapping[MachineState, int]
    by_requirement: Mapping[str, int]
    free: int
    lower: int
    counted: Sequence[Counted]
    deficit: Mapping[str, int]
    age_cycles: int
    domains: Sequence[DomainCoverage]
    reason: Reason | None


class Explainer:
    """Explains needs of one decision."""

    def __init__(self, fleet: Fleet, demand: Demand, decision: Decision) -> None:
        self._fleet, self._demand, self._decision = fleet, demand, decision
        self._columns = FlavourColumns(fleet.flavours)
        self._wishes = Wishes(demand, self._columns)
        self._ordered = {action.row: action.kind for action in decision.actions}
        self._short = {shortfall.need: shortfall for shortfall in decision.shortfalls}
        self._priority: Ints = np.array(
            [*(need.profile.priority for need in demand.needs), 0], np.int32
        )

    def need(self, index: int) -> Explanation:
        """Need number `index` of the demand."""
        wish, shortfall = self._wishes.of(index), self._short.get(index)
        if wish is None:
            return Explanation(index, {}, {}, {}, 0, 0, (), {}, 0, (), None)
        usable = np.flatnonzero(wish.usable[self._fleet.flavour])
        free, lower = self._free(usable), self._lower(wish, usable)
        return Explanation(
            need=index,
            matching=self._by_state(wish.matching),
            usable=self._by_state(wish.usable),
            by_requirement=self._by_requirement(wish),
            free=len(free),
            lower=len(lower),
            counted=self._counted(wish),
            deficit=shortfall.deficit if shortfall else {},
            age_cycles=shortfall.age_cycles if shortfall else 0,
            domains=self._domains(wish, free),
            reason=self._reason(wish, usable, free) if shortfall else None,
        )

    def _by_state(self, flavours: Flags) -> dict[MachineState, int]:
        states = self._fleet.state[flavours[self._fleet.flavour]]
        counts = np.bincount(states, minlength=max(MachineState) + 1)
        return {state: int(counts[state]) for state in MachineState if counts[state]}

    def _by_requirement(self, wish: Wish) -> dict[str, int]:
        counts = {}
        for requirement in wish.need.profile.requirements:
            meeting = self._wishes.meeting((requirement,))
            counts[str(requirement)] = int(np.count_nonzero(meeting[self._fleet.flavour]))
        return counts

    def _free(self, usable: Rows) -> Rows:
        acquirable = np.isin(self._fleet.state[usable], [int(state) for state in ACQUIRABLE])
        free: Rows = usable[acquirable & (self._decision.claimed_by[usable] == NONE)]
        return free

    def _lower(self, wish: Wish, usable: Rows) -> Rows:
        holder = self._decision.claimed_by[usable]
        is_lower = self._priority[holder] < wish.need.profile.priority
        lower: Rows = usable[(holder != NONE) & is_lower]
        return lower

    def _counted(self, wish: Wish) -> list[Counted]:
        rows = np.flatnonzero(self._decision.claimed_by == wish.index)
        return [
            Counted(
                row,
                MachineState(int(self._fleet.state[row])),
                float(wish.costs[self._fleet.flavour[row]]),
                dict(
                    zip(wish.resources, wish.units[self._fleet.flavour[row]].tolist(), strict=True)
                ),
                self._ordered.get(row),
            )
            for row in rows.tolist()
        ]

    def _domains(self, wish: Wish, free: Rows) -> list[DomainCoverage]:
        if wish.same_key is None:
            return []
        own = np.flatnonzero(self._decision.claimed_by == wish.index)
        flavours = self._fleet.flavour[np.concatenate((own, free))]
        codes, names = self._columns.label(wish.same_key)
        found = [
            DomainCoverage(names[code], _per_mille(wish, flavours[codes[flavours] == code]))
            for code in np.unique(codes[flavours]).tolist()
        ]
        return sorted(found, key=lambda each: (-each.per_mille, each.domain))[:_MOST_DOMAINS]

    def _reason(self, wish: Wish, usable: Rows, free: Rows) -> Reason:
        if not len(usable):
            return Reason.NO_MATCHING_SUPPLY
        if wish.same_key is not None or (wish.terms and len(free)):
            return Reason.TOPOLOGY_UNSATISFIABLE
        held = np.flatnonzero(self._decision.claimed_by == wish.index)
        taken = (self._fleet.state[held] == MachineState.DRAINING).any()
        if taken or any(self._ordered.get(row) is ActionKind.PREEMPT for row in held.tolist()):
            return Reason.PREEMPTION_EXHAUSTED
        return Reason.PRIORITY_STARVED


def _per_mille(wish: Wish, flavours: Ints) -> int:
    """In Python's numbers, because the products do not fit into 64 bits."""
    have: list[int] = wish.units[flavours].sum(axis=0).tolist()
    want: list[int] = wish.want.tolist()
    return min(min(1000 * h // w, 1000) for h, w in zip(have, want, strict=True))
