"""Normalisation of the demand: gangs that fit on one machine become plain needs.

A gang that fits on one machine needs no topology domain: any machine with room holds all of it. So
the small gangs of one cluster and profile fold into one plain need, each of whose pods is a whole
gang. A gang that fits on no machine keeps its Same requirement.

Whether a gang folds depends on the current machines, and is decided in each cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bigfleet.engine.columns import columns_of
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.need_columns import NeedColumns, need_columns_of
from bigfleet.engine.snapshot import Demand, Flags, Fleet, Longs, in_states
from bigfleet.model.group import FoldedGangs
from bigfleet.model.machine import MachineState
from bigfleet.model.need import (
    HOSTNAME_LABEL,
    Need,
    Operator,
    Profile,
    Requirement,
    profile,
    sizes_of,
    total_of,
)

# Machines that are created or drained were chosen or will be free: gangs must not unfold meanwhile.
_UNCLAIMED_STATES = (
    MachineState.IDLE,
    MachineState.SPECULATIVE,
    MachineState.CREATING,
    MachineState.DRAINING,
)


@dataclass(frozen=True)
class FoldedDemand:
    """A demand with small gangs folded."""

    demand: Demand
    #: by need of the original demand: index of the need that includes it
    served_by: Sequence[int]


def normalise(fleet: Fleet, demand: Demand) -> Demand:
    """`demand` with small gangs folded."""
    return fold(fleet, demand).demand


def fold(fleet: Fleet, demand: Demand) -> FoldedDemand:
    """`demand` with each gang folded that a single machine could hold.

    A folded need takes the position of its first gang.
    """
    asked = need_columns_of(demand.needs)
    if not asked.gang.any():
        return FoldedDemand(replace(demand, needs=asked), range(len(asked)))
    gang_folder = _GangFolder(fleet, demand)
    needs: list[Need] = []
    clusters: list[int] = []
    served_by: list[int] = []
    position: dict[tuple[int, tuple[str, str]], int] = {}
    clusters_of_needs, gangs = demand.cluster.tolist(), asked.gang.tolist()
    for need, cluster, gang in zip(asked, clusters_of_needs, gangs, strict=True):
        folds = gang and gang_folder.fits(need, cluster)
        served = gang_folder.folded(need) if folds else need
        at = position.setdefault((cluster, served.key), len(needs))
        served_by.append(at)
        if at < len(needs):
            needs[at] = replace(needs[at], sizes=(*needs[at].sizes, *served.sizes))
        else:
            needs.append(served)
            clusters.append(cluster)
    joined = NeedColumns(
        (
            _with_canonical_sizes(need) if isinstance(need.group, FoldedGangs) else need
            for need in needs
        ),
        asked,
    )
    served_demand = replace(demand, needs=joined, cluster=np.array(clusters, np.int32))
    return FoldedDemand(served_demand, served_by)


def _with_canonical_sizes(need: Need) -> Need:
    return replace(need, sizes=sizes_of((dict(size.amounts), size.pods) for size in need.sizes))


class _GangFolder:
    """Decides which gangs fold."""

    def __init__(self, fleet: Fleet, demand: Demand) -> None:
        self._fleet = fleet
        self._columns = columns_of(fleet.flavours)
        self._matcher = Matcher(self._columns)
        self._capacities = Capacities(self._columns, self._matcher, demand)
        self._unclaimed_flavours = self._flavours_of(in_states(fleet.state, _UNCLAIMED_STATES))
        self._lowest_priority = self._lowest_priorities()
        self._serving: dict[int, Flags] = {}
        self._folded: dict[str, tuple[Profile, FoldedGangs]] = {}
        self._known: dict[tuple[int, str, tuple[tuple[str, int], ...]], bool] = {}
        self._accepting: dict[str, Flags] = {}

    def folded(self, gang: Need) -> Need:
        """A gang as a plain need with one pod; its machine must still have the topology label."""
        gang_profile = gang.profile
        if gang_profile.fingerprint not in self._folded:
            group = FoldedGangs(str(gang_profile.same_key))
            self._folded[gang_profile.fingerprint] = _without_same(gang_profile), group
        folded_profile, group = self._folded[gang_profile.fingerprint]
        sizes = sizes_of([(total_of(gang.sizes), 1)])
        return Need(folded_profile, sizes, group, gang.priority_ceiling)

    def fits(self, need: Need, cluster: int) -> bool:
        """Whether the need is a gang that a single machine which may serve it could hold."""
        anti_affine = HOSTNAME_LABEL in need.profile.anti_affinity and need.pods > 1
        if need.profile.same_key is None or anti_affine:
            return False
        amounts = total_of(need.sizes)
        key = cluster, need.profile.fingerprint, tuple(sorted(amounts.items()))
        if key not in self._known:
            self._known[key] = self._holds(need, amounts, cluster)
        return self._known[key]

    def _holds(self, need: Need, amounts: Mapping[str, int], cluster: int) -> bool:
        gang_profile = need.profile
        if gang_profile.fingerprint not in self._accepting:
            self._accepting[gang_profile.fingerprint] = self._matcher.accepting(
                _without_same(gang_profile)
            )
        candidates = self._accepting[gang_profile.fingerprint] & (
            self._serving_flavours(cluster) | (self._lowest_priority < need.priority)
        )
        capacity = self._capacities.of(cluster)
        for resource, amount in amounts.items():
            if resource not in self._columns.column_of:
                return False
            candidates = candidates & (capacity[:, self._columns.column_of[resource]] >= amount)
        return bool(candidates.any())

    def _serving_flavours(self, cluster: int) -> Flags:
        """Flavours [F] of the cluster's own machines and of unclaimed ones."""
        if cluster not in self._serving:
            fleet = self._fleet
            bound = in_states(fleet.state, (MachineState.CONFIGURED, MachineState.CONFIGURING))
            own = self._flavours_of(bound & (fleet.cluster == cluster))
            self._serving[cluster] = own | self._unclaimed_flavours
        return self._serving[cluster]

    def _lowest_priorities(self) -> Longs:
        """By flavour [F], the lowest priority that a CONFIGURED machine serves: a higher one may
        preempt it.
        """
        # Without these machines, a hundred small gangs would stay unfolded, and each preempt one.
        fleet = self._fleet
        lowest = np.full(len(self._columns), np.iinfo(np.int64).max)
        working = fleet.state == MachineState.CONFIGURED
        np.minimum.at(lowest, fleet.flavour[working], fleet.priority[working])
        return lowest

    def _flavours_of(self, rows: Flags) -> Flags:
        present = np.zeros(len(self._columns), np.bool_)
        present[self._fleet.flavour[rows]] = True
        return present


def _without_same(gang_profile: Profile) -> Profile:
    """The profile of a folded gang: Same becomes Exists."""
    # Every machine has a hostname, so that key needs no requirement.
    requirements = [
        Requirement(r.key, Operator.EXISTS) if r.operator is Operator.SAME else r
        for r in gang_profile.requirements
        if not (r.operator is Operator.SAME and r.key == HOSTNAME_LABEL)
    ]
    return profile(
        requirements,
        (),  # Same disables spread, and still does
        gang_profile.priority,
        gang_profile.interruption_bucket,
        gang_profile.reclamation_bucket,
        alternatives=gang_profile.alternatives,
        tolerations=gang_profile.tolerations,
        never_preempts=gang_profile.never_preempts,
    )
