"""Which machines without a cluster a need acquires, from one ordered list of candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigfleet.engine.cost import RELUCTANCES, cost_per_useful_unit
from bigfleet.engine.picking import (
    Positions,
    best_fit,
    take_until_covered,
    uncovered,
    without_redundant,
)
from bigfleet.engine.snapshot import Flags, Fleet, Floats, Ints, Longs
from bigfleet.engine.supply import ACQUIRABLE, Rows, Supply


@dataclass(frozen=True)
class Shopping:
    """One need's wishes: what is `missing` [R], and per flavour what a machine holds of it [F, R],
    whether it may be used, its effective cost and the reluctance to take it [F].
    """

    missing: Longs
    units: Longs
    usable: Flags
    costs: Floats
    reluctance: Ints

    def price_ranks(self) -> Longs:
        """Rank of each usable flavour by cost per useful unit, then cost; equals share a rank."""
        usable = np.flatnonzero(self.usable)
        costs = self.costs[usable]
        per_unit = cost_per_useful_unit(costs, self.units[usable], self.missing)
        order = np.lexsort((costs, per_unit))
        costs, per_unit = costs[order], per_unit[order]
        steps = (costs[1:] != costs[:-1]) | (per_unit[1:] != per_unit[:-1])
        ranks = np.zeros(len(self.usable), np.int64)
        ranks[usable[order[1:]]] = np.cumsum(steps)
        return ranks


def tiers(supply: Supply, shopping: Shopping) -> Iterator[Rows]:
    """Candidates by reluctance, and in each Idle before Speculative; empty tiers left out."""
    for reluctance in range(RELUCTANCES):
        usable = shopping.usable & (shopping.reluctance == reluctance)
        for state in ACQUIRABLE if usable.any() else ():
            rows = supply.acquirable(state, usable)
            if len(rows):
                yield rows


def acquire(fleet: Fleet, supply: Supply, shopping: Shopping) -> Rows:
    """The rows to acquire, cheapest first, the last one by best fit; too few if there are no more.

    Claims nothing itself.
    """
    ranks, missing = shopping.price_ranks(), shopping.missing
    taken = [np.empty(0, np.intp)]
    for rows in tiers(supply, shopping):
        ordered = rows[_stable_order(ranks[fleet.flavour[rows]])]
        chosen = ordered[_cheapest(fleet.flavour[ordered], shopping, missing)]
        missing = uncovered(missing, shopping.units[fleet.flavour[chosen]])
        taken.append(chosen)
        if not missing.any():
            break
    acquired = np.concatenate(taken)
    flavours = fleet.flavour[acquired]
    order = np.arange(len(acquired))
    return acquired[
        without_redundant(order, flavours, shopping.units, shopping.costs, shopping.missing)
    ]


def _cheapest(flavours: Ints, shopping: Shopping, missing: Longs) -> Positions:
    positions = take_until_covered(flavours, shopping.units, missing)
    if uncovered(missing, shopping.units[flavours[positions]]).any():
        return positions
    rest = uncovered(missing, shopping.units[flavours[positions[:-1]]])
    free = np.ones(len(flavours), np.bool_)
    free[positions[:-1]] = False
    last = best_fit(np.flatnonzero(free), flavours, shopping.units, shopping.costs, rest)
    return positions if last is None else np.append(positions[:-1], last)


def _stable_order(ranks: Longs) -> Positions:
    """argsort that keeps equals in order; small numbers are sorted by radix, many times faster."""
    small = len(ranks) > 0 and ranks.max() <= np.iinfo(np.uint16).max
    return np.argsort(ranks.astype(np.uint16) if small else ranks, kind="stable")
