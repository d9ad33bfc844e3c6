"""Demand in the shape that claiming whole machines can serve truthfully.

A gang that fits on one machine needs no common domain: any machine with room puts it together. Were
each such gang to claim a machine of its own, as a gang over several machines must, a hundred small
gangs would claim a hundred machines that the scheduler packs into ten. So they fold: all gangs of
one cluster, profile and size become one plain need whose `min_unit` is one whole gang. A gang that
fits on no machine keeps its Same requirement.

Whether a gang folds depends on the machines there are now, and is decided anew each cycle.

Plain needs that differ only in spread that they merely prefer ask for the same machines. Apart,
each of them would round up to whole machines of its own, so they are served as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.matching import Matcher, placement_requirements
from bigfleet.engine.snapshot import Bytes, Demand, Flags, Fleet, Longs
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Profile, Requirement, profile, sizes_of

# An operator's groups begin with a namespace, which holds no colon: they never look like this.
_FOLDED_GROUP = "folded:"

# One that is being created was free when it was chosen, and one that drains was chosen or will be
# free: their gangs must not unfold meanwhile.
_ANYBODYS = (
    MachineState.IDLE,
    MachineState.SPECULATIVE,
    MachineState.CREATING,
    MachineState.DRAINING,
)

Size = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Class:
    """Gangs that are alike: one cluster, one profile, one size."""

    cluster: int
    profile: Profile
    size: Size


@dataclass(frozen=True)
class Folding:
    """`demand` in the shape in which it is served, and for each need that was asked for the index
    of the one that serves it.
    """

    demand: Demand
    served_by: Sequence[int]


def normalise(fleet: Fleet, demand: Demand) -> Demand:
    """`demand` in the shape in which it is served."""
    return fold(fleet, demand).demand


def fold(fleet: Fleet, demand: Demand) -> Folding:
    """`demand` with every gang folded that some one serving machine could hold, and with preferred
    spread left out where that makes needs one.

    A need that serves several stands where the first of them stood. Where there is nothing to fold,
    the very same Demand is returned.
    """
    if all(need.profile.same_key is None and not _prefers(need) for need in demand.needs):
        return Folding(demand, range(len(demand.needs)))
    folder, alike = _Folder(fleet), _Alike(demand)
    needs: list[Need] = []
    clusters: list[int] = []
    served_by: list[int] = []
    place: dict[tuple[int, tuple[str, str]], int] = {}
    for need, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True):
        kind = _Class(cluster, need.profile, tuple(sorted(need.aggregate.items())))
        served = folder.folded(kind) if folder.fits(kind) else alike.served(need, cluster)
        at = place.setdefault((cluster, served.key), len(needs))
        served_by.append(at)
        if at < len(needs):
            needs[at] = _joined(needs[at], served)
        else:
            needs.append(served)
            clusters.append(cluster)
    served_demand = replace(demand, needs=needs, cluster=np.array(clusters, np.int32))
    return Folding(served_demand, served_by)


def _folded(kind: _Class) -> Need:
    """One gang as a plain need. Its machines must still have the label that its pods look for."""
    requirements = tuple(
        Requirement(r.key, Operator.EXISTS) if r.operator is Operator.SAME else r
        for r in kind.profile.requirements
    )
    size = ",".join(f"{name}={amount}" for name, amount in kind.size)
    return Need(
        profile(
            requirements,
            (),  # Same outranked it, and still does
            kind.profile.priority,
            kind.profile.interruption_bucket,
            kind.profile.reclamation_bucket,
        ),
        sizes_of([(dict(kind.size), 1)]),
        f"{_FOLDED_GROUP}{kind.profile.same_key}:{size}",
    )


def is_folded(need: Need) -> bool:
    """Whether it stands for gangs each of which fits on one machine."""
    return need.group.startswith(_FOLDED_GROUP)


def home_key(need: Need) -> str | None:
    """The topology key whose domain a gang's pods share, though it may be folded; None for others.

    Label keys hold no colon.
    """
    if is_folded(need):
        return need.group.removeprefix(_FOLDED_GROUP).partition(":")[0]
    return need.profile.same_key


def _joined(one: Need, other: Need) -> Need:
    return replace(one, sizes=sizes_of((dict(a), n) for a, n in (*one.sizes, *other.sizes)))


def _prefers(need: Need) -> bool:
    """Whether a plain need has spread that machines may break."""
    profile_ = need.profile
    return profile_.same_key is None and any(not term.hard for term in profile_.spread)


class _Alike:
    """Which needs are the same but for preferred spread, and have pods of one size: of several
    sizes, the small ones would be counted in whole units of the largest.
    """

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._plain: dict[Profile, Profile] = {}

    def served(self, need: Need, cluster: int) -> Need:
        """`need` without preferred spread, unless its pods differ from those of its likes."""
        if not _prefers(need) or len(self._sizes[self._place(need, cluster)]) > 1:
            return need
        return replace(need, profile=self._without_preferences(need.profile))

    @cached_property
    def _sizes(self) -> dict[tuple[int, Profile, str], set[Size]]:
        sizes: dict[tuple[int, Profile, str], set[Size]] = {}
        for need, cluster in zip(self._demand.needs, self._demand.cluster.tolist(), strict=True):
            size = tuple(sorted(need.largest.items()))
            sizes.setdefault(self._place(need, cluster), set()).add(size)
        return sizes

    def _place(self, need: Need, cluster: int) -> tuple[int, Profile, str]:
        return cluster, self._without_preferences(need.profile), need.group

    def _without_preferences(self, kind: Profile) -> Profile:
        if kind not in self._plain:
            hard = tuple(term for term in kind.spread if term.hard)
            self._plain[kind] = replace(kind, spread=hard)
        return self._plain[kind]


class _Folder:
    """Which gangs some machine could hold, remembered per class."""

    def __init__(self, fleet: Fleet) -> None:
        self._columns = FlavourColumns(fleet.flavours)
        self._matcher = Matcher(self._columns)
        self._free = self._flavours_of(fleet, _in(fleet.state, _ANYBODYS))
        self._lowest_priority = self._lowest_priorities(fleet)
        self._fleet = fleet
        self._serving: dict[int, Flags] = {}
        self._known: dict[_Class, bool] = {}
        self._folded: dict[_Class, Need] = {}

    def folded(self, kind: _Class) -> Need:
        """One gang of the class as a plain need."""
        if kind not in self._folded:
            self._folded[kind] = _folded(kind)
        return self._folded[kind]

    def fits(self, kind: _Class) -> bool:
        """Whether one machine that may serve the class matches it and holds a whole gang."""
        if kind.profile.same_key is None:
            return False
        if kind not in self._known:
            accepted = self._matcher.flavours(placement_requirements(kind.profile))
            takeable = self._lowest_priority < kind.profile.priority
            candidates = accepted & (self._serving_flavours(kind.cluster) | takeable)
            for resource, amount in kind.size:
                candidates = candidates & (self._columns.allocatable(resource) >= amount)
            self._known[kind] = bool(candidates.any())
        return self._known[kind]

    def _serving_flavours(self, cluster: int) -> Flags:
        """Flavours of the cluster's own machines, and of those that are anybody's."""
        if cluster not in self._serving:
            fleet = self._fleet
            bound = _in(fleet.state, (MachineState.CONFIGURED, MachineState.CONFIGURING))
            own = self._flavours_of(fleet, bound & (fleet.cluster == cluster))
            self._serving[cluster] = own | self._free
        return self._serving[cluster]

    def _lowest_priorities(self, fleet: Fleet) -> Longs:
        """By flavour, the lowest priority that a machine at work serves: a higher one may take it.

        Without this, a hundred small gangs would evict the pods of a hundred machines.
        """
        lowest = np.full(len(self._columns), np.iinfo(np.int64).max)
        working = fleet.state == MachineState.CONFIGURED
        np.minimum.at(lowest, fleet.flavour[working], fleet.priority[working])
        return lowest

    def _flavours_of(self, fleet: Fleet, rows: Flags) -> Flags:
        present = np.zeros(len(self._columns), np.bool_)
        present[fleet.flavour[rows]] = True
        return present


def _in(state: Bytes, states: Iterable[MachineState]) -> Flags:
    flags: Flags = np.isin(state, [int(each) for each in states])
    return flags
