"""Phase 1: every need, in order, first counts what its cluster has, then acquires the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bigfleet.engine.acquisition import Shopping, acquire
from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.cost import CostBook
from bigfleet.engine.decision import Action, ActionKind, Shortfall
from bigfleet.engine.holding import Holdings, wanted
from bigfleet.engine.matching import Matcher, hard_spread, placement_requirements
from bigfleet.engine.picking import take_until_covered, uncovered
from bigfleet.engine.same_domain import DomainSupply, choose_domain
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Longs
from bigfleet.engine.spreading import acquire_spread
from bigfleet.engine.supply import Rows, Supply
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need


@dataclass(frozen=True)
class Assignment:
    """Orders for acquired machines, what stayed uncovered, and who counts which machine."""

    actions: Sequence[Action]
    shortfalls: Sequence[Shortfall]
    claimed_by: Ints


def assign(fleet: Fleet, demand: Demand) -> Assignment:
    """Serve all needs of `demand` in its order."""
    walk = _Walk(fleet)
    for index, need in enumerate(demand.needs):
        walk.serve(index, need, int(demand.cluster[index]))
    return Assignment(walk.actions, walk.shortfalls, walk.supply.claimed_by)


class _Walk:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._columns = FlavourColumns(fleet.flavours)
        self._matcher = Matcher(self._columns)
        self._holdings = Holdings(self._columns)
        self._costs = CostBook(self._columns)
        self.supply = Supply(fleet, self._columns)
        self.actions: list[Action] = []
        self.shortfalls: list[Shortfall] = []

    def serve(self, index: int, need: Need, cluster: int) -> None:
        """Credit and acquire for one need; note what it lacks then."""
        resources, want = wanted(need)
        if not resources:
            return
        holding = self._holdings.of(need, resources)
        usable = holding.usable & self._matcher.flavours(placement_requirements(need.profile))
        creditable = self.supply.creditable(index, cluster, usable)
        if hard_spread(need.profile):
            creditable = self._not_of_others(index, creditable)
        if need.profile.same_key is not None:
            creditable, usable = self._confined(index, need, creditable, usable, want)
        credited = creditable[
            take_until_covered(self._fleet.flavour[creditable], holding.units, want)
        ]
        self.supply.claim(credited, index)
        missing = uncovered(want, holding.units[self._fleet.flavour[credited]])
        if missing.any():
            missing = self._acquire(index, need, missing, usable, credited)
        self._note_shortfall(index, resources, missing)

    def _not_of_others(self, index: int, rows: Rows) -> Rows:
        """A need that spreads leaves its neighbours' machines alone: whatever they acquire where
        its skew lets it acquire nothing, it would take from them, and they would acquire again.
        """
        wanted_by = self._fleet.wanted_by[rows]
        free: Rows = rows[(wanted_by == index) | (wanted_by == NONE)]
        return free

    def _confined(
        self, index: int, need: Need, creditable: Rows, usable: Flags, want: Longs
    ) -> tuple[Rows, Flags]:
        """Creditable rows and usable flavours in the gang's domain."""
        fleet = self._fleet
        codes = self._columns.label(str(need.profile.same_key)).codes
        supply = DomainSupply(
            codes,
            self._holdings.of(need, wanted(need)[0]).units,
            self.supply.acquirable_by_flavour(usable),
            self.supply.by_flavour(creditable),
            self.supply.by_flavour(creditable[fleet.wanted_by[creditable] == index]),
        )
        inside = codes == choose_domain(supply, want)
        return creditable[inside[fleet.flavour[creditable]]], usable & inside

    def _acquire(self, index: int, need: Need, missing: Longs, usable: Flags, held: Rows) -> Longs:
        """Order machines for `missing`; what is missing after that."""
        units = self._holdings.of(need, wanted(need)[0]).units
        costs, reluctance = self._costs.costs(need), self._costs.reluctance(need)
        shopping = Shopping(missing, units, usable, costs, reluctance)
        terms = hard_spread(need.profile)
        if terms:
            rows = acquire_spread(self._fleet, self._columns, self.supply, shopping, terms, held)
        else:
            rows = acquire(self._fleet, self.supply, shopping)
        self.supply.claim(rows, index)
        idle = self._fleet.state[rows] == MachineState.IDLE
        self.actions += [
            Action(ActionKind.BOOTSTRAP if is_idle else ActionKind.PROVISION, row, index)
            for row, is_idle in zip(rows.tolist(), idle.tolist(), strict=True)
        ]
        return uncovered(missing, units[self._fleet.flavour[rows]])

    def _note_shortfall(self, index: int, resources: Sequence[str], missing: Longs) -> None:
        if missing.any():
            deficit = {name: int(a) for name, a in zip(resources, missing, strict=True) if a}
            self.shortfalls.append(Shortfall(index, deficit))
