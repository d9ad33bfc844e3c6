"""What a plan needs where pods of all sizes share ordinary machines, and whether there is enough.

Nothing here packs: each check is one that no fleet can miss and still hold the pods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bigfleet.model import resources
from loaddriver.catalog import Catalog
from loaddriver.demand import Demand, demand, high_points
from loaddriver.fit import Offer, PodNeeds, offers_for, pod_needs, pods_by_needs
from loaddriver.inventory import SeedMachine
from loaddriver.lower_bound import least_dollars_per_hour, least_machines
from loaddriver.plan_records import Plan, Workload

# Packing never uses all of every machine.
_ROOM_TO_PACK = 1.1
_COLUMNS = (8, 8, 15, 9, 9)


@dataclass(frozen=True)
class SharedDemand:
    """The workloads that are there at each moment after which something shrinks, and at the end."""

    moments: tuple[tuple[Workload, ...], ...]

    @property
    def peak(self) -> tuple[Workload, ...]:
        """The moment with most pods."""
        return max(self.moments, key=_pods)

    @property
    def pods(self) -> int:
        """The most pods at once."""
        return _pods(self.peak)

    @property
    def same_rack_share(self) -> float:
        """The part of them that must share a rack with their group."""
        gangs = [each for each in self.peak if each.topology == "sameRack"]
        return _pods(gangs) / self.pods


def demand_of(plan: Plan, catalog: Catalog) -> Demand | SharedDemand:
    """What the plan's workloads need of machines as the catalog has them."""
    if not catalog.shares_machines:
        return demand(plan, catalog)
    return SharedDemand(tuple(tuple(each) for each in high_points(plan)))


