"""Which machines without a cluster a need acquires, from one ordered list of candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from bigfleet.engine.cost import RELUCTANCES, cost_per_useful_unit
from bigfleet.engine.picking import Positions, take_and_fit, uncovered, without_redundant
from bigfleet.engine.shelves import Kinds
from bigfleet.engine.snapshot import Flags, Fleet, Floats, Ints, Longs, Rows
from bigfleet.engine.supply import ACQUIRABLE, Supply
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
        ranks = np.zeros(len(self.usable), np.int64)
        ranks[usable] = _ranks(self.wish.costs[usable], self.wish.units[usable], self.missing)
        return ranks


def _ranks(costs: Floats, units: Longs, missing: Longs) -> Longs:
    per_unit = cost_per_useful_unit(costs, units, missing)
    order = np.lexsort((costs, per_unit))
    in_order, per_unit = costs[order], per_unit[order]
    steps = (in_order[1:] != in_order[:-1]) | (per_unit[1:] != per_unit[:-1])
    ranks = np.zeros(len(costs), np.int64)
    ranks[order[1:]] = np.cumsum(steps)
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
    wish, missing = shopping.wish, shopping.missing
    kinds = supply.kinds(wish) if shopping.usable is wish.usable else None
    if kinds is None:
        goods = _Goods(fleet.flavour.__getitem__, wish.units, wish.costs, shopping.price_ranks)
        return _acquired(tiers(supply, shopping), goods, missing)
    ranks = partial(_ranks, kinds.costs, kinds.units, missing)

    def kind_of(rows: Rows) -> Ints:
        kind: Ints = kinds.of_flavour[fleet.flavour[rows]]
        return kind

    goods = _Goods(kind_of, kinds.units, kinds.costs, ranks)
    return _acquired(_fronts(supply, wish, kinds, missing), goods, missing)


def _fronts(supply: Supply, wish: Wish, kinds: Kinds, missing: Longs) -> Iterator[Rows]:
    """Of the `tiers` what the need can have use for."""
    enough = kinds.enough(missing)
    for reluctance in range(RELUCTANCES):
        many = {kind: enough[kind] for kind in kinds.reluctant(reluctance)}
        for state in ACQUIRABLE if many else ():
            rows = supply.front(state, wish, many)
            if len(rows):
                yield rows


@dataclass(frozen=True)
class _Goods:
    """What machines are told apart by: `numbers` of rows, and for each number what such a machine
    holds, what it costs, and how it `ranks` by that.
    """

    numbers: Callable[[Rows], Ints]
    units: Longs
    costs: Floats
    ranks: Callable[[], Longs]


def _acquired(in_tiers: Iterator[Rows], goods: _Goods, wanted: Longs) -> Rows:
    missing, taken = wanted, [np.empty(0, np.intp)]
    ranks: Longs | None = None
    for rows in in_tiers:
        ranks = goods.ranks() if ranks is None else ranks
        ordered = rows[_stable_order(ranks[goods.numbers(rows)])]
        numbers = goods.numbers(ordered)
        chosen = ordered[take_and_fit(numbers, goods.units, goods.costs[numbers], missing)]
        missing = uncovered(missing, goods.units[goods.numbers(chosen)])
        taken.append(chosen)
        if not missing.any():
            break
    acquired = np.concatenate(taken)
    numbers, order = goods.numbers(acquired), np.arange(len(acquired))
    costs = goods.costs[numbers]
    return acquired[without_redundant(order, numbers, goods.units, costs, wanted)]


def _stable_order(ranks: Longs) -> Positions:
    """argsort that keeps equals in order; small numbers are sorted by radix, many times faster."""
    small = len(ranks) > 0 and ranks.max() <= np.iinfo(np.uint16).max
    return np.argsort(ranks.astype(np.uint16) if small else ranks, kind="stable")
