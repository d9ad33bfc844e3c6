"""Who holds which machine: the claims of one decision, and what is left to claim, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.shelves import Kinds, Shelves, kinds_of
from bigfleet.engine.snapshot import NONE, Flags, Fleet, Ints, Longs, Rows
from bigfleet.engine.wishes import Likeness, Wish
from bigfleet.model.machine import MachineState

ACQUIRABLE = (MachineState.IDLE, MachineState.SPECULATIVE)  # in this order
_MOST_KINDS = 64  # more are not looked at one by one


class Owned(NamedTuple):
    """Machines, each with the need that had it before; the needs ascend."""

    rows: Rows
    needs: Rows


class Supply:
    """Claims are whole machines, each for one need."""

    def __init__(
        self,
        fleet: Fleet,
        columns: FlavourColumns,
        kept_for: Ints,
        priorities: Longs,
        cluster_of_need: Ints,
    ) -> None:
        """`kept_for` is for each row the need that it is kept or drained for, or NONE;
        `priorities` and `cluster_of_need` are those of the needs.
        """
        self._fleet, self._cluster_of_need = fleet, cluster_of_need
        self._price = columns.price
        self._flavours = len(columns)
        self.kept_for, self._priorities = kept_for, priorities
        self.claimed_by: Ints = np.full(len(fleet), NONE, np.int32)
        self._index_bound()
        self._index_coming()
        self._all_free = {state: self._free_rows(state) for state in ACQUIRABLE}
        free = np.concatenate([*self._all_free.values()])
        self._kept: Rows = free[kept_for[free] != NONE]
        self._place = np.empty(len(fleet), np.intp)
        self._place[free] = np.arange(len(free))
        self._kinds: dict[Likeness, Kinds] = {}
        self._look_again()

    def creditable(self, wish: Wish, usable: Flags) -> Rows:
        """Unclaimed machines that already count for the need, in keep order.

        First those that are this very need's, because a need that lives on its neighbours'
        machines makes them buy, and be bought from, for ever. Then its cluster's CONFIGURED, then
        CONFIGURING, then machines being CREATED for it, then machines that drain for it; in each,
        price ascending, then the higher reclamation penalty, then tie_break.
        """
        bound = self._bound.of(wish.cluster)
        coming = self._coming.of(wish.index)
        rows = self._unclaimed(np.concatenate((bound, coming)), usable)
        own = self._fleet.wanted_by[rows] == wish.index
        return np.concatenate((rows[own], rows[~own]))

    def own(self) -> Owned:
        """All that is the very need's whose it was before, by need; each need's in the order of
        `creditable`.
        """
        bound, coming, wanted_by = self._bound.rows, self._coming.rows, self._fleet.wanted_by
        wanted = bound[wanted_by[bound] != NONE]
        at_home = self._cluster_of_need[wanted_by[wanted]] == self._fleet.cluster[wanted]
        rows = np.concatenate((wanted[at_home], coming))
        rows = rows[np.argsort(wanted_by[rows], kind="stable")]
        return Owned(rows, wanted_by[rows].astype(np.intp))

    def kinds(self, wish: Wish) -> Kinds | None:
        """The kinds of machines that `front` sees for the need; None where it cannot be used,
        because there are many kinds, or machines are kept for somebody.
        """
        if len(self._kept):
            return None
        if wish.like not in self._kinds:
            self._kinds[wish.like] = kinds_of(wish.like)
        kinds = self._kinds[wish.like]
        return kinds if len(kinds.costs) <= _MOST_KINDS else None

    def front(self, state: MachineState, wish: Wish, many: Mapping[int, int]) -> Rows:
        """Of each of those kinds the first so `many` of `acquirable`, in its order."""
        shelves = self._shelves.get((state, wish.like))
        if shelves is None:
            kinds, free = self._kinds[wish.like], self._unclaimed(self._free[state], wish.usable)
            of_rows = kinds.of_flavour[self._fleet.flavour[free]]
            shelves = Shelves(free, of_rows, len(kinds.costs), self.claimed_by)
            self._shelves[state, wish.like] = shelves
        rows = np.concatenate([shelves.front(kind, count) for kind, count in many.items()])
        in_order: Rows = rows[np.argsort(self._place[rows])]
        return in_order

    def acquirable(self, state: MachineState, wish: Wish, usable: Flags) -> Rows:
        """Unclaimed machines in `state` that the need may have, the higher reclamation penalty
        first, then tie_break.
        """
        free = self._free[state]
        free = self._free[state] = free[self.claimed_by[free] == NONE]
        rows: Rows = free[usable[self._fleet.flavour[free]]]
        return rows[self.may_have(wish, rows)] if len(self._kept) else rows

    def acquirable_by_flavour(self, wish: Wish, usable: Flags) -> Longs:
        """How many unclaimed machines of each usable flavour the need may acquire."""
        count: Longs = np.where(usable, self._free_count, 0)
        if len(self._kept):
            kept = self._unclaimed(self._kept, usable)
            count = count - self.by_flavour(kept[~self.may_have(wish, kept)])
        return count

    def may_have(self, wish: Wish, rows: Rows) -> Flags:
        """Which of `rows` are not kept for another need of at least the same priority."""
        keeper = self.kept_for[rows]
        lower = self._priorities[keeper] < wish.need.profile.priority
        allowed: Flags = (keeper == NONE) | (keeper == wish.index) | lower
        return allowed

    def is_coming(self, wish: Wish) -> bool:
        """Whether a machine that the need could use is on its way to its cluster, for anyone."""
        fleet = self._fleet
        rows = np.flatnonzero(wish.usable[fleet.flavour])
        state, holder, here = fleet.state[rows], self.claimed_by[rows], fleet.cluster[rows]
        promised = (holder != NONE) & (self._cluster_of_need[holder] == wish.cluster)
        serves = (state == MachineState.CONFIGURED) & (here == wish.cluster)
        joining = (state == MachineState.CONFIGURING) & (here == wish.cluster)
        return bool((joining | (promised & ~serves)).any())

    def claim(self, rows: Rows, need: int) -> None:
        """Make `need` the holder of `rows`."""
        if not len(rows):
            return
        self.claimed_by[rows] = need
        state = self._fleet.state[rows]
        taken = rows[(state == MachineState.IDLE) | (state == MachineState.SPECULATIVE)]
        np.subtract.at(self._free_count, self._fleet.flavour[taken], 1)

    def disclaim(self, need: int) -> None:
        """Take back all that `need` holds."""
        self.claimed_by[self.claimed_by == need] = NONE
        self._look_again()

    def stop_keeping(self) -> bool:
        """From now on nothing is kept for anybody; returns whether that sets anything free."""
        set_free = bool((self.claimed_by[self._kept] == NONE).any())
        self._kept = self._kept[:0]
        return set_free

    def held(self, need: int) -> Rows:
        """What `need` holds."""
        return np.flatnonzero(self.claimed_by == need)

    def by_flavour(self, rows: Rows) -> Longs:
        """How many of `rows` are of each flavour."""
        return np.bincount(self._fleet.flavour[rows], minlength=self._flavours)

    def _look_again(self) -> None:
        self._free = {s: rows[self.claimed_by[rows] == NONE] for s, rows in self._all_free.items()}
        self._free_count = self.by_flavour(np.concatenate([*self._free.values()]))
        self._shelves: dict[tuple[MachineState, Likeness], Shelves] = {}

    def _unclaimed(self, rows: Rows, usable: Flags) -> Rows:
        free: Rows = rows[(self.claimed_by[rows] == NONE) & usable[self._fleet.flavour[rows]]]
        return free

    def _index_bound(self) -> None:
        fleet = self._fleet
        configured = fleet.state == MachineState.CONFIGURED
        rows = np.flatnonzero(configured | (fleet.state == MachineState.CONFIGURING))
        keys = (*self._worth(rows), ~configured[rows], fleet.cluster[rows])
        bound = rows[np.lexsort(keys)]
        self._bound = _Sections(bound, fleet.cluster[bound], len(fleet.clusters))

    def _index_coming(self) -> None:
        """Machines on their way to one need; the others cannot have them."""
        fleet = self._fleet
        draining = (fleet.state == MachineState.DRAINING) & (self.kept_for != NONE)
        creating = (fleet.state == MachineState.CREATING) & (fleet.wanted_by != NONE)
        rows = np.flatnonzero(draining | creating)
        keys = (*self._worth(rows), draining[rows], fleet.wanted_by[rows])
        coming = rows[np.lexsort(keys)]
        needs = len(self._cluster_of_need)
        self._coming = _Sections(coming, fleet.wanted_by[coming], needs)

    def _worth(self, rows: Rows) -> tuple[Longs, Longs, NDArray[np.float64]]:
        """Keys for lexsort, the last one leading: price up, reclamation penalty down, tie_break."""
        fleet = self._fleet
        penalty = -fleet.reclamation_bucket[rows].astype(np.int64)
        return fleet.tie_break[rows], penalty, self._price[fleet.flavour[rows]]

    def _free_rows(self, state: MachineState) -> Rows:
        rows = np.flatnonzero(self._fleet.state == state)
        tie_break, penalty, _ = self._worth(rows)
        return rows[np.lexsort((tie_break, penalty))]


class _Sections:
    """Rows ordered by a number below `stop` that each has, and where each number's begin."""

    def __init__(self, rows: Rows, numbers: Ints, stop: int) -> None:
        self.rows = rows
        self._starts: list[int] = np.searchsorted(numbers, np.arange(stop + 1)).tolist()

    def of(self, number: int) -> Rows:
        """The rows that have `number`."""
        return self.rows[self._starts[number] : self._starts[number + 1]]
