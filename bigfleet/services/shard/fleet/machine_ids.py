"""Machine ids in one byte arena, found by binary search: no Python object per machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs
from bigfleet.model.machine import MAX_ID_BYTES, is_valid_id


class MachineIds:
    """Row number of each machine id; rows are numbered from 0 in order of insertion."""

    def __init__(self) -> None:
        self._ids: NDArray[np.bytes_] = np.empty(0, f"S{MAX_ID_BYTES}")
        self._order: Ints = np.empty(0, np.int32)
        self._sorted: NDArray[np.bytes_] = self._ids
        self._ranks: Longs = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ranks(self) -> Longs:
        """For each row, the rank of its id among all ids in ascending order."""
        return self._ranks

    def raw_of(self, rows: Ints | slice) -> Sequence[bytes]:
        """The ids in `rows`; rows that come or go later do not change them."""
        return self._ids[rows]  # type: ignore[return-value]  # an array is a sequence of its entries

    def id(self, row: int) -> str:
        """The id in `row`."""
        return bytes(self._ids[row]).decode()

    def rows(self, ids: Sequence[str]) -> Ints:
        """The row of each id, NONE for an unknown one."""
        wanted = np.array([i.encode() for i in ids], self._ids.dtype)
        if not len(self._ids):
            return np.full(len(wanted), NONE, np.int32)
        places = self._sorted.searchsorted(wanted)
        rows = self._order[np.minimum(places, len(self._ids) - 1)]
        return np.where(self._ids[rows] == wanted, rows, NONE).astype(np.int32)

    def row(self, machine_id: str) -> int:
        """The row of one id, NONE when unknown."""
        if not is_valid_id(machine_id):
            return NONE
        wanted = machine_id.encode()
        place = int(self._sorted.searchsorted(wanted))
        found = place < len(self._sorted) and self._sorted[place] == wanted
        return int(self._order[place]) if found else NONE

    def add(self, ids: Sequence[str]) -> None:
        """Append ids that are not known yet, each `is_valid_id`."""
        added = np.array([i.encode() for i in ids], self._ids.dtype)
        self._replace(np.concatenate([self._ids, added]))

    def keep(self, rows: Flags) -> None:
        """Drop the rows that are False; those after them move up."""
        self._replace(self._ids[rows])

    def _replace(self, ids: NDArray[np.bytes_]) -> None:
        self._ids = ids
        self._order = np.argsort(ids, kind="stable").astype(np.int32)
        self._sorted = ids[self._order]
        self._ranks = np.empty(len(ids), np.int64)
        self._ranks[self._order] = np.arange(len(ids))
