"""Who holds which machine: the claims of one decision, and what is left to claim, in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import NONE, Flags, Fleet, Ints, Longs
from bigfleet.model.machine import MachineState

Rows = NDArray[np.intp]

ACQUIRABLE = (MachineState.IDLE, MachineState.SPECULATIVE)  # in this order


class Supply:
    """Claims are whole machines, each for one need."""

    def __init__(self, fleet: Fleet, columns: FlavourColumns) -> None:
        self._fleet = fleet
        self._price = columns.price
        self._flavours = len(columns)
        self.claimed_by: Ints = np.full(len(fleet), NONE, np.int32)
        self._index_bound()
        self._index_creating()
        self._free = {state: self._free_rows(state) for state in ACQUIRABLE}
        self._free_count = sum(self.by_flavour(rows) for rows in self._free.values())

    def creditable(self, need: int, cluster: int, usable: Flags) -> Rows:
        """Unclaimed machines that already count for `need`, in keep order.

        First those that are this very need's, because a need that lives on its neighbours'
        machines makes them buy, and be bought from, for ever. Then its cluster's CONFIGURED, then
        CONFIGURING, then machines being CREATED for it; in each, price ascending, then the higher
        reclamation penalty, then tie_break.
        """
        bound = self._slice(self._bound, self._bound_cluster, cluster)
        creating = self._slice(self._creating, self._creating_need, need)
        rows = self._unclaimed(np.concatenate((bound, creating)), usable)
        own = self._fleet.wanted_by[rows] == need
        return np.concatenate((rows[own], rows[~own]))

    def acquirable(self, state: MachineState, usable: Flags) -> Rows:
        """Unclaimed machines in `state`, the higher reclamation penalty first, then tie_break."""
        return self._unclaimed(self._free[state], usable)

    def claim(self, rows: Rows, need: int) -> None:
        """Make `need` the holder of `rows`."""
        self.claimed_by[rows] = need
        for state, free in self._free.items():
            taken = rows[self._fleet.state[rows] == state]
            if len(taken):
                self._free[state] = free[self.claimed_by[free] == NONE]
                self._free_count = self._free_count - self.by_flavour(taken)

    def acquirable_by_flavour(self, usable: Flags) -> Longs:
        """How many unclaimed machines of each usable flavour may be acquired."""
        return np.where(usable, self._free_count, 0)

    def by_flavour(self, rows: Rows) -> Longs:
        """How many of `rows` are of each flavour."""
        return np.bincount(self._fleet.flavour[rows], minlength=self._flavours)

    def _unclaimed(self, rows: Rows, usable: Flags) -> Rows:
        free: Rows = rows[(self.claimed_by[rows] == NONE) & usable[self._fleet.flavour[rows]]]
        return free

    def _index_bound(self) -> None:
        fleet = self._fleet
        configured = fleet.state == MachineState.CONFIGURED
        rows = np.flatnonzero(configured | (fleet.state == MachineState.CONFIGURING))
        keys = (*self._worth(rows), ~configured[rows], fleet.cluster[rows])
        self._bound = rows[np.lexsort(keys)]
        self._bound_cluster = fleet.cluster[self._bound]

    def _index_creating(self) -> None:
        fleet = self._fleet
        wanted = (fleet.state == MachineState.CREATING) & (fleet.wanted_by != NONE)
        rows = np.flatnonzero(wanted)
        self._creating = rows[np.lexsort((*self._worth(rows), fleet.wanted_by[rows]))]
        self._creating_need = fleet.wanted_by[self._creating]

    def _worth(self, rows: Rows) -> tuple[Longs, Longs, NDArray[np.float64]]:
        """Keys for lexsort, the last one leading: price up, reclamation penalty down, tie_break."""
        fleet = self._fleet
        penalty = -fleet.reclamation_bucket[rows].astype(np.int64)
        return fleet.tie_break[rows], penalty, self._price[fleet.flavour[rows]]

    def _free_rows(self, state: MachineState) -> Rows:
        rows = np.flatnonzero(self._fleet.state == state)
        tie_break, penalty, _ = self._worth(rows)
        return rows[np.lexsort((tie_break, penalty))]

    @staticmethod
    def _slice(rows: Rows, keys: Ints, key: int) -> Rows:
        start, stop = np.searchsorted(keys, (key, key + 1))
        return rows[start:stop]
