"""One machine ahead for small gangs, so that kube-scheduler need not tear them.

A gang that fits on one machine is served as plain demand: any room of its size will do. But the
scheduler binds a gang's pods one by one, the first to any node with room for that one. In a cluster
that has no room for all of them together, the others then hang at a rack in which nothing may be
left, while their need counts as met. So each cluster with such gangs keeps one machine more than
they need that holds the largest of them: a surplus machine stays, or one is acquired once everybody
else was served. Nothing is taken from anybody for it, and whoever outranks the gangs may have it.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.acquisition import Shopping, acquire
from bigfleet.engine.desk import Desk
from bigfleet.engine.normalise import is_folded
from bigfleet.engine.snapshot import Flags, Longs, Rows
from bigfleet.engine.wishes import Wish


class Headroom:
    """The machines ahead, of one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._gangs = _largest_first(desk)
        self._ahead: dict[int, list[int]] = {}

    @property
    def rows(self) -> frozenset[int]:
        """All machines that are kept or acquired to be ahead."""
        return frozenset(row for rows in self._ahead.values() for row in rows)

    def retain(self, leaving: Flags) -> Flags:
        """Choose among what nobody counts and is not among the machines `leaving`; flags of those
        that stay for this alone.
        """
        self._choose(leaving)
        stay = np.zeros(len(self._desk.fleet), np.bool_)
        stay[[*self.rows]] = True
        return stay

    def acquire(self, leaving: Flags) -> None:
        """Choose again, after others may have taken what was chosen, and acquire what is missing.

        A need that lacks machines, or passes, gets none ahead either.
        """
        self._choose(leaving)
        desk = self._desk
        for wish in self._gangs:
            passes = desk.lacks(wish.index) or wish.index in desk.expired
            if not passes and not self._has_room(wish):
                shopping = Shopping(wish, _one_gang(wish), wish.usable)
                rows = acquire(desk.fleet, desk.supply, shopping)
                desk.supply.claim(rows, wish.index)
                before = desk.acquired.get(wish.index, rows[:0])
                desk.acquired[wish.index] = np.concatenate((before, rows))
                self._note(wish, rows)

    def _choose(self, leaving: Flags) -> None:
        self._ahead = {}
        for wish in self._gangs:
            if not self._has_room(wish):
                spare = self._desk.supply.creditable(wish, wish.usable)
                self._note(wish, spare[~leaving[spare]][:1])

    def _has_room(self, wish: Wish) -> bool:
        flavour = self._desk.fleet.flavour
        return any(wish.usable[flavour[row]] for row in self._ahead.get(wish.cluster, ()))

    def _note(self, wish: Wish, rows: Rows) -> None:
        self._ahead.setdefault(wish.cluster, []).extend(rows.tolist())


def _largest_first(desk: Desk) -> list[Wish]:
    """The folded gangs of all clusters: what has room for a large one has it for a small one."""
    sizes = {
        index: sorted(need.largest.items())
        for index, need in enumerate(desk.demand.needs)
        if is_folded(need)
    }
    ordered = sorted(sizes, key=lambda index: (sizes[index], -index), reverse=True)
    wishes = (desk.wishes.of(index) for index in ordered)
    return [wish for wish in wishes if wish is not None]


def _one_gang(wish: Wish) -> Longs:
    return np.array([wish.need.largest.get(name, 0) for name in wish.resources], np.int64)
