"""The demand of a plan on shared machines, and necessary conditions for a fleet to hold it.

Nothing is packed: each check is a condition that every sufficient fleet meets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bigfleet.model import resources
from loaddriver.plan.records import Plan, Workload
from loaddriver.profile.catalog import Catalog
from loaddriver.sizing.demand import PlanDemand, demand, demand_peaks
from loaddriver.sizing.fit import (
    Offering,
    PodRequirements,
    group_offerings,
    pod_requirements,
    pods_by_requirements,
)
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.sizing.lower_bound import least_dollars_per_hour, least_machines

# Packing never fills every machine.
_PACKING_HEADROOM = 1.1
_COLUMNS = (8, 8, 15, 9, 9)


@dataclass(frozen=True)
class SharedMachineDemand:
    """The workloads at each moment before something shrinks, and at the end."""

    moments: tuple[tuple[Workload, ...], ...]

    @property
    def peak(self) -> tuple[Workload, ...]:
        """The workloads at the moment with most pods."""
        return max(self.moments, key=_pods)

    @property
    def pods(self) -> int:
        """The number of pods at the peak."""
        return _pods(self.peak)

    @property
    def same_rack_share(self) -> float:
        """The share of pods that must share a rack with their group."""
        gangs = [each for each in self.peak if each.topology == "sameRack"]
        return _pods(gangs) / self.pods


def compute_demand(plan: Plan, catalog: Catalog) -> PlanDemand | SharedMachineDemand:
    """The plan's demand, for dedicated or shared machines as the catalog has them."""
    if not catalog.shares_machines:
        return demand(plan, catalog)
    return SharedMachineDemand(tuple(tuple(each) for each in demand_peaks(plan)))


