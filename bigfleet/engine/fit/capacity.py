"""Allocatable of each flavour for a cluster's pods, less its DaemonSets' overhead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.snapshot import Demand, Ints, Longs
from bigfleet.model.need import NodeOverhead


class Shapes(NamedTuple):
    """The S distinct rows of a capacity matrix."""

    #: [S, R] int64
    rows: Longs
    #: [F] int32, row of each flavour
    of_flavour: Ints


class Capacities:
    """Capacity matrices of clusters; those with equal DaemonSets share one."""

    def __init__(self, columns: FlavourColumns, matcher: Matcher, demand: Demand) -> None:
        self._columns, self._matcher = columns, matcher
        self._matrices: list[Longs] = [columns.allocatable]
        self._numbers: dict[int, int] = {}
        self._shapes: dict[int, Shapes] = {}
        known: dict[str, int] = {}
        for cluster, overheads in demand.overheads.items():
            key = repr(overheads)
            if key not in known:
                known[key] = len(self._matrices)
                self._matrices.append(self._less(overheads))
            self._numbers[cluster] = known[key]

    def number(self, cluster: int) -> int:
        """The number of a cluster's matrix."""
        return self._numbers.get(cluster, 0)

    def matrix(self, number: int) -> Longs:
        """Allocatable of each flavour for pods [F, R]; never negative."""
        return self._matrices[number]

    def shapes(self, number: int) -> Shapes:
        """The distinct rows of a matrix."""
        if number not in self._shapes:
            matrix = self._matrices[number]
            rows, of_flavour = np.unique(matrix, axis=0, return_inverse=True)
            self._shapes[number] = Shapes(rows, of_flavour.reshape(-1).astype(np.int32))
        return self._shapes[number]

    def of(self, cluster: int) -> Longs:
        """The matrix of a cluster."""
        return self._matrices[self.number(cluster)]

    def _less(self, overheads: Sequence[NodeOverhead]) -> Longs:
        left = self._columns.allocatable.copy()
        for overhead in overheads:
            matching = self._matcher.meeting(overhead.requirements, overhead.alternatives)
            # Allocatable of a limited flavour is what its pods request, DaemonSets left out.
            matching &= self._matcher.tolerating(overhead.tolerations) & ~self._columns.limited
            for name, amount in overhead.amounts:
                if name in self._columns.column_of:
                    left[matching, self._columns.column_of[name]] -= amount
        return np.maximum(left, 0)
