"""Merges pod sizes when there are too many of them. Pure and deterministic.

Agglomerative clustering: each step merges the two sizes whose joint size costs least beyond what
their pods request. All resources weigh the same, by their share of the need's total. A joint size
far larger than either, with one's CPU and the other's memory, may be larger than any machine; such
pairs are merged last, as are those that request different resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Resource names and amounts, sorted by name, none of them zero.
Amounts = tuple[tuple[str, int], ...]

_Floats = NDArray[np.float64]

# Merging takes quadratic time in the number of sizes; 500 take some 15 ms.
_MAX_SIZES_TO_MERGE = 512
# More than half as large again counts as far larger.
_FAR_RATIO = 1.5
# Added to the cost of pairs that are merged last; more than any merge costs.
_LAST_RESORT = 1e9
_BINARY_DIGITS = 8


class Merge(NamedTuple):
    """Two clusters that are merged, each identified by the index of one of its sizes.

    `cost` is what the joint size adds, as a share of the need's total.
    """

    kept: int
    joined: int
    cost: float
    last_resort: bool


def merges_of(sizes: Sequence[Amounts], pods: Sequence[int], left: int) -> list[Merge]:
    """The merges in order, until `left` clusters are left."""
    if len(sizes) <= left:
        return []
    clusters = _Clusters(sizes, pods)
    return [clusters.merge() for _ in range(len(sizes) - left)]


def elementwise_max(sizes: Iterable[Amounts]) -> Amounts:
    """The maximum of each resource."""
    found: dict[str, int] = {}
    for size in sizes:
        for name, amount in size:
            found[name] = max(found.get(name, 0), amount)
    return tuple(sorted(found.items()))


def quantize(sizes: Sequence[Amounts]) -> Mapping[Amounts, Sequence[Amounts]]:
    """Few enough sizes for merging, each with those it stands for: too many are rounded to ever
    fewer leading binary digits.
    """
    found: dict[Amounts, Sequence[Amounts]] = {size: [size] for size in sizes}
    for digits in range(_BINARY_DIGITS, 0, -1):
        if len(found) <= _MAX_SIZES_TO_MERGE:
            break
        cells: dict[Amounts, list[Amounts]] = {}
        for size in sizes:
            cells.setdefault(tuple((n, _leading(a, digits)) for n, a in size), []).append(size)
        found = {elementwise_max(members): members for members in cells.values()}
    return found


def _leading(amount: int, digits: int) -> int:
    """The amount rounded down to so many leading binary digits."""
    shift = max(0, amount.bit_length() - digits)
    return amount >> shift << shift


def matrix(sizes: Sequence[Amounts], names: Sequence[str]) -> _Floats:
    """A row for each size, a column for each resource."""
    rows = [dict(size) for size in sizes]
    return np.array([[row.get(name, 0) for name in names] for row in rows], float)


def weights_of(amounts: _Floats, pods: _Floats) -> _Floats:
    """The weight of a unit of each resource, so that the totals of all resources weigh the same."""
    weights: _Floats = 1.0 / np.maximum(pods @ amounts, 1.0) / amounts.shape[1]
    return weights


class _Clusters:
    """Clusters of sizes, and the cost of merging each pair.

    Rows of `_costs` keep their index; those of merged-away clusters are infinity. `_nearest` is for
    each cluster the cheapest one to merge with, `_nearest_cost` that cost.
    """

    def __init__(self, sizes: Sequence[Amounts], pods: Sequence[int]) -> None:
        names = sorted({name for size in sizes for name, _ in size})
        amounts = matrix(sizes, names)
        self._pods = np.array(pods, float)
        weighed = amounts * weights_of(amounts, self._pods)
        self._resource_masks = (amounts > 0) @ (1 << np.arange(len(names)))
        # A resource that is equal in all sizes adds no cost.
        self._columns = [column.copy() for column in weighed.T if np.ptp(column)]
        self._constant_cost = float(weighed[0].sum() - sum(column[0] for column in self._columns))
        self._demand_cost = self._pods * weighed.sum(axis=1)
        # Infinity for clusters that were merged away.
        self._merged_away = np.zeros(len(sizes))
        self._costs = self._all_costs()
        self._nearest = self._costs.argmin(axis=1)
        self._nearest_cost = self._costs[np.arange(len(sizes)), self._nearest]

    def _all_costs(self) -> _Floats:
        count = len(self._pods)
        costs = np.full((count, count), self._constant_cost)
        larger = np.zeros((count, count), bool)
        for column in self._columns:
            costs += np.maximum.outer(column, column)
            larger |= np.greater.outer(column, _FAR_RATIO * column)
        costs *= np.add.outer(self._pods, self._pods)
        costs -= self._demand_cost
        costs -= self._demand_cost[:, None]
        costs[(larger & larger.T) | (self._resource_masks != self._resource_masks[:, None])] += (
            _LAST_RESORT
        )
        np.fill_diagonal(costs, np.inf)
        return costs

    def merge(self) -> Merge:
        """Merge the cheapest pair."""
        kept = int(self._nearest_cost.argmin())
        joined = int(self._nearest[kept])
        cost = float(self._nearest_cost[kept])
        last_resort = cost >= _LAST_RESORT
        self._merged_away[joined] = np.inf
        self._nearest_cost[joined] = np.inf
        self._costs[joined] = self._costs[:, joined] = np.inf
        self._pods[kept] += self._pods[joined]
        row = self._merge_into(kept, joined)
        self._costs[kept] = self._costs[:, kept] = row
        self._update_nearest(kept, joined, row)
        return Merge(kept, joined, cost - _LAST_RESORT if last_resort else cost, last_resort)

    def _merge_into(self, kept: int, joined: int) -> _Floats:
        """Make `kept` as large as both; return its costs with all others."""
        row = np.full(len(self._pods), self._constant_cost)
        total = self._constant_cost
        larger, smaller = np.zeros(len(row), bool), np.zeros(len(row), bool)
        for column in self._columns:
            size = column[kept] = max(column[kept], column[joined])
            total += size
            row += np.maximum(column, size)
            larger |= column > _FAR_RATIO * size
            smaller |= column < size / _FAR_RATIO
        self._demand_cost[kept] = self._pods[kept] * total
        self._resource_masks[kept] |= self._resource_masks[joined]
        row *= self._pods + self._pods[kept]
        row -= self._demand_cost
        row -= self._demand_cost[kept]
        row[(larger & smaller) | (self._resource_masks != self._resource_masks[kept])] += (
            _LAST_RESORT
        )
        row += self._merged_away
        row[kept] = np.inf
        return row

    def _update_nearest(self, kept: int, joined: int, row: _Floats) -> None:
        """Update the nearest clusters after `joined` was merged into `kept`."""
        orphans = ((self._nearest == kept) | (self._nearest == joined)).nonzero()[0]
        nearer = (row < self._nearest_cost).nonzero()[0]
        self._nearest_cost[nearer], self._nearest[nearer] = row[nearer], kept
        for each in (*orphans.tolist(), kept):
            if not self._merged_away[each]:
                self._nearest[each] = nearest = self._costs[each].argmin()
                self._nearest_cost[each] = self._costs[each, nearest]