@dataclass(frozen=True)
class SharedFleetFeasibility:
    """Checks a fleet of shared machines against demand."""

    needed: SharedMachineDemand
    machines: Sequence[InventoryMachine]
    catalog: Catalog

    def shortages(self) -> Iterator[str]:
        """Why the fleet cannot hold the pods, as sentences; empty if no reason is known."""
        unschedulable = list(self._unschedulable_sizes())
        yield from unschedulable
        if not unschedulable:
            yield from self._insufficient_resources()
            yield from self._insufficient_for_anti_affinity()
            yield from self._insufficient_racks()

    def lines(self) -> Iterator[str]:
        """Peak demand and supply, in 80 columns."""
        yield _row("at the peak", "objects", "pods", "CPU of one, m", "CPU", "GiB")
        by_archetype: defaultdict[str, list[Workload]] = defaultdict(list)
        for workload in self.needed.peak:
            by_archetype[workload.archetype].append(workload)
        for name in (each.name for each in self.catalog.archetypes if each.name in by_archetype):
            yield self._row_of(name, by_archetype[name])
        yield self._row_of("all", self.needed.peak)
        pods = pods_by_requirements(self.needed.peak, self.catalog)
        offerings = self._offers([*pods])
        dollars = least_dollars_per_hour(pods, offerings)
        count = f"{len(self.machines):,} machines"
        yield f"  the fleet has {count}; the peak needs at least {least_machines(pods, offerings)}"
        yield f"  of them, and ${dollars:,.0f} per hour"

    def _row_of(self, name: str, workloads: Sequence[Workload]) -> str:
        sizes = [(self.catalog.archetype(w.archetype).sizes[w.size], w.replicas) for w in workloads]
        cpu = [size.cpu_millicores for size, _ in sizes]
        return _row(
            name,
            len(workloads),
            _pods(workloads),
            f"{min(cpu)}-{max(cpu)}",
            f"{sum(size.cpu_millicores * n for size, n in sizes) / 1000:,.0f}",
            f"{sum(size.memory_mebibytes * n for size, n in sizes) / 1024:,.0f}",
        )

    def _offers(self, pods: Sequence[PodRequirements]) -> Counter[Offering]:
        return group_offerings(pods, self.machines, self.catalog.daemon_sets)

    def _unschedulable_sizes(self) -> Iterator[str]:
        """Sizes that fit no machine."""
        used = sorted({(w.archetype, w.size) for m in self.needed.moments for w in m})
        needs = {key: pod_requirements(self.catalog.archetype(key[0]), key[1]) for key in used}
        offerings = self._offers([*needs.values()])
        lost: defaultdict[str, list[PodRequirements]] = defaultdict(list)
        for (name, _), requirements in needs.items():
            if not any(requirements.fits(offering) for offering in offerings):
                lost[name].append(requirements)
        for name, sizes in lost.items():
            accepted = [offering for offering in offerings if sizes[-1].accepts(offering)]
            largest = max(
                accepted, key=lambda offering: dict(offering.available)["cpu"], default=None
            )
            seen = f"the largest has {_text(largest.available)}" if largest else "none is allowed"
            yield (
                f"{len(sizes)} of the sizes of {name} fit no machine that their pods accept: one "
                f"requests {_text(sizes[-1].requests)}, {seen}"
            )

    def _insufficient_resources(self) -> Iterator[str]:
        """Compare each set of machines that pods are confined to with all those pods."""
        reported: set[str] = set()
        for moment in self.needed.moments:
            pods = pods_by_requirements(moment, self.catalog)
            offerings = self._offers([*pods])
            where = {
                requirements: frozenset(
                    offering for offering in offerings if requirements.accepts(offering)
                )
                for requirements in pods
            }
            for allowed in dict.fromkeys(where.values()):
                inside = {
                    requirements: n
                    for requirements, n in pods.items()
                    if where[requirements] <= allowed
                }
                available = {offering: offerings[offering] for offering in allowed}
                for line in _shortfalls(inside, available):
                    if line not in reported:
                        reported.add(line)
                        yield line

    def _insufficient_for_anti_affinity(self) -> Iterator[str]:
        worst: dict[str, Workload] = {}
        for each in (w for moment in self.needed.moments for w in moment):
            if self.catalog.archetype(each.archetype).anti_affinity is not None:
                known = worst.get(each.archetype)
                if known is None or known.replicas < each.replicas:
                    worst[each.archetype] = each
        for name, workload in worst.items():
            requirements = pod_requirements(self.catalog.archetype(name), workload.size)
            offerings = self._offers([requirements])
            machines = sum(n for offering, n in offerings.items() if requirements.fits(offering))
            if machines < workload.replicas:
                yield (
                    f"{workload.name} has {workload.replicas} pods of which no two may share a "
                    f"machine; only {machines} machines fit one"
                )

    def _insufficient_racks(self) -> Iterator[str]:
        """The first gang that fits no rack, even an empty one."""
        racks: defaultdict[str, list[InventoryMachine]] = defaultdict(list)
        for machine in self.machines:
            racks[machine.rack].append(machine)
        gangs = {w for m in self.needed.moments for w in m if w.topology == "sameRack"}
        places: dict[tuple[str, int], int] = {}
        for gang in sorted(gangs, key=lambda each: (each.archetype, each.size)):
            key = gang.archetype, gang.size
            if key not in places:
                requirements = pod_requirements(self.catalog.archetype(key[0]), key[1])
                agents = self.catalog.daemon_sets
                places[key] = max(
                    _fitting_pods(requirements, group_offerings([requirements], own, agents))
                    for own in racks.values()
                )
            if places[key] < gang.replicas:
                yield (
                    f"{gang.name} has {gang.replicas} pods that must share a rack; the largest "
                    f"rack fits {places[key]}"
                )
                return


def _row(name: str, *cells: object) -> str:
    return f"  {name:<24}" + "".join(
        f"{cell!s:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True)
    )


def _pods(workloads: Sequence[Workload]) -> int:
    return sum(each.replicas for each in workloads)


def _shortfalls(
    pods: Mapping[PodRequirements, int], offerings: Mapping[Offering, int]
) -> Iterator[str]:
    requested: Counter[str] = Counter()
    for requirements, count in pods.items():
        for name, amount in requirements.requests:
            requested[name] += amount * count
    supplied: Counter[str] = Counter()
    for offering, count in offerings.items():
        for name, amount in offering.available:
            supplied[name] += amount * count
    for name, amount in sorted(requested.items()):
        if amount * _PACKING_HEADROOM > supplied[name]:
            yield (
                f"{sum(pods.values())} pods accept only {sum(offerings.values())} machines; they "
                f"request {resources.text(name, amount)} {name}, the machines have "
                f"{resources.text(name, supplied[name])} (10 % more is needed for packing)"
            )


def _fitting_pods(requirements: PodRequirements, offerings: Mapping[Offering, int]) -> int:
    return sum(
        n * requirements.count_fitting(offering)
        for offering, n in offerings.items()
        if requirements.accepts(offering)
    )


def _text(amounts: Sequence[tuple[str, int]]) -> str:
    texts = resources.texts(dict(amounts))
    return ", ".join(f"{texts[name]} {name}" for name in sorted(texts) if name != "pods")
