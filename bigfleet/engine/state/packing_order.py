"""The order in which needs are placed, and in which the pods of plain needs are packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bigfleet.engine.fit.pod_classes import NeedType, PodClasses
from bigfleet.engine.snapshot import Bytes, Flags, Ints, Longs


@dataclass(frozen=True)
class ClassesInOrder:
    """Classes of pods to place in each of Q clusters, which are in ascending order."""

    #: [Q] int64
    clusters: Longs
    #: [O] int64
    classes: Longs
    #: [Q + 1] int64, delimits each cluster's classes
    start: Longs

    def __iter__(self) -> Iterator[tuple[int, Longs]]:
        """Each cluster and its classes."""
        for at, cluster in enumerate(self.clusters.tolist()):
            yield cluster, self.classes[self.start[at] : self.start[at + 1]]

    def some(self, which: Flags) -> ClassesInOrder:
        """Those of the clusters `which` [Q]."""
        if which.all():
            return self
        counts = np.diff(self.start)
        start = np.append(0, np.cumsum(counts[which]))
        return ClassesInOrder(self.clusters[which], self.classes[np.repeat(which, counts)], start)

    def places(self) -> Longs:
        """[O] the place of each class among those of its cluster."""
        return np.arange(len(self.classes)) - np.repeat(self.start[:-1], np.diff(self.start))


class PackingOrder:
    """The classes of plain needs by priority and cluster: those that fewest flavours fit first,
    then the largest.
    """

    def __init__(self, classes: PodClasses, cluster_of_need: Ints) -> None:
        plain = classes.need_type[classes.need] == NeedType.PLAIN
        its = np.flatnonzero(plain & ~classes.impossible)
        choice = classes.choice[classes.flavour_fit[its]]
        cluster, priority = cluster_of_need[classes.need[its]], classes.priority[classes.need[its]]
        order = np.lexsort((its, -classes.dominant_share[its], choice, cluster, -priority))
        cluster, priority = cluster[order].astype(np.int64), priority[order]
        differs = (np.diff(cluster) != 0) | (np.diff(priority) != 0)
        start = np.append(0, np.flatnonzero(differs) + 1)[: len(its)]
        self._classes: Longs = its[order].astype(np.int64)
        # G groups: each has one priority and cluster.
        self._cluster, self._priority = cluster[start], priority[start]
        self._start: Longs = np.append(start, len(its))

    def of(self, cluster: int, priority: int) -> Longs:
        """The classes of one priority in one cluster."""
        group = self._groups.get((cluster, priority))
        if group is None:
            return self._classes[:0]
        return self._classes[self._start[group] : self._start[group + 1]]

    def of_priority(self, priority: int) -> ClassesInOrder:
        """The classes of one priority in all clusters."""
        first, end = np.searchsorted(-self._priority, (-priority, 1 - priority)).tolist()
        start = self._start[first : end + 1]
        its = self._classes[start[0] : start[-1]]
        return ClassesInOrder(self._cluster[first:end], its, start - start[0])

    def priorities(self, cluster: int) -> list[int]:
        """The priorities of which a cluster has classes."""
        found: list[int] = self._priority[self._cluster == cluster].tolist()
        return found

    @cached_property
    def _groups(self) -> dict[tuple[int, int], int]:
        pairs = zip(self._cluster.tolist(), self._priority.tolist(), strict=True)
        return {pair: group for group, pair in enumerate(pairs)}


def turns_of(need_type: Bytes, priority: Longs) -> Longs:
    """For each need [N] a number that grows in the order in which needs are placed: by priority,
    then gangs before constrained ones before plain ones, then by index. Additional needs count as
    gangs.
    """
    constrained, plain = 1, 2
    kind = np.where(need_type == NeedType.PLAIN, plain, 0)
    kind[need_type == NeedType.CONSTRAINED] = constrained
    number = np.arange(len(kind), dtype=np.int64)
    # The lowest 29 bits are the index, then two of the kind, and above them 32 of the priority.
    turns: Longs = (-priority << 31) + (kind.astype(np.int64) << 29) + number
    return turns
