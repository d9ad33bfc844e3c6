"""What one more machine would serve of a need that is short."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfleet.engine.columns import LabelColumn
from bigfleet.engine.decision import Decision, Shortfall
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Longs
from bigfleet.engine.state.ceiling_budgets import affordable
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Size, Spread

# More than any machine holds.
_MANY_PODS = 10_000
# Of needs with topology constraints and one profile, so many are looked at.
_LOOKED_AT = 50


class OneMoreMachine:
    """By flavour, what one more machine would serve after a decision; also of flavours of which
    this fleet has no machine.
    """

    def __init__(
        self,
        fleet: Fleet,
        demand: Demand,
        decision: Decision,
        capacities: Capacities,
        classes: PodClasses,
    ) -> None:
        self._fleet, self._demand, self._decision = fleet, demand, decision
        self._capacities, self._classes = capacities, classes
        self._flavours: dict[int, Ints] = {}

    def pods(self, oldest_first: Sequence[Shortfall]) -> Longs:
        """[F], how many of the unplaced pods of one of these needs, which have one profile, the
        machine would serve, counted as its largest. 0 if the cluster's ceiling would withhold it.
        """
        oldest = oldest_first[0].need
        constrained = self._classes.fit(oldest).is_constrained
        # Where one has as many pods as its constraints allow, another may have none yet.
        looked_at = oldest_first[: _LOOKED_AT if constrained else 1]
        pods = np.max([self._pods(short) for short in looked_at], axis=0)
        return np.where(self._accepted(oldest) & self._affordable(oldest), pods, 0)

    def _pods(self, short: Shortfall) -> Longs:
        capacity = self._capacities.of(int(self._demand.cluster[short.need]))
        fitting = [self._fits(capacity, size) for size in (*short.sizes, *short.impossible)]
        pods: Longs = np.maximum(np.min(fitting, axis=0), np.max(fitting, axis=0) > 0)
        if self._classes.fit(short.need).is_constrained:
            pods[self._is_full(short.need)] = 0
            if self._demand.needs[short.need].profile.anti_affinity:
                pods = np.minimum(pods, 1)
        return pods

    def _fits(self, capacity: Longs, size: Size) -> Longs:
        """[F], how many pods of this size an empty machine holds."""
        column_of = self._capacities.columns.column_of
        pods = np.full(len(capacity), _MANY_PODS, np.int64)
        for name, amount in size.amounts:
            if amount:
                there = capacity[:, column_of[name]] if name in column_of else 0
                pods = np.minimum(pods, there // amount)
        return np.maximum(pods, 0)

    def _accepted(self, index: int) -> Flags:
        return self._classes.fit(index).accepted

    def _affordable(self, index: int) -> Flags:
        cluster = int(self._demand.cluster[index])
        ceiling, held = self._demand.ceilings.get(cluster), self._decision.held.get(cluster)
        return affordable(ceiling, held, self._capacities.columns.micros)

    def _is_full(self, index: int) -> Flags:
        """[F], whether the need's topology constraints allow no more pods in the flavour's domain;
        a machine is a new domain of kubernetes.io/hostname.
        """
        fit, columns = self._classes.fit(index), self._capacities.columns
        placements, full = self._decision.placements, np.zeros(len(columns), np.bool_)
        its = placements.need == index
        placed = self._fleet.flavour[placements.row[its]], placements.pods[its]
        for key in set(fit.profile.anti_affinity) - {HOSTNAME_LABEL}:
            label = columns.label(key)
            full |= _pods_by_domain(label, *placed)[label.codes] > 0
        for term in fit.terms:
            if term.topology_key != HOSTNAME_LABEL:
                label = columns.label(term.topology_key)
                pods = _pods_by_domain(label, *placed)
                most = self._global_minimum(index, term, pods) + term.max_skew
                full |= pods[label.codes] >= most
        return full

    def _global_minimum(self, index: int, term: Spread, pods: Longs) -> int:
        """The least of the `pods` [D + 1] in any domain that the cluster has; 0 if it has fewer
        than `min_domains`.
        """
        serving = self._serving(int(self._demand.cluster[index]))
        serving = serving[self._accepted(index)[serving]]
        domains = np.unique(self._capacities.columns.label(term.topology_key).codes[serving])
        domains = domains[domains != NONE]
        enough = len(domains) >= max(1, term.min_domains)
        return int(pods[domains].min()) if enough else 0

    def _serving(self, cluster: int) -> Ints:
        """The flavours of the cluster's machines. Finding them reads the whole fleet."""
        if cluster not in self._flavours:
            self._flavours[cluster] = np.unique(self._fleet.flavour[self._fleet.cluster == cluster])
        return self._flavours[cluster]


def _pods_by_domain(label: LabelColumn, flavour: Ints, pods: Longs) -> Longs:
    """[D + 1], how many of the `pods` [P], on machines of these flavours [P], each domain has; the
    last, 0, is for machines without the label.
    """
    counts = np.zeros(len(label.values) + 1, np.int64)
    np.add.at(counts, label.codes[flavour], pods)
    counts[NONE] = 0
    return counts
