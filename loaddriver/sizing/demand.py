"""The demand of a plan: pods, gangs and dedicated machines for every pod size, each at its peak.

Bursts and demand steps come and go, and the fleet must suffice at every moment, so each pod size is
counted at the moment that needs most machines of it.

There are two counts of machines. `machines_packed` is the minimum that holds the pods, each gang
within one rack. `machines_claimed` is what BigFleet allocates, as every group of equal pods takes
whole machines of its own. Supply is sized by the latter; fewer would leave pods waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.plan.records import Plan, Workload
from loaddriver.profile.catalog import Catalog

Size = tuple[str, int]
"""An archetype's name and the position of one of its pod sizes."""


@dataclass(frozen=True)
class ClusterDemand:
    """The machines allocated to one or several clusters.

    `gang_machines` is the number of machines of each gang larger than a machine.
    """

    machines_claimed: int
    gang_machines: tuple[int, ...]


@dataclass(frozen=True)
class SizeDemand:
    """The demand for one pod size of one archetype at its peak.

    `by_cluster` has the clusters with any demand, most machines first.
    """

    archetype: str
    size: int
    pods: int
    gang_pods: int
    same_rack_pods: int
    machines_packed: int
    by_cluster: tuple[ClusterDemand, ...]

    @property
    def machines_claimed(self) -> int:
        """The machines allocated in all clusters."""
        return self.largest_clusters(len(self.by_cluster)).machines_claimed

    @property
    def gang_machines(self) -> tuple[int, ...]:
        """The machines of each gang larger than a machine, in all clusters."""
        return self.largest_clusters(len(self.by_cluster)).gang_machines

    def largest_clusters(self, clusters: int) -> ClusterDemand:
        """The most that any `clusters` clusters can need together."""
        largest = self.by_cluster[:clusters]
        return ClusterDemand(
            machines_claimed=sum(each.machines_claimed for each in largest),
            gang_machines=tuple(gang for each in largest for gang in each.gang_machines),
        )


@dataclass(frozen=True)
class PlanDemand:
    """The demand of a whole plan, in catalog order."""

    sizes: tuple[SizeDemand, ...]

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(size.pods for size in self.sizes)

    @property
    def machines_packed(self) -> int:
        """The minimum number of machines that holds all pods."""
        return sum(size.machines_packed for size in self.sizes)

    @property
    def machines_claimed(self) -> int:
        """The machines allocated when each group of equal pods takes whole ones."""
        return sum(size.machines_claimed for size in self.sizes)

    @property
    def same_rack_share(self) -> float:
        """The share of pods that must share a rack with their group."""
        return sum(size.same_rack_pods for size in self.sizes) / self.pods


def demand(plan: Plan, catalog: Catalog) -> PlanDemand:
    """The plan's demand for dedicated machines, at the peak of each pod size."""
    density = {each.name: each.density for each in catalog.archetypes}
    peaks: dict[Size, SizeDemand] = {}
    for workloads in demand_peaks(plan):
        by_size: defaultdict[Size, list[Workload]] = defaultdict(list)
        for workload in workloads:
            by_size[workload.archetype, workload.size].append(workload)
        for size, own in by_size.items():
            now, peak = _size_demand(own, density[size[0]]), peaks.get(size)
            if peak is None or _peak_key(now) > _peak_key(peak):
                peaks[size] = now
    in_order = [(each.name, size) for each in catalog.archetypes for size in range(len(each.sizes))]
    return PlanDemand(tuple(peaks[size] for size in in_order if size in peaks))


def _peak_key(size: SizeDemand) -> tuple[int, int]:
    return size.machines_claimed, size.pods


def demand_peaks(plan: Plan) -> Iterator[Sequence[Workload]]:
    """The workloads, with current replicas, each time before something shrinks and at the end."""
    workloads = {(each.cluster, each.name): each for each in plan.workloads}
    present: dict[tuple[int, str], Workload] = {}
    grown = False
    for level in plan.levels:
        key = level.cluster, level.workload
        before = present[key].replicas if key in present else 0
        if grown and level.replicas < before:
            yield list(present.values())
        if level.replicas != before:
            grown = level.replicas > before
        present[key] = msgspec.structs.replace(workloads[key], replicas=level.replicas)
        if not level.replicas:
            del present[key]
    yield list(present.values())


def _size_demand(workloads: Sequence[Workload], density: int) -> SizeDemand:
    clusters: dict[int, list[Workload]] = defaultdict(list)
    for workload in workloads:
        clusters[workload.cluster].append(workload)
    gangs = [workload for workload in workloads if workload.group is not None]
    return SizeDemand(
        archetype=workloads[0].archetype,
        size=workloads[0].size,
        pods=_pods(workloads),
        gang_pods=_pods(gangs),
        same_rack_pods=_pods(each for each in gangs if each.topology == "sameRack"),
        machines_packed=sum(_packed(own, density) for own in clusters.values()),
        by_cluster=tuple(
            sorted(
                (_cluster_demand(own, density) for own in clusters.values()),
                key=lambda each: -each.machines_claimed,
            )
        ),
    )


def _cluster_demand(workloads: Sequence[Workload], density: int) -> ClusterDemand:
    gangs = (each.replicas for each in workloads if each.group is not None)
    return ClusterDemand(
        machines_claimed=_claimed(workloads, density),
        gang_machines=tuple(_machines(pods, density) for pods in gangs if pods > density),
    )


def _pods(workloads: Iterable[Workload]) -> int:
    return sum(workload.replicas for workload in workloads)


def _machines(pods: int, density: int) -> int:
    return -(-pods // density)


def _packed(workloads: Sequence[Workload], density: int) -> int:
    """Pack one cluster's pods.

    A small gang stays on one machine, as other machines may be in another rack; a large one takes
    whole machines; other pods fill the rest.
    """
    large = 0
    free: list[int] = []
    for size in sorted((each.replicas for each in workloads if each.group), reverse=True):
        if size > density:
            large += _machines(size, density)
            continue
        fitting = next((place for place, left in enumerate(free) if left >= size), None)
        if fitting is None:
            free.append(density - size)
        else:
            free[fitting] -= size
    plain = _pods(each for each in workloads if not each.group)
    return large + len(free) + _machines(max(0, plain - sum(free)), density)


def _claimed(workloads: Sequence[Workload], density: int) -> int:
    """Count one cluster's machines when each group of equal pods takes its own.

    Groups are pods with spread, pods without, and the gangs of each size together.
    """
    plain: Counter[bool] = Counter()
    gangs: Counter[int] = Counter()
    for workload in workloads:
        if workload.group is None:
            plain[workload.spread] += workload.replicas
        else:
            gangs[workload.replicas] += 1
    machines = sum(_machines(pods, density) for pods in plain.values())
    for size, count in gangs.items():
        if size > density:
            machines += count * _machines(size, density)
        else:
            machines += _machines(count, density // size)
    return machines