@dataclass(frozen=True)
class Feasibility:
    """A fleet of ordinary machines held against what is asked of it."""

    needed: SharedDemand
    machines: Sequence[SeedMachine]
    catalog: Catalog

    def shortages(self) -> Iterator[str]:
        """Why the fleet cannot hold the pods, in words; nothing if no such reason is known."""
        homeless = list(self._homeless())
        yield from homeless
        if not homeless:
            yield from self._too_little()
            yield from self._too_few_to_stay_apart()
            yield from self._no_rack()

    def lines(self) -> Iterator[str]:
        """What is asked for at the peak, and what there is, in 80 columns."""
        yield _row("at the peak", "objects", "pods", "CPU of one, m", "CPU", "GiB")
        kinds: defaultdict[str, list[Workload]] = defaultdict(list)
        for workload in self.needed.peak:
            kinds[workload.archetype].append(workload)
        for name in (each.name for each in self.catalog.archetypes if each.name in kinds):
            yield self._row_of(name, kinds[name])
        yield self._row_of("all", self.needed.peak)
        pods = pods_by_needs(self.needed.peak, self.catalog)
        offers = self._offers([*pods])
        dollars = least_dollars_per_hour(pods, offers)
        count = f"{len(self.machines):,} machines"
        yield f"  the fleet has {count}; the peak takes {least_machines(pods, offers)} of them,"
        yield f"  and ${dollars:,.0f} an hour, at the very least"

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

    def _offers(self, pods: Sequence[PodNeeds]) -> Counter[Offer]:
        return offers_for(pods, self.machines, self.catalog.daemon_sets)

    def _homeless(self) -> Iterator[str]:
        """Sizes that no single machine holds."""
        used = sorted({(w.archetype, w.size) for m in self.needed.moments for w in m})
        asked = {key: pod_needs(self.catalog.archetype(key[0]), key[1]) for key in used}
        offers = self._offers([*asked.values()])
        lost: defaultdict[str, list[PodNeeds]] = defaultdict(list)
        for (name, _), needs in asked.items():
            if not any(needs.fits(offer) for offer in offers):
                lost[name].append(needs)
        for name, sizes in lost.items():
            accepted = [offer for offer in offers if sizes[-1].accepts(offer)]
            largest = max(accepted, key=lambda offer: dict(offer.room)["cpu"], default=None)
            seen = f"the largest leaves {_text(largest.room)}" if largest else "it may use none"
            yield (
                f"{len(sizes)} of the sizes of {name} fit no machine that their pods may use: one "
                f"asks for {_text(sizes[-1].requests)}, {seen}"
            )

    def _too_little(self) -> Iterator[str]:
        """For each set of machines that some pods are confined to, all that is confined to it."""
        told: set[str] = set()
        for moment in self.needed.moments:
            pods = pods_by_needs(moment, self.catalog)
            offers = self._offers([*pods])
            where = {
                needs: frozenset(offer for offer in offers if needs.accepts(offer))
                for needs in pods
            }
            for allowed in dict.fromkeys(where.values()):
                inside = {needs: n for needs, n in pods.items() if where[needs] <= allowed}
                room = {offer: offers[offer] for offer in allowed}
                for line in _lacking(inside, room):
                    if line not in told:
                        told.add(line)
                        yield line

    def _too_few_to_stay_apart(self) -> Iterator[str]:
        worst: dict[str, Workload] = {}
        for each in (w for moment in self.needed.moments for w in moment):
            if self.catalog.archetype(each.archetype).anti_affinity is not None:
                known = worst.get(each.archetype)
                if known is None or known.replicas < each.replicas:
                    worst[each.archetype] = each
        for name, workload in worst.items():
            needs = pod_needs(self.catalog.archetype(name), workload.size)
            offers = self._offers([needs])
            machines = sum(n for offer, n in offers.items() if needs.fits(offer))
            if machines < workload.replicas:
                yield (
                    f"{workload.name} has {workload.replicas} pods of which no two may share a "
                    f"machine; the fleet has {machines} that hold one"
                )

    def _no_rack(self) -> Iterator[str]:
        """Gangs for which there is no rack, be it empty."""
        racks: defaultdict[str, list[SeedMachine]] = defaultdict(list)
        for machine in self.machines:
            racks[machine.rack].append(machine)
        gangs = {w for m in self.needed.moments for w in m if w.topology == "sameRack"}
        places: dict[tuple[str, int], int] = {}
        for gang in sorted(gangs, key=lambda each: (each.archetype, each.size)):
            key = gang.archetype, gang.size
            if key not in places:
                needs = pod_needs(self.catalog.archetype(key[0]), key[1])
                agents = self.catalog.daemon_sets
                places[key] = max(
                    _whole_pods(needs, offers_for([needs], own, agents)) for own in racks.values()
                )
            if places[key] < gang.replicas:
                yield (
                    f"{gang.name} has {gang.replicas} pods that must share a rack; the roomiest "
                    f"has {places[key]} places for them"
                )
                return


def _row(name: str, *cells: object) -> str:
    return f"  {name:<24}" + "".join(
        f"{cell!s:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True)
    )


def _pods(workloads: Sequence[Workload]) -> int:
    return sum(each.replicas for each in workloads)


def _lacking(pods: Mapping[PodNeeds, int], offers: Mapping[Offer, int]) -> Iterator[str]:
    asked: Counter[str] = Counter()
    for needs, count in pods.items():
        for name, amount in needs.requests:
            asked[name] += amount * count
    there: Counter[str] = Counter()
    for offer, count in offers.items():
        for name, amount in offer.room:
            there[name] += amount * count
    for name, amount in sorted(asked.items()):
        if amount * _ROOM_TO_PACK > there[name]:
            yield (
                f"{sum(pods.values())} pods may use {sum(offers.values())} machines only; they ask "
                f"for {resources.text(name, amount)} {name}, and those have "
                f"{resources.text(name, there[name])} (a tenth more is needed to pack them)"
            )


def _whole_pods(needs: PodNeeds, offers: Mapping[Offer, int]) -> int:
    return sum(n * needs.places(offer) for offer, n in offers.items() if needs.accepts(offer))


def _text(amounts: Sequence[tuple[str, int]]) -> str:
    texts = resources.texts(dict(amounts))
    return ", ".join(f"{texts[name]} {name}" for name in sorted(texts) if name != "pods")
