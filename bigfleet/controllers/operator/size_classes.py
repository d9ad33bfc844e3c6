"""A need's distinct pod sizes as a bounded number of classes. Pure.

A class is the maximum of its members in each resource, so that whatever fits it fits each of them.
The classes come from `merging`.

Classes are stable. Merges are kept: new sizes go into the class that covers them at the least cost,
or become a class of their own within the limit; removed sizes leave their class unchanged. Classes
are rebuilt only at the limit, or when they cost half as much again as when they were built. A
changed limit undoes or adds only as many merges, so that other sizes stay in their classes.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bigfleet.controllers.operator.merging import (
    Amounts,
    Merge,
    elementwise_max,
    matrix,
    merges_of,
    quantize,
    weights_of,
)

# Class to its members.
Classes = Mapping[Amounts, Sequence[Amounts]]
K = TypeVar("K", bound=Hashable)

MAX_CLASSES = 64
MIN_CLASSES = 8
# One of 16 classes is reserved for new sizes.
_SPARE_DIVISOR = 16
# The growth of the cost that is tolerated, and the share of a need's total that always is.
_GROWTH, _GROWTH_SHARE = 1.5, 0.01
# The factor by which the number of sizes may change before the merges are rebuilt.
_STALE = 1.25


class Step(NamedTuple):
    """One merge: how many classes are left, and its cost as a share of the need's total."""

    classes: int
    cost: float


class SizeClasses:
    """The classes of one need, kept stable as its sizes change."""

    def __init__(self) -> None:
        self._sizes: Sequence[Amounts] = ()
        self._pods: Sequence[int] = ()
        self._merges: Sequence[Merge] = ()
        self._class_size_cache: dict[int, Sequence[Amounts]] = {}
        self._baseline_excess = 0.0

    def of(self, pods: Mapping[Amounts, int], most: int) -> Classes:
        """Classes for these sizes, which map to their numbers of pods; at most `most`, which is at
        least MIN_CLASSES. One for each size if these are no more.
        """
        if len(pods) <= most:
            return {size: [size] for size in sorted(pods)}
        level = most - max(1, most // _SPARE_DIVISOR)
        if self._sizes:
            found, share = self._assign(pods, level)
            tolerated = (self._cost(level) + self._baseline_excess) * _GROWTH + _GROWTH_SHARE
            if len(found) <= most and share <= tolerated:
                return found
        self._rebuild(pods)
        found, share = self._assign(pods, level)
        self._baseline_excess = share - self._cost(level)
        return found

    def steps(self, pods: Mapping[Amounts, int]) -> Iterator[Step]:
        """The costs of ever fewer classes, down to MIN_CLASSES or a merge of last resort."""
        known, there = len(self._sizes), len(pods)
        if max(known, there) > _STALE * min(known, there):
            self._rebuild(pods)
        for number, merge in enumerate(self._first(MIN_CLASSES), start=1):
            if merge.last_resort:
                return
            if (left := len(self._sizes) - number) < MAX_CLASSES:
                yield Step(left, merge.cost)

    def _rebuild(self, pods: Mapping[Amounts, int]) -> None:
        """Rebuild the merges for these sizes."""
        cells = quantize(sorted(pods))
        self._sizes = sorted(cells)
        self._pods = [sum(pods[size] for size in cells[class_size]) for class_size in self._sizes]
        self._merges = ()
        self._class_size_cache.clear()

    def _first(self, level: int) -> Sequence[Merge]:
        """The merges that leave this many classes, computed only as far as needed."""
        wanted = max(0, len(self._sizes) - level)
        if len(self._merges) < wanted:
            self._merges = merges_of(self._sizes, self._pods, level)
        return self._merges[:wanted]

    def _cost(self, level: int) -> float:
        """The cost of this many classes when they were built, as a share of the total."""
        return sum(merge.cost for merge in self._first(level))

    def _assign(self, pods: Mapping[Amounts, int], level: int) -> tuple[Classes, float]:
        """Assign each size to the class that covers it at the least cost, or to its own if none
        does; and the total cost.
        """
        sizes, class_sizes = sorted(pods), self._class_sizes(level)
        names = sorted({name for each in (*sizes, *class_sizes) for name, _ in each})
        wanted, offered = matrix(sizes, names), matrix(class_sizes, names)
        counts = np.array([pods[size] for size in sizes], float)
        weights = weights_of(wanted, counts)
        extra = (offered @ weights)[None, :] - (wanted @ weights)[:, None]
        extra[(wanted[:, None, :] > offered[None, :, :]).any(axis=2)] = np.inf
        best = extra.argmin(axis=1)
        costs = extra[np.arange(len(sizes)), best]
        found: dict[Amounts, list[Amounts]] = {}
        for size, at, cost in zip(sizes, best.tolist(), costs.tolist(), strict=True):
            found.setdefault(class_sizes[at] if np.isfinite(cost) else size, []).append(size)
        covered = np.isfinite(costs)
        return found, float(costs[covered] @ counts[covered])

    def _class_sizes(self, level: int) -> Sequence[Amounts]:
        """The sizes of this many classes, sorted."""
        if level not in self._class_size_cache:
            clusters = dict(enumerate(self._sizes))
            for merge in self._first(level):
                clusters[merge.kept] = elementwise_max(
                    [clusters[merge.kept], clusters.pop(merge.joined)]
                )
            self._class_size_cache[level] = sorted(set(clusters.values()))
        return self._class_size_cache[level]


class MergeCandidate(NamedTuple):
    """A need's number of classes, the bytes of each, its share of the cluster's demand, and the
    costs of fewer classes.
    """

    classes: int
    bytes_each: float
    weight: float
    steps: Iterator[Step]


def allocate_classes(needs: Mapping[K, MergeCandidate], max_bytes: float) -> dict[K, int]:
    """The number of classes for each need, so that all take at most `max_bytes`, if possible.

    Greedy: each step drops the class that adds least to the cluster's demand.
    """
    allowed = {key: need.classes for key, need in needs.items()}
    taken = sum(need.classes * need.bytes_each for need in needs.values())
    order = {key: place for place, key in enumerate(needs)}
    heap: list[tuple[float, int, int, K]] = []

    def push(key: K) -> None:
        if (step := next(needs[key].steps, None)) is not None:
            heapq.heappush(heap, (step.cost * needs[key].weight, order[key], step.classes, key))

    for key in needs:
        push(key)
    while taken > max_bytes and heap:
        _, _, classes, key = heapq.heappop(heap)
        if classes < allowed[key]:
            taken -= (allowed[key] - classes) * needs[key].bytes_each
            allowed[key] = classes
        push(key)
    return allowed
