"""Budgets that clusters have left under their ceilings.

A machine is charged to the cluster that it is supply for (configured or about to be, or created or
drained for it) and to the cluster that orders it in this decision. A ceiling limits acquisitions
only: a cluster above its ceiling keeps its machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.decision import ClusterUsage
from bigfleet.engine.kernels.candidate_pool import NO_CEILING
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Longs, Rows
from bigfleet.model.ceiling import Ceiling, micros


class CeilingBudgets:
    """Tracks what clusters with ceilings hold and order."""

    def __init__(
        self, fleet: Fleet, demand: Demand, columns: FlavourColumns, supply_cluster: Ints
    ) -> None:
        """`supply_cluster` [n] is the cluster that each machine is supply for, or NONE."""
        #: [F] int64, micro-dollars an hour
        self.prices: Longs = columns.micros
        self._flavour, self._supply_cluster = fleet.flavour, supply_cluster
        self._ceilings: Mapping[int, Ceiling] = {
            cluster: ceiling
            for cluster, ceiling in demand.ceilings.items()
            if ceiling.bounds_acquisition
        }
        self._held: dict[int, tuple[int, int]] = {}
        if self._ceilings:
            self._count_held(len(fleet.clusters))

    def remaining(self, cluster: int) -> Longs:
        """The cluster's budget [3]: MACHINES, MICROS, WITHHELD; negative above its ceiling."""
        ceiling = self._ceilings.get(cluster)
        if ceiling is None:
            return np.array([NO_CEILING, NO_CEILING, 0], np.int64)
        return np.array([*_left(ceiling, ClusterUsage(*self._held[cluster])), 0], np.int64)

    def charge(self, cluster: int, rows: Rows) -> None:
        """Charge machines that are ordered for the cluster."""
        self._add(cluster, rows, 1)

    def refund(self, cluster: int, rows: Rows) -> None:
        """Undo `charge`."""
        self._add(cluster, rows, -1)

    def held(self) -> Mapping[int, ClusterUsage]:
        """The usage of each cluster with a ceiling, machines on their way included."""
        return {cluster: ClusterUsage(*amounts) for cluster, amounts in self._held.items()}

    def _add(self, cluster: int, rows: Rows, sign: int) -> None:
        if cluster not in self._ceilings:
            return
        # Machines that are already supply for the cluster are charged from the start.
        new = rows[self._supply_cluster[rows] != cluster]
        machines, cost_micros = self._held[cluster]
        paid = int(self.prices[self._flavour[new]].sum())
        self._held[cluster] = machines + sign * len(new), cost_micros + sign * paid

    def _count_held(self, clusters: int) -> None:
        rows = np.flatnonzero(self._supply_cluster != NONE)
        supply_cluster = self._supply_cluster[rows]
        machines = np.bincount(supply_cluster, minlength=clusters)
        cost_micros = np.zeros(clusters, np.int64)
        np.add.at(cost_micros, supply_cluster, self.prices[self._flavour[rows]])
        self._held = {
            cluster: (int(machines[cluster]), int(cost_micros[cluster]))
            for cluster in self._ceilings
        }


def affordable(ceiling: Ceiling | None, held: ClusterUsage | None, prices: Longs) -> Flags:
    """[F], whether a cluster that holds `held` may have one more machine of each flavour, by
    `prices` [F] in micro-dollars an hour.
    """
    if ceiling is None or held is None:
        return np.ones(len(prices), np.bool_)
    left = _left(ceiling, held)
    return (prices <= left.micros) & (left.machines > 0)


def _left(ceiling: Ceiling, held: ClusterUsage) -> ClusterUsage:
    """What a cluster may have beside `held`; negative above its ceiling."""
    dollars = ceiling.dollars_per_hour
    cost_limit = micros(dollars) if math.isfinite(dollars) else NO_CEILING
    most = int(ceiling.machines) if math.isfinite(ceiling.machines) else NO_CEILING
    return ClusterUsage(most - held.machines, cost_limit - held.micros)


def describe_usage(ceiling: Ceiling | None, held: ClusterUsage | None) -> Iterator[str]:
    """Describe a cluster's limits and its usage."""
    if ceiling is None or held is None:
        return
    if math.isfinite(ceiling.machines):
        yield f"it has {held.machines} of at most {int(ceiling.machines)} machines"
    if math.isfinite(ceiling.dollars_per_hour):
        cost_micros = held.micros / 1e6
        yield (
            f"it has machines for ${cost_micros:.2f} of at most "
            f"${ceiling.dollars_per_hour:.2f} an hour"
        )
