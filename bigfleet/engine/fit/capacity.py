"""Allocatable of each flavour for a cluster's pods, less its DaemonSets' overhead."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.snapshot import NONE, Demand, Ints, Longs
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
        self.columns, self.matcher = columns, matcher
        self._matrices: list[Longs] = [columns.allocatable]
        self._numbers: dict[int, int] = {}
        self._shapes: dict[int, Shapes] = {}
        known: dict[tuple[NodeOverhead, ...], int] = {}
        #: the overheads of each matrix
        self._keys: list[tuple[NodeOverhead, ...]] = [()]
        for cluster, overheads in demand.overheads.items():
            key = tuple(overheads)
            if key not in known:
                known[key] = len(self._matrices)
                self._keys.append(key)
                self._matrices.append(columns.remember(("capacity", key), partial(self._less, key)))
            self._numbers[cluster] = known[key]

    def numbers(self, clusters: Ints) -> Ints:
        """The number of the matrix of each of `clusters`."""
        numbers = np.zeros(max([*self._numbers, int(clusters.max(initial=0))]) + 1, np.int32)
        numbers[[*self._numbers]] = [*self._numbers.values()]
        return numbers[clusters]

    def number(self, cluster: int) -> int:
        """The number of a cluster's matrix."""
        return self._numbers.get(cluster, 0)

    def key(self, number: int) -> Hashable:
        """What a matrix depends on."""
        return self._keys[number]

    def matrix(self, number: int) -> Longs:
        """Allocatable of each flavour for pods [F, R]; never negative."""
        return self._matrices[number]

    def shapes(self, number: int) -> Shapes:
        """The distinct rows of a matrix."""
        if number not in self._shapes:
            matrix, key = self._matrices[number], self._keys[number]

            def compute() -> Ints:
                _, of_flavour = np.unique(matrix, axis=0, return_inverse=True)
                return of_flavour.reshape(-1).astype(np.int32)

            of_flavour = self.columns.remember(("shapes", key), compute)
            first = np.zeros(int(of_flavour.max(initial=NONE)) + 1, np.intp)
            first[of_flavour[::-1]] = np.arange(len(of_flavour))[::-1]
            self._shapes[number] = Shapes(matrix[first], of_flavour)
        return self._shapes[number]

    def of(self, cluster: int) -> Longs:
        """The matrix of a cluster."""
        return self._matrices[self.number(cluster)]

    def _less(self, overheads: Sequence[NodeOverhead]) -> Longs:
        left = self.columns.allocatable.copy()
        for overhead in overheads:
            matching = self.matcher.meeting(overhead.requirements, overhead.alternatives)
            # Allocatable of a limited flavour is what its pods request, DaemonSets left out.
            matching &= self.matcher.tolerating(overhead.tolerations) & ~self.columns.limited
            for name, amount in overhead.amounts:
                if name in self.columns.column_of:
                    left[matching, self.columns.column_of[name]] -= amount
        return np.maximum(left, 0)
