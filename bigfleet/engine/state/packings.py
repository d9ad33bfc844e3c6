"""The packings of all clusters, and how the pods of many are placed at once.

To call a kernel takes as long as to pack a small cluster, and after each call the GIL is waited
for. So the pods of one priority of all clusters are placed in one call, on columns that are parts
of common ones. A cluster gets a packing of its own when somebody asks for it, and columns of its
own when it gets machines.

In a cluster where all is as it was in the last decision, the pods are placed again where they were
placed then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.kernels.placed import claim, collect
from bigfleet.engine.kernels.placing_in_each import place_in_each
from bigfleet.engine.kernels.scoring import PlacementLog, ScoringStrategy, consolidating
from bigfleet.engine.snapshot import Demand, Flags, Floats, Ints, Longs, Rows
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.packing_columns import PackingColumns
from bigfleet.engine.state.packing_memory import (
    NOTHING,
    KeyParts,
    Keys,
    PackingMemory,
    Remembered,
    find,
)
from bigfleet.engine.state.packing_order import ClassesInOrder


class PlacedPods(NamedTuple):
    """P placements of pods, those of one machine in the order in which they were made."""

    #: [P] intp, row of the fleet
    row: Rows
    #: [P] int64, index of the class
    pod_class: Longs
    #: [P] int64, how many pods
    pods: Longs


class _Placed(NamedTuple):
    """Placements in P clusters."""

    log: PlacementLog
    #: [P] int64, where those of each cluster begin and end
    begin: Longs
    end: Longs

    def part(self, at: int) -> PlacementLog | None:
        """The placements in the cluster at a position; None if there are none."""
        begin, end = int(self.begin[at]), int(self.end[at])
        return PlacementLog._make(each[begin:end] for each in self.log) if begin < end else None


@dataclass
class _Common:
    """What is common to the packings of P clusters."""

    #: [P] intp, in ascending order
    clusters: Rows
    columns: PackingColumns
    #: [P + 1] int64, delimits each cluster's machines
    start: Longs
    #: [P, 3] float64, how each consolidates
    strategies: Floats
    classes: PodClasses
    left: Longs
    capacities: Capacities
    key_parts: KeyParts
    #: [P], the key of each after what has been placed there
    keys: Keys
    #: [P] int64, how many placements those are
    number: Longs
    #: what was placed in one call, in that order
    placed: list[_Placed]
    #: by priority: what was placed in the last decision, and in this one
    last: Mapping[int, Remembered]
    now: dict[int, Remembered]

    def position(self, cluster: int) -> int:
        """The position of a cluster; KeyError if it is none of them."""
        at = int(np.searchsorted(self.clusters, cluster))
        if at == len(self.clusters) or self.clusters[at] != cluster:
            raise KeyError(cluster)
        return at

    def part(self, at: int) -> PackingColumns:
        """The machines of the cluster at a position, as views."""
        return self.columns.part(slice(int(self.start[at]), int(self.start[at + 1])))

    def packing(self, cluster: int) -> ClusterPacking:
        """A packing of the cluster's own with what has been placed there."""
        at, number = self.position(cluster), self.capacities.number(cluster)
        packing = ClusterPacking(
            self.classes,
            self.left,
            self.capacities.matrix(number),
            self.classes.kinds(number),
            self.part(at),
            ScoringStrategy(*self.strategies[at].tolist()),
            is_common=True,
        )
        for placed in self.placed:
            if part := placed.part(at):
                packing.placements.append(part)
        return packing


