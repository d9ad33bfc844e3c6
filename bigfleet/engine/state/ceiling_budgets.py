"""What clusters may still acquire beneath their ceilings.

A machine is counted for the cluster that it is supply for: in which it is configured or about to
be, or for which it is created or drained; and for the one that orders it in this decision. A
ceiling bounds what is acquired, and nothing else: a cluster that holds more keeps what it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from bigfleet.engine.decision import ClusterUsage
from bigfleet.engine.snapshot import NONE, Demand, Fleet, Ints, Longs, Rows
from bigfleet.model.ceiling import Ceiling, micros

NO_CEILING = 2**62
# Dollars an hour that a machine counts for at most, so that the sum over a fleet fits into 64 bits.
_MAX_PRICE = 1e6
# What an allowance says: how many machines, how many millionths of a dollar an hour, and whether
# anything was withheld for it.
MACHINES, MICROS, WITHHELD = range(3)


class CeilingBudgets:
    """Counts for clusters with ceilings what they hold and order. `prices` [F] are in millionths
    of a dollar an hour, `supply_cluster` [n] the cluster that each machine is supply for.
    """

    def __init__(self, fleet: Fleet, demand: Demand, supply_cluster: Ints) -> None:
        self.prices: Longs = np.array(
            [micros(min(flavour.price_per_hour, _MAX_PRICE)) for flavour in fleet.flavours],
            np.int64,
        )
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
        """What the cluster may still acquire; less than nothing where it holds more than it may."""
        ceiling = self._ceilings.get(cluster)
        if ceiling is None:
            return np.array([NO_CEILING, NO_CEILING, 0], np.int64)
        machines, cost_micros = self._held[cluster]
        dollars = ceiling.dollars_per_hour
        cost_limit = micros(dollars) if math.isfinite(dollars) else NO_CEILING
        most = int(ceiling.machines) if math.isfinite(ceiling.machines) else NO_CEILING
        return np.array([most - machines, cost_limit - cost_micros, 0], np.int64)

    def charge(self, cluster: int, rows: Rows) -> None:
        """Machines are ordered for the cluster."""
        self._add(cluster, rows, 1)

    def refund(self, cluster: int, rows: Rows) -> None:
        """They are not ordered after all."""
        self._add(cluster, rows, -1)

    def held(self) -> Mapping[int, ClusterUsage]:
        """By cluster with such a ceiling, what it has now and what comes to it."""
        return {cluster: ClusterUsage(*amounts) for cluster, amounts in self._held.items()}

    def _add(self, cluster: int, rows: Rows, sign: int) -> None:
        if cluster not in self._ceilings:
            return
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


def describe_usage(ceiling: Ceiling | None, held: ClusterUsage | None) -> Iterator[str]:
    """What a cluster may have, and what it has."""
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
