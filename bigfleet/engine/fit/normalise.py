"""Demand in the shape in which it is served.

A gang that fits on one machine needs no common domain: any machine with room puts it together. So
such gangs fold: all gangs of one cluster and profile become one plain need whose pods are whole
gangs, of as many sizes as there are. A gang that fits on no machine keeps its Same requirement.

Whether a gang folds depends on the machines there are now, and is decided anew each cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.snapshot import Bytes, Demand, Flags, Fleet, Longs
from bigfleet.model.machine import MachineState
from bigfleet.model.need import (
    FOLDED_GROUP_PREFIX,
    HOSTNAME_LABEL,
    Need,
    Operator,
    Profile,
    Requirement,
    profile,
    sizes_of,
    total_of,
)

# One that is being created was free when it was chosen, and one that drains was chosen or will be
# free: their gangs must not unfold meanwhile.
_UNCLAIMED_STATES = (
    MachineState.IDLE,
    MachineState.SPECULATIVE,
    MachineState.CREATING,
    MachineState.DRAINING,
)


@dataclass(frozen=True)
class FoldedDemand:
    """`demand` in the shape in which it is served, and for each need that was asked for the index
    of the one that serves it.
    """

    demand: Demand
    served_by: Sequence[int]


def normalise(fleet: Fleet, demand: Demand) -> Demand:
    """`demand` in the shape in which it is served."""
    return fold(fleet, demand).demand


def fold(fleet: Fleet, demand: Demand) -> FoldedDemand:
    """`demand` with every gang folded that some one serving machine could hold.

    A need that serves several stands where the first of them stood. Where there is nothing to fold,
    the very same Demand is returned.
    """
    if all(need.profile.same_key is None for need in demand.needs):
        return FoldedDemand(demand, range(len(demand.needs)))
    gang_folder = _GangFolder(fleet, demand)
    needs: list[Need] = []
    clusters: list[int] = []
    served_by: list[int] = []
    position: dict[tuple[int, tuple[str, str]], int] = {}
    for need, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True):
        served = gang_folder.folded(need) if gang_folder.fits(need, cluster) else need
        at = position.setdefault((cluster, served.key), len(needs))
        served_by.append(at)
        if at < len(needs):
            needs[at] = replace(needs[at], sizes=(*needs[at].sizes, *served.sizes))
        else:
            needs.append(served)
            clusters.append(cluster)
    joined = [_with_canonical_sizes(need) if is_folded(need) else need for need in needs]
    served_demand = replace(demand, needs=joined, cluster=np.array(clusters, np.int32))
    return FoldedDemand(served_demand, served_by)


def _with_canonical_sizes(need: Need) -> Need:
    return replace(need, sizes=sizes_of((dict(size.amounts), size.pods) for size in need.sizes))


def is_folded(need: Need) -> bool:
    """Whether it stands for gangs each of which fits on one machine."""
    return need.group.startswith(FOLDED_GROUP_PREFIX)


def gang_topology_key(need: Need) -> str | None:
    """The topology key whose domain a gang's pods share, also if folded; None for others."""
    if is_folded(need):
        return need.group.removeprefix(FOLDED_GROUP_PREFIX)
    return need.profile.same_key


class _GangFolder:
    """Which gangs some machine could hold."""

    def __init__(self, fleet: Fleet, demand: Demand) -> None:
        self._fleet = fleet
        self._columns = FlavourColumns(fleet.flavours)
        self._matcher = Matcher(fleet.flavours, self._columns)
        self._capacities = Capacities(self._columns, self._matcher, demand)
        self._unclaimed_flavours = self._flavours_of(_in(fleet.state, _UNCLAIMED_STATES))
        self._lowest_priority = self._lowest_priorities()
        self._serving: dict[int, Flags] = {}
        self._profiles: dict[str, Profile] = {}
        self._known: dict[tuple[int, str, tuple[tuple[str, int], ...]], bool] = {}
        self._accepting: dict[str, Flags] = {}

    def folded(self, gang: Need) -> Need:
        """One gang as a pod of a plain need. Its machines must still have the label that its pods
        look for.
        """
        gang_profile = gang.profile
        if gang_profile.fingerprint not in self._profiles:
            self._profiles[gang_profile.fingerprint] = _without_same(gang_profile)
        sizes = sizes_of([(total_of(gang.sizes), 1)])
        group = f"{FOLDED_GROUP_PREFIX}{gang_profile.same_key}"
        return Need(self._profiles[gang_profile.fingerprint], sizes, group, gang.priority_ceiling)

    def fits(self, need: Need, cluster: int) -> bool:
        """Whether it is a gang, and some machine that may serve it could hold all of it."""
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
        """Flavours of the cluster's own machines, and of those that are anybody's."""
        if cluster not in self._serving:
            fleet = self._fleet
            bound = _in(fleet.state, (MachineState.CONFIGURED, MachineState.CONFIGURING))
            own = self._flavours_of(bound & (fleet.cluster == cluster))
            self._serving[cluster] = own | self._unclaimed_flavours
        return self._serving[cluster]

    def _lowest_priorities(self) -> Longs:
        """By flavour, the lowest priority that a machine at work serves: a higher one may take it.

        Without this, a hundred small gangs would evict the pods of a hundred machines.
        """
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
    """The same profile for machines each of which holds a whole gang.

    Every machine has a host name, though none that could be known beforehand.
    """
    requirements = [
        Requirement(r.key, Operator.EXISTS) if r.operator is Operator.SAME else r
        for r in gang_profile.requirements
        if not (r.operator is Operator.SAME and r.key == HOSTNAME_LABEL)
    ]
    return profile(
        requirements,
        (),  # Same outranked it, and still does
        gang_profile.priority,
        gang_profile.interruption_bucket,
        gang_profile.reclamation_bucket,
        alternatives=gang_profile.alternatives,
        tolerations=gang_profile.tolerations,
        never_preempts=gang_profile.never_preempts,
    )


def _in(state: Bytes, states: Iterable[MachineState]) -> Flags:
    flags: Flags = np.isin(state, [int(each) for each in states])
    return flags
