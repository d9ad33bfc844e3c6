"""A need's distinct pod sizes as a bounded number of classes. Pure.

A class is as large as the largest of its members in each resource, so whatever holds it holds each
of them. The classes of a need come from `merging`.

They are steady. The merges are kept, and sizes that come later go into the class that covers them
at the least cost, or become a class of their own while there is room; sizes that vanish leave their
class as it was. Only when there is no room left, or the classes cost half as much again as when
they were made, are sizes merged anew. And more or fewer classes of the same merges differ in as
many pairs, so that a bound that changes a little moves no other size.
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
# Of 16 classes, one is left for sizes that come later.
_SPARE_DIVISOR = 16
# The growth of cost that is borne, and how much of a need's total is in any case.
_GROWTH, _GROWTH_SHARE = 1.5, 0.01
# How far the number of sizes may change before the merges say nothing of it any more.
_STALE = 1.25


class Step(NamedTuple):
    """One class fewer: so many are left, and it costs this share of the need's total."""

    classes: int
    cost: float


class SizeClasses:
    """The classes of one need, as its sizes come and go."""

    def __init__(self) -> None:
        self._sizes: Sequence[Amounts] = ()
        self._pods: Sequence[int] = ()
        self._merges: Sequence[Merge] = ()
        self._class_size_cache: dict[int, Sequence[Amounts]] = {}
        self._baseline_excess = 0.0

    def of(self, pods: Mapping[Amounts, int], most: int) -> Classes:
        """Classes for these sizes, given with their numbers of pods; at most `most`, which is at
        least FEWEST_CLASSES. As many as there are sizes where those are no more.
        """
        if len(pods) <= most:
            return {size: [size] for size in sorted(pods)}
        level = most - max(1, most // _SPARE_DIVISOR)
        if self._sizes:
            found, share = self._assign(pods, level)
            bearable = (self._cost(level) + self._baseline_excess) * _GROWTH + _GROWTH_SHARE
            if len(found) <= most and share <= bearable:
                return found
        self._rebuild(pods)
        found, share = self._assign(pods, level)
        self._baseline_excess = share - self._cost(level)
        return found

    def steps(self, pods: Mapping[Amounts, int]) -> Iterator[Step]:
        """What fewer and fewer classes cost, down to the fewest, or to a merge of last resort."""
        known, there = len(self._sizes), len(pods)
        if max(known, there) > _STALE * min(known, there):
            self._rebuild(pods)
        for number, merge in enumerate(self._first(MIN_CLASSES), start=1):
            if merge.last_resort:
                return
            if (left := len(self._sizes) - number) < MAX_CLASSES:
                yield Step(left, merge.cost)

    def _rebuild(self, pods: Mapping[Amounts, int]) -> None:
        """Anew with these sizes."""
        cells = quantize(sorted(pods))
        self._sizes = sorted(cells)
        self._pods = [sum(pods[size] for size in cells[class_size]) for class_size in self._sizes]
        self._merges = ()
        self._class_size_cache.clear()

    def _first(self, level: int) -> Sequence[Merge]:
        """The merges that leave this many classes; no more are made than were ever asked for."""
        wanted = max(0, len(self._sizes) - level)
        if len(self._merges) < wanted:
            self._merges = merges_of(self._sizes, self._pods, level)
        return self._merges[:wanted]

    def _cost(self, level: int) -> float:
        """What this many classes cost when they were made, as a share of the total."""
        return sum(merge.cost for merge in self._first(level))

    def _assign(self, pods: Mapping[Amounts, int], level: int) -> tuple[Classes, float]:
        """Each size in the class that covers it at the least cost, and what that costs in all; a
        size that none covers by itself.
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
    """A need whose classes take room: how much each takes, what part of the cluster's demand it is,
    and what fewer would cost.
    """

    classes: int
    bytes_each: float
    weight: float
    steps: Iterator[Step]


def allocate_classes(needs: Mapping[K, MergeCandidate], max_bytes: float) -> dict[K, int]:
    """How many classes each need may have, so that all take at most `max_bytes`, if they can.

    One class is given up after the other, each time where that adds least to the cluster's demand.
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
