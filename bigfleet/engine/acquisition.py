"""Which machines without a cluster a need acquires, from one ordered list of candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigfleet.engine.cost import RELUCTANCES, cost_per_useful_unit
from bigfleet.engine.picking import Positions, take_and_fit, uncovered, without_redundant
from bigfleet.engine.snapshot import Flags, Fleet, Longs
from bigfleet.engine.supply import ACQUIRABLE, Rows, Supply
from bigfleet.engine.wishes import Wish


@dataclass(frozen=True)
class Shopping:
    """What of a wish is `missing` [R], and which flavours are `usable` [F] for that."""

    wish: Wish
    missing: Longs
    usable: Flags

    def price_ranks(self) -> Longs:
        """Rank of each usable flavour by cost per useful unit, then cost; equals share a rank."""
        usable = np.flatnonzero(self.usable)
        costs = self.wish.costs[usable]
        per_unit = cost_per_useful_unit(costs, self.wish.units[usable], self.missing)
        order = np.lexsort((costs, per_unit))
        costs, per_unit = costs[order], per_unit[order]
        steps = (costs[1:] != costs[:-1]) | (per_unit[1:] != per_unit[:-1])
        ranks = np.zeros(len(self.usable), np.int64)
        ranks[usable[order[1:]]] = np.cumsum(steps)
        return ranks


def tiers(supply: Supply, shopping: Shopping) -> Iterator[Rows]:
    """Candidates by reluctance, and in each Idle before Speculative; empty tiers left out."""
    wish = shopping.wish
    for reluctance in range(RELUCTANCES):
        usable = shopping.usable & (wish.reluctance == reluctance)
        for state in ACQUIRABLE if usable.any() else ():
            rows = supply.acquirable(state, wish, usable)
            if len(rows):
                yield rows


def acquire(fleet: Fleet, supply: Supply, shopping: Shopping) -> Rows:
    """The rows to acquire, cheapest first, the last one by best fit; too few if there are no more.

    Claims nothing itself.
    """
    missing, units = shopping.missing, shopping.wish.units
    taken: list[Rows] = []
    ranks: Longs | None = None
    for rows in tiers(supply, shopping):
        ranks = shopping.price_ranks() if ranks is None else ranks
        ordered = rows[_stable_order(ranks[fleet.flavour[rows]])]
        flavours = fleet.flavour[ordered]
        chosen = ordered[take_and_fit(flavours, units, shopping.wish.costs[flavours], missing)]
        missing = uncovered(missing, units[fleet.flavour[chosen]])
        taken.append(chosen)
        if not missing.any():
            break
    if not taken:
        return np.empty(0, np.intp)
    acquired = np.concatenate(taken)
    flavours = fleet.flavour[acquired]
    costs = shopping.wish.costs[flavours]
    order = np.arange(len(acquired))
    return acquired[without_redundant(order, flavours, units, costs, shopping.missing)]


def _stable_order(ranks: Longs) -> Positions:
    """argsort that keeps equals in order; small numbers are sorted by radix, many times faster."""
    small = len(ranks) > 0 and ranks.max() <= np.iinfo(np.uint16).max
    return np.argsort(ranks.astype(np.uint16) if small else ranks, kind="stable")
