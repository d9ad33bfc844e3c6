"""Acquisition for a need that spreads its machines over topology domains.

A domain may get another machine while its count is at most the smallest count plus max_skew - 1.
All domains that have supply for the need take part in that minimum, also when theirs is used up:
an honest shortfall is better than machines whose pods the scheduler would not place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.acquisition import Shopping, tiers
from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.picking import Positions, best_fit, uncovered
from bigfleet.engine.snapshot import Flags, Fleet, Floats, Ints, Longs, Rows
from bigfleet.engine.supply import Supply
from bigfleet.model.need import Spread


class SpreadCounts:
    """How many of a need's machines are in each domain of its hard spread terms."""

    def __init__(
        self, columns: FlavourColumns, terms: Sequence[Spread], held: Ints, candidates: Ints
    ) -> None:
        """`held` and `candidates` are the flavours of machines the need has and may yet get."""
        self._skews = [term.max_skew for term in terms]
        labels = [columns.label(term.topology_key) for term in terms]
        self._codes = [label.codes for label in labels]
        in_question = np.concatenate((held, candidates))
        self._supplied = [np.unique(codes[in_question]) for codes in self._codes]
        self._counts = [
            np.bincount(codes[held], minlength=len(label.values))
            for codes, label in zip(self._codes, labels, strict=True)
        ]

    def cells(self) -> Ints:
        """For each flavour the number of its combination of domains, in the order of names."""
        combined = np.stack(self._codes, axis=1)
        return np.unique(combined, axis=0, return_inverse=True)[1].astype(np.int32)

    def add(self, flavour: int) -> None:
        """Count one more machine of `flavour`."""
        for codes, counts in zip(self._codes, self._counts, strict=True):
            counts[codes[flavour]] += 1

    def eligible(self, flavours: Ints) -> Flags:
        """Which of `flavours` are in domains that may all get another machine."""
        allowed = np.ones(len(flavours), np.bool_)
        parts = zip(self._codes, self._counts, self._supplied, self._skews, strict=True)
        for codes, counts, supplied, skew in parts:
            allowed &= counts[codes[flavours]] <= counts[supplied].min() + skew - 1
        return allowed


class _Heads:
    """Candidates queued by cell; each queue keeps the overall order."""

    def __init__(self, cells: Ints) -> None:
        order = np.argsort(cells, kind="stable")
        starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
        self._queues = np.split(order, starts[1:])
        self._next = [0] * len(self._queues)
        self.positions = np.array([queue[0] for queue in self._queues], np.intp)
        self._end = len(cells)

    def pop(self, queue: int) -> None:
        """Drop the head of `queue`; a queue that is used up points behind the last position."""
        self._next[queue] += 1
        at, rows = self._next[queue], self._queues[queue]
        self.positions[queue] = rows[at] if at < len(rows) else self._end

    def first(self, flavours: Ints, counts: SpreadCounts) -> int | None:
        """The queue whose head comes first of those that may get another machine."""
        filled = np.flatnonzero(self.positions < self._end)
        open_ = filled[counts.eligible(flavours[self.positions[filled]])]
        return int(open_[self.positions[open_].argmin()]) if len(open_) else None


def acquire_spread(
    fleet: Fleet, columns: FlavourColumns, supply: Supply, shopping: Shopping, held: Rows
) -> Rows:
    """The rows to acquire for a need that has `held`; the cheapest head of an eligible domain
    first, then by domain name. Claims nothing itself.
    """
    in_tiers = list(tiers(supply, shopping))
    if not in_tiers:
        return np.empty(0, np.intp)
    rows = np.concatenate(in_tiers)
    tier = np.repeat(np.arange(len(in_tiers)), [len(part) for part in in_tiers])
    candidates = Candidates(rows, tier, shopping.wish.costs[fleet.flavour[rows]])
    return rows[pick_spread(fleet, columns, shopping, candidates, held)]


class Candidates(NamedTuple):
    """Machines in question: `tier` counts before anything else, `costs` when the last machine is
    chosen from the tier that it comes from.
    """

    rows: Rows
    tier: Longs
    costs: Floats


def pick_spread(
    fleet: Fleet, columns: FlavourColumns, shopping: Shopping, candidates: Candidates, held: Rows
) -> Positions:
    """Positions of the candidates to take, tier by tier, in each by price and then domain name,
    none that would break the skew of the machines `held`.
    """
    rows, tier, costs = candidates
    terms, flavours = shopping.wish.terms, fleet.flavour[rows]
    counts = SpreadCounts(columns, terms, fleet.flavour[held], flavours)
    cells, ranks = counts.cells(), shopping.price_ranks()
    order = np.lexsort((cells[flavours], ranks[flavours], tier))
    ordered = Candidates(rows[order], tier[order], costs[order])
    return order[_SpreadWalk(shopping, flavours[order], ordered, cells, counts).run()]


class _SpreadWalk:
    """Picks one machine after the other; candidates and their `flavours` are in pick order."""

    def __init__(
        self,
        shopping: Shopping,
        flavours: Ints,
        candidates: Candidates,
        cells: Ints,
        counts: SpreadCounts,
    ) -> None:
        self._units, self._counts, self._cells = shopping.wish.units, counts, cells
        self._flavours, self._tier, self._costs = flavours, candidates.tier, candidates.costs
        self._free: Positions = np.arange(len(flavours))
        self._missing = shopping.missing
        self._taken: list[int] = []

    def run(self) -> Positions:
        """Positions taken, in the order in which they were."""
        progress = True
        while self._missing.any() and progress:
            progress = self._cover_one_resource(self._missing > 0)
        return np.array(self._taken, np.intp)

    def _cover_one_resource(self, open_: Flags) -> bool:
        """Pick until one of the `open_` resources is covered; False if that cannot be."""
        self._drop_useless(open_)
        if not len(self._free):
            return False
        flavours = self._flavours[self._free]
        heads = _Heads(self._cells[flavours])
        while self._missing[open_].all():
            queue = heads.first(flavours, self._counts)
            if queue is None:
                return False
            self._take(int(self._free[heads.positions[queue]]))
            heads.pop(queue)
        return True

    def _drop_useless(self, open_: Flags) -> None:
        untaken = self._free[~np.isin(self._free, self._taken)]
        useful: Flags = np.logical_or.reduce(self._units[:, open_] > 0, axis=1)
        self._free = untaken[useful[self._flavours[untaken]]]

    def _take(self, head: int) -> None:
        units = self._units
        if (units[self._flavours[head]] >= self._missing).all():
            head = self._best_last(head)
        flavour = int(self._flavours[head])
        self._taken.append(head)
        self._counts.add(flavour)
        self._missing = uncovered(self._missing, units[flavour][None, :])

    def _best_last(self, head: int) -> int:
        """The machine that ends the walk: of the head's tier, from any eligible domain."""
        same_tier = self._free[self._tier[self._free] == self._tier[head]]
        untaken = same_tier[~np.isin(same_tier, self._taken)]
        allowed = untaken[self._counts.eligible(self._flavours[untaken])]
        last = best_fit(allowed, self._flavours, self._units, self._costs, self._missing)
        return head if last is None else last
