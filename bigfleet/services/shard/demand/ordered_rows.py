"""The rows of all clusters in the order in which they are served, and as columns.

In a cycle in which none has come or gone, only those that have other sizes are read.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import numpy as np

from bigfleet.engine.need_columns import NeedColumns
from bigfleet.engine.snapshot import Ints
from bigfleet.model.need import Need
from bigfleet.services.shard.demand.rollup_rows import NeedRow


class NeedsInOrder(NamedTuple):
    """N needs in the order in which they are served."""

    needs: NeedColumns
    #: [N] int32, their clusters
    cluster: Ints
    #: [N] int32, the numbers of their keys
    number: Ints


class OrderedRows:
    """Rows by their `order`, which is set anew only before `rearrange`."""

    def __init__(self) -> None:
        self._ordered: list[NeedRow] = []
        #: the need of each row in order
        self._needs: list[Need] = []
        self._added: list[NeedRow] = []
        #: rows that have another need since
        self._altered: list[NeedRow] = []
        #: rows have come or gone since, or their order has changed
        self._is_rearranged = True
        self._columns = NeedsInOrder(NeedColumns(()), *(np.empty(0, np.int32) for _ in range(2)))

    def add(self, row: NeedRow) -> None:
        """A row is in force now."""
        self._added.append(row)
        self._is_rearranged = True

    def drop(self, row: NeedRow) -> None:
        """A row is no longer in force."""
        row.in_force = False
        self._is_rearranged = True

    def alter(self, row: NeedRow) -> None:
        """A row has another need of the same order."""
        self._altered.append(row)

    def rearrange(self) -> None:
        """Rows have another order, or other numbers."""
        self._ordered.sort(key=attrgetter("order"))
        self._is_rearranged = True

    def columns(self) -> NeedsInOrder:
        """The needs in force."""
        last, altered = self._columns.needs, self._altered
        if self._is_rearranged:
            self._arrange()
            needs = NeedColumns(self._needs, last)
            clusters = np.array([row.cluster_number for row in self._ordered], np.int32)
            numbers = np.array([row.number for row in self._ordered], np.int32)
            self._columns = NeedsInOrder(needs, clusters, numbers)
        elif altered:
            places = [row.place for row in altered]
            for row in altered:
                self._needs[row.place] = row.need
            needs = NeedColumns(self._needs, last, places)
            self._columns = self._columns._replace(needs=needs)
        self._is_rearranged, self._altered = False, []
        return self._columns

    def _arrange(self) -> None:
        """Sort; fast for a sorted list with few additions."""
        rows = [row for row in self._ordered if row.in_force]
        added = [row for row in self._added if row.in_force]
        self._ordered = sorted([*rows, *added], key=attrgetter("order")) if added else rows
        self._added = []
        for place, row in enumerate(self._ordered):
            row.place = place
        self._needs = [row.need for row in self._ordered]
