"""Machine ids in one byte arena, found by binary search: no Python object per machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs
from bigfleet.model.machine import is_valid_id

_Texts = NDArray[np.bytes_]


class MachineIds:
    """Row number of each machine id; rows are numbered from 0 in order of insertion."""

    def __init__(self) -> None:
        #: the ids by row, as wide as the longest, and room for more
        self._arena: _Texts = np.empty(0, "S1")
        #: all rows in ascending order of their ids; intp, which numpy searches without a copy
        self._order: NDArray[np.intp] = np.empty(0, np.intp)
        self._ranks: Longs | None = None

    def __len__(self) -> int:
        return len(self._order)

    @property
    def ranks(self) -> Longs:
        """For each row, the rank of its id among all ids in ascending order."""
        if self._ranks is None:
            self._ranks = np.empty(len(self), np.int64)
            self._ranks[self._order] = np.arange(len(self))
        return self._ranks

    def raw_of(self, rows: Ints | slice) -> Sequence[bytes]:
        """The ids in `rows`; rows that come or go later do not change them."""
        return self._ids[rows]  # type: ignore[return-value]  # an array is a sequence of its entries

    def id(self, row: int) -> str:
        """The id in `row`."""
        return bytes(self._ids[row]).decode()

    def rows(self, ids: Sequence[str]) -> Ints:
        """The row of each id, NONE for an unknown one."""
        wanted = _texts(ids)
        found = np.full(len(wanted), NONE, np.int32)
        if not len(self) or not len(wanted):
            return found
        known, cut = self._ids, wanted.astype(self._arena.dtype)
        rows = self._order[np.minimum(self._places(cut), len(known) - 1)]
        # An id that is wider than all known ones may begin like one of them.
        equal = (known[rows] == cut) & (cut == wanted)
        found[equal] = rows[equal]
        return found

    def row(self, machine_id: str) -> int:
        """The row of one id, NONE when unknown."""
        wanted = machine_id.encode()
        if not is_valid_id(machine_id) or len(wanted) > self._arena.itemsize:
            return NONE
        place = int(self._places(np.array(wanted, self._arena.dtype)))
        if place == len(self) or self._arena[row := int(self._order[place])] != wanted:
            return NONE
        return row

    def add(self, ids: Sequence[str]) -> None:
        """Append ids that are not known yet, each `is_valid_id`."""
        self.add_encoded(_texts(ids))

    def add_encoded(self, added: _Texts) -> None:
        """Append ids that are not known yet, as `raw_of` returned them."""
        before = len(self)
        after = before + len(added)
        width = max(added.itemsize, self._arena.itemsize)
        if after > len(self._arena) or width > self._arena.itemsize:
            # A new arena: others may still look at the former one.
            room = max(after, before + before // 8)
            arena = np.empty(room, f"S{width}")
            arena[:before] = self._ids
            self._arena = arena
        added = added.astype(self._arena.dtype)
        # Merged, not sorted anew: a listing adds a large fleet in hundreds of pages.
        order = np.argsort(added, kind="stable")
        places = self._places(added[order])
        self._arena[before:after] = added
        self._order = np.insert(self._order, places, order + before)
        self._ranks = None

    def keep(self, rows: Flags) -> None:
        """Drop the rows that are False; those after them move up."""
        renumbered = np.cumsum(rows) - 1
        self._arena = self._ids[rows]
        self._order = renumbered[self._order[rows[self._order]]]
        self._ranks = None

    @property
    def _ids(self) -> _Texts:
        return self._arena[: len(self)]

    def _places(self, wanted: _Texts) -> NDArray[np.intp]:
        """How many ids are less than each of `wanted`, which are as wide as the arena."""
        places: NDArray[np.intp] = np.asarray(self._ids.searchsorted(wanted, sorter=self._order))
        return places


def _texts(ids: Sequence[str]) -> _Texts:
    return np.array([each.encode() for each in ids], np.bytes_)
