"""Free machines sorted for needs that ask alike, so that each looks at a few of them only.

To needs that ask alike, machines that hold as much and cost as much are the same, in whatever rack
they stand. Of one such kind a need takes the first ones, and never more than would cover it alone.
So each kind is a shelf, in the order in which its machines are to be taken, and a need sees the
front of each shelf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs, Rows
from bigfleet.engine.wishes import Likeness

# So many claimed machines are passed over before a shelf is tidied up.
_SLACK = 64


class Kinds(NamedTuple):
    """For each flavour its kind, NONE where it is not usable; and what machines of each kind hold
    [K, R], what they cost, and how late they come into question.
    """

    of_flavour: Ints
    units: Longs
    costs: Floats
    reluctance: Ints

    def enough(self, missing: Longs) -> list[int]:
        """How many machines of each kind one need can have use for, the best last one included."""
        served = np.maximum(self.units, 1)
        times = np.where(self.units > 0, -(-missing // served), 0)
        counts: list[int] = (times.max(axis=1) + 1).tolist()
        return counts

    def reluctant(self, reluctance: int) -> list[int]:
        """The kinds of this reluctance."""
        kinds: list[int] = np.flatnonzero(self.reluctance == reluctance).tolist()
        return kinds


def kinds_of(like: Likeness) -> Kinds:
    """The kinds of machines that these needs can use."""
    usable = np.flatnonzero(like.usable)
    keys = (*like.units[usable].T, like.costs[usable], like.reluctance[usable])
    order = np.lexsort(keys)
    begins = np.zeros(len(usable), np.bool_)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[order[1:]] != key[order[:-1]]
    of_flavour = np.full(len(like.usable), NONE, np.int32)
    of_flavour[usable[order]] = np.cumsum(begins) - 1
    first = usable[order[begins]]
    return Kinds(of_flavour, like.units[first], like.costs[first], like.reluctance[first])


class Shelves:
    """The free machines of one state, each kind's in the order in which they are to be taken."""

    def __init__(self, rows: Rows, kinds: Ints, count: int, claimed_by: Ints) -> None:
        """`kinds` are those of `rows`, out of `count`; `claimed_by` is looked at ever again."""
        order = np.argsort(kinds.astype(np.uint16), kind="stable")
        ends = np.bincount(kinds, minlength=count).cumsum()[:-1]
        self._shelves = np.split(rows[order], ends)
        self._claimed_by = claimed_by

    def front(self, kind: int, many: int) -> Rows:
        """The first `many` machines of a kind that nobody has claimed, or all that there are."""
        front = self._shelves[kind][: many + _SLACK]
        free = front[self._unclaimed(front)]
        if len(free) < many:
            shelf = self._shelves[kind]
            free = self._shelves[kind] = shelf[self._unclaimed(shelf)]
        return free[:many]

    def _unclaimed(self, rows: Rows) -> Flags:
        unclaimed: Flags = self._claimed_by[rows] == NONE
        return unclaimed