class Packings(Mapping[int, ClusterPacking]):
    """By cluster."""

    def __init__(self, own: Mapping[int, ClusterPacking], common: _Common | None = None) -> None:
        """`own` are those that exist already."""
        self._own, self._common = {**own}, common

    @classmethod
    def of(
        cls,
        clusters: Rows,
        machines: PackingColumns,
        start: Longs,
        classes: PodClasses,
        left: Longs,
        demand: Demand,
        capacities: Capacities,
    ) -> Packings:
        """The packings of P `clusters`, in ascending order, with the `machines` that `start`
        [P + 1] delimits; `left` [C] are the unplaced pods of each class.
        """
        of_class = demand.cluster[classes.need]
        strategies = _strategies(clusters, machines, start, classes, left, of_class)
        parts, now = KeyParts(classes, demand), dict[int, Remembered]()
        memory = capacities.columns.remember_last(("packings", ()), PackingMemory)
        return cls(
            {},
            _Common(
                clusters,
                machines,
                start,
                strategies,
                classes,
                left,
                capacities,
                parts,
                parts.of_machines(clusters, machines, start, strategies, capacities),
                np.zeros(len(clusters), np.int64),
                [],
                memory.begin(now),
                now,
            ),
        )

    def __getitem__(self, cluster: int) -> ClusterPacking:
        found = self._own.get(cluster)
        if found is None:
            if self._common is None:
                raise KeyError(cluster)
            found = self._own[cluster] = self._common.packing(cluster)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._own if self._common is None else self._common.clusters.tolist())

    def __len__(self) -> int:
        return len(self._own if self._common is None else self._common.clusters)

    def __contains__(self, cluster: object) -> bool:
        return cluster in self._own or (
            self._common is not None and cluster in self._common.clusters
        )

    def columns_of(self, cluster: int) -> PackingColumns:
        """The machines of a cluster, as they are now; KeyError if it is none of them."""
        if cluster in self._own or self._common is None:
            return self[cluster].columns()
        return self._common.part(self._common.position(cluster))

    def place(self, orders: ClassesInOrder, priority: int) -> None:
        """Place in each cluster the pods left of the classes `orders`, which have this `priority`;
        see `ClusterPacking.place`.
        """
        alone = {cluster for cluster, packing in self._own.items() if not packing.is_common}
        apart = np.isin(orders.clusters, [*alone])
        if not apart.all():
            self._place_together(orders.some(~apart), priority)
        for cluster, order in orders.some(apart):
            self[cluster].place(order, priority)

    def claim(self, clusters: Sequence[int], claimed: Ints, additional: Flags) -> None:
        """Write to `claimed` [n] the needs that claim the machines with pods of `clusters`; which
        are `additional` [N].
        """
        for cluster in self._own.keys() & {*clusters}:
            self._own[cluster].claim(claimed, additional)
        if (common := self._common) is not None:
            others = np.isin(common.clusters, [*({*clusters} - self._own.keys())])
            at = np.flatnonzero(others)
            for log, begin, end in common.placed:
                claim(
                    log, begin[at], end[at], common.start[at],
                    common.classes.need, additional, common.columns.rows, claimed,
                )  # fmt: skip

    def placed(self, classes: Flags) -> PlacedPods:
        """All placements of these `classes` [C]."""
        common, own = self._common, [*self._own.values()]
        logs = [] if common is None else common.placed
        lengths = [each.placements.length for each in own] + [len(each.log.pods) for each in logs]
        most = sum(lengths)
        columns = np.empty(most, np.intp), np.empty(most, np.int64), np.empty(most, np.int64)
        count = 0
        for packing in own:
            count = packing.collect(classes, count, *columns)
        if common is not None:
            at = np.flatnonzero(~np.isin(common.clusters, [*self._own]))
            first, rows = common.start[at], common.columns.rows
            for log, begin, end in logs:
                count = collect(log, begin[at], end[at], first, classes, rows, count, *columns)
        return PlacedPods(*(column[:count] for column in columns))

    def _place_together(self, orders: ClassesInOrder, priority: int) -> None:
        common = self._common
        assert common is not None
        at = np.searchsorted(common.clusters, orders.clusters)
        self._note_others(common)
        keys = common.key_parts.for_pods(common.keys[at], priority, common.left, orders)
        before = common.last.get(priority, NOTHING)
        log, start = place_in_each(
            at,
            common.columns.machines(),
            common.start,
            common.classes.columns,
            common.classes.priority,
            common.classes.share_steps,
            common.left,
            orders.classes,
            orders.start,
            priority,
            common.strategies,
            find(before, orders.clusters, keys),
            before.placed,
            before.start,
        )
        log = PlacementLog._make(column[: start[-1]] for column in log)
        begin, end = np.zeros((2, len(common.clusters)), np.int64)
        begin[at], end[at] = start[:-1], start[1:]
        common.placed.append(_Placed(log, begin, end))
        common.keys[at] = keys
        common.number[at] += np.diff(start)
        for cluster, packing in self._own.items():
            if part := common.placed[-1].part(common.position(cluster)):
                packing.placements.append(part)
        place_of = np.empty(len(common.left), np.int32)
        place_of[orders.classes] = orders.places()
        placed = log._replace(pod_class=place_of[log.pod_class])
        common.now[priority] = Remembered(orders.clusters, keys, start, placed)

    def _note_others(self, common: _Common) -> None:
        """Change the keys of clusters where something was placed by other means."""
        its = [cluster for cluster, packing in self._own.items() if packing.is_common]
        at = np.searchsorted(common.clusters, its)
        number = np.array([self._own[cluster].placements.length for cluster in its], np.int64)
        others = np.flatnonzero(number > common.number[at])
        if len(others):
            since = zip(others.tolist(), common.number[at[others]].tolist(), strict=True)
            entries = [self._own[its[place]].placements.since(length) for place, length in since]
            common.keys[at[others]] = common.key_parts.with_pods(common.keys[at[others]], entries)
            common.number[at[others]] = number[others]


def _strategies(
    clusters: Rows,
    machines: PackingColumns,
    start: Longs,
    classes: PodClasses,
    left: Longs,
    cluster_of_class: Ints,
) -> Floats:
    """How each of P clusters consolidates [P, 3]: in the ratio of CPU and memory that its pods
    request; `cluster_of_class` [C] is the cluster that they are for.
    """
    count = int(clusters.max(initial=-1)) + 1
    of_machine = np.repeat(np.arange(len(clusters)), np.diff(start))
    pods, shares = left.astype(np.float64), []
    for resource in range(2):
        asked = classes.sizes[:, resource] * pods
        total = np.bincount(cluster_of_class, asked, count)[clusters]
        capacity = np.bincount(of_machine, machines.capacity[:, resource], len(clusters))
        shares.append(total / np.maximum(capacity, 1))
    each = [consolidating(*pair) for pair in zip(*(part.tolist() for part in shares), strict=True)]
    return np.array(each, np.float64).reshape(-1, 3)
