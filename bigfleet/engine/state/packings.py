"""The packings of all clusters, and how the pods of many are placed at once.

To call a kernel takes as long as to pack a small cluster, and after each call the GIL is waited
for. So the pods of one priority of all clusters are placed in one call, on columns that are parts
of common ones. A cluster that has got machines since has columns of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.kernels.placing_in_each import place_in_each
from bigfleet.engine.kernels.scoring import PlacementLog, ScoringStrategy, consolidating
from bigfleet.engine.snapshot import Floats, Ints, Longs, Rows
from bigfleet.engine.state.cluster_packing import ClusterPacking, PackingColumns


class _Common(NamedTuple):
    """What is common to the packings of P clusters."""

    #: by cluster, its position
    position: Mapping[int, int]
    columns: PackingColumns
    #: [P + 1] int64, delimits each cluster's machines
    start: Longs
    #: [P, 3] float64, how each consolidates
    strategies: Floats


class Packings(dict[int, ClusterPacking]):
    """By cluster."""

    _common: _Common | None = None

    @classmethod
    def of(
        cls,
        clusters: Rows,
        machines: PackingColumns,
        start: Longs,
        classes: PodClasses,
        left: Longs,
        cluster_of_class: Ints,
        capacities: Capacities,
    ) -> Packings:
        """The packings of P `clusters`, in ascending order, with the `machines` that `start`
        [P + 1] delimits; `left` and `cluster_of_class` [C] are the unplaced pods of each class and
        the cluster that they are for.
        """
        strategies = _strategies(clusters, machines, start, classes, left, cluster_of_class)
        kinds = {
            number: classes.kinds(number)
            for number in set(map(capacities.number, clusters.tolist()))
        }
        found = cls()
        for at, cluster in enumerate(clusters.tolist()):
            number = capacities.number(cluster)
            found[cluster] = ClusterPacking(
                classes,
                left,
                capacities.matrix(number),
                kinds[number],
                machines.part(slice(int(start[at]), int(start[at + 1]))),
                strategies[at],
                is_common=True,
            )
        position = {cluster: at for at, cluster in enumerate(clusters.tolist())}
        found._common = _Common(position, machines, start, np.array(strategies).reshape(-1, 3))
        return found

    def place(self, orders: Mapping[int, Longs], priority: int) -> None:
        """Place in each cluster the pods left of the classes `orders`, which have this `priority`;
        see `ClusterPacking.place`.
        """
        together = [cluster for cluster in orders if self[cluster].is_common]
        alone = [cluster for cluster in orders if not self[cluster].is_common]
        if together:
            self._place_together(together, orders, priority)
        for cluster in alone:
            self[cluster].place(orders[cluster], priority)

    def _place_together(
        self, clusters: Sequence[int], orders: Mapping[int, Longs], priority: int
    ) -> None:
        common = self._common
        assert common is not None
        packings = [self[cluster] for cluster in clusters]
        classes = packings[0].classes
        ends = np.cumsum([len(orders[cluster]) for cluster in clusters])
        log, start = place_in_each(
            np.array([common.position[cluster] for cluster in clusters]),
            common.columns.machines(),
            common.start,
            classes.columns,
            classes.priority,
            classes.share_steps,
            packings[0].left,
            np.concatenate([orders[cluster] for cluster in clusters]),
            np.concatenate(([0], ends)),
            priority,
            common.strategies,
        )
        for packing, begin, end in zip(
            packings, start[:-1].tolist(), start[1:].tolist(), strict=True
        ):
            if begin < end:
                packing.append(PlacementLog._make(column[begin:end] for column in log))


def _strategies(
    clusters: Rows,
    machines: PackingColumns,
    start: Longs,
    classes: PodClasses,
    left: Longs,
    cluster_of_class: Ints,
) -> list[ScoringStrategy]:
    """How each cluster consolidates: in the ratio of CPU and memory that its pods request."""
    count = int(clusters.max(initial=-1)) + 1
    of_machine = np.repeat(np.arange(len(clusters)), np.diff(start))
    shares = []
    for resource in range(2):
        asked = (classes.sizes[:, resource] * left.astype(np.float64)).astype(np.float64)
        total = np.bincount(cluster_of_class, asked, count)[clusters]
        capacity = machines.capacity[:, resource].astype(np.float64)
        shares.append(total / np.maximum(np.bincount(of_machine, capacity, len(clusters)), 1))
    return [consolidating(*each) for each in zip(*(part.tolist() for part in shares), strict=True)]
