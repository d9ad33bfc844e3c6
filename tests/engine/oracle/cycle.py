"""The oracle's state of a decision: needs, machines and clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from bigfleet.engine.cycle_memory import ClusterMemory, CycleMemory, Reservation
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Flavour, Fleet
from bigfleet.model import penalty
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.group import ADDITIONAL, FoldedGangs
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, NeedKey, Spread
from tests.engine.oracle.matching import hard_terms, room_of, suits
from tests.engine.oracle.objects import (
    ACQUIRABLE_STATES,
    Cluster,
    Machine,
    PodSize,
    S,
    Slot,
    keep_order,
    machine_of,
)

_ORDINARY = ("cpu", "memory", "pods", "ephemeral-storage", "storage")


def _is_scarce(resource: str) -> bool:
    return resource not in _ORDINARY and not resource.startswith("hugepages-")


class NeedView:
    """One need, and how flavours fit it; `sizes` are its pods, the largest share first."""

    def __init__(self, cycle: Cycle, index: int, need: Need, cluster: int) -> None:
        self._fleet, self._cycle = cycle.fleet, cycle
        self.index, self.need, self.cluster = index, need, cluster
        self.profile = need.profile
        self.priority = need.priority
        self.terms: tuple[Spread, ...] = hard_terms(need.profile)
        self.apart = need.profile.anti_affinity
        self.one_a_machine = HOSTNAME_LABEL in self.apart
        self.is_folded = isinstance(need.group, FoldedGangs)
        self._suits: dict[int, bool] = {}
        self.sizes = self._sizes()
        possible = [size for size in self.sizes if not size.impossible]
        self.asked = {name for size in possible for name in size.amounts}

    @property
    def kind(self) -> str:
        """How it is placed."""
        if self.need.group == ADDITIONAL:
            return "additional"
        if self.profile.same_key is not None:
            return "gang"
        return "constrained" if self.terms or self.apart else "plain"

    @property
    def key(self) -> NeedKey:
        """Its identity among the needs of all clusters."""
        return NeedKey(self._fleet.clusters[self.cluster], *self.need.key)

    @property
    def lacks(self) -> bool:
        """Whether it has unplaced pods, impossible ones left out."""
        return any(size.left for size in self.sizes)

    def accepts(self, flavour: Flavour) -> bool:
        """Whether a machine meets all per-machine conditions."""
        if id(flavour) not in self._suits:
            self._suits[id(flavour)] = suits(self.profile, flavour)
        return self._suits[id(flavour)]

    def cost(self, flavour: Flavour) -> float:
        """Dollars per hour, interruptions included."""
        probability = flavour.interruption_probability
        if self.profile.interruption_bucket == penalty.PINNED:
            return math.inf if probability > 0 else flavour.price_per_hour
        dollars = penalty.dollars(self.profile.interruption_bucket)
        return flavour.price_per_hour + probability * dollars

    @property
    def requests_scarce(self) -> bool:
        """Whether any size requests a scarce resource."""
        return any(_is_scarce(name) for name in self.asked)

    def has_other_scarce(self, flavour: Flavour) -> bool:
        """Whether the machine has a scarce resource that no size requests."""
        return any(
            amount > 0 and name not in self.asked and _is_scarce(name)
            for name, amount in flavour.allocatable.items()
        )

    def tier(self, flavour: Flavour) -> int:
        """The candidate tier of such machines."""
        return 2 * math.isinf(self.cost(flavour)) + self.has_other_scarce(flavour)

    def holds_one(self, room: Mapping[str, int], size: PodSize) -> bool:
        """Whether an empty machine holds a pod."""
        return all(room.get(name, 0) >= amount for name, amount in size.amounts.items())

    def _sizes(self) -> list[PodSize]:
        flavours = {id(m.flavour): m.flavour for m in self._cycle.machines}.values()
        known, largest = {*self._cycle.resources}, self._cycle.largest
        rooms = [self._cycle.room(self.cluster, f) for f in flavours if self.accepts(f)]
        sizes = []
        for number, (amounts, pods) in enumerate(self.need.sizes):
            size = PodSize(self.index, number, dict(amounts), pods)
            parts = [float(a) / max(largest.get(n, 0), 1) for n, a in amounts if n in known]
            size.share = max(parts, default=0.0)
            size.impossible = self._contradicts_itself() or not any(
                self.holds_one(room, size) for room in rooms
            )
            size.left = 0 if size.impossible else pods
            sizes.append(size)
        return sorted(sizes, key=lambda size: (-size.share, size.number))

    def _contradicts_itself(self) -> bool:
        """All on one host that was not folded; or all in one domain, and no two in one."""
        key, repelled = self.profile.same_key, {*self.profile.anti_affinity} - {HOSTNAME_LABEL}
        several = sum(count for _, count in self.need.sizes) > 1
        return key == HOSTNAME_LABEL or (key is not None and bool(repelled) and several)


class Cycle:
    """A decision in progress. `reserved` are the reservations in force; needs in `not_acquiring`
    acquire and preempt nothing; from needs in `at_ceiling` their cluster's ceiling withheld a
    machine when they last tried.
    """

    def __init__(
        self,
        fleet: Fleet,
        demand: Demand,
        cycle_memory: CycleMemory,
        settings: EngineConfig,
        now: float,
    ) -> None:
        self.fleet, self.demand, self.cycle_memory = fleet, demand, cycle_memory
        self.settings, self.now = settings, now
        names = {name for flavour in fleet.flavours for name in flavour.allocatable}
        leading = ("cpu", "memory", "pods")
        self.resources = (*leading, *sorted(names.difference(leading)))
        self.machines = [machine_of(fleet, row) for row in range(len(fleet))]
        self.needs = [
            NeedView(self, index, need, int(demand.cluster[index]))
            for index, need in enumerate(demand.needs)
        ]
        self.reserved: dict[int, Reservation] = {}
        self.served: set[int] = set()
        self.not_acquiring = {need.index for need in self.needs if need.cluster in demand.suspended}
        for reservation in cycle_memory.reservations:
            for need in self.needs:
                if need.key == reservation.need:
                    self._restore_reservation(need.index, reservation)
        self.at_ceiling: set[int] = set()
        self.gang_domains: dict[int, str] = {}
        self.acquired: dict[int, list[Machine]] = {}
        #: of needs with hard topology spread: how many pods run already, by the last count
        self.running = self._running()
        self.beyond_skew: set[int] = set()
        for machine in self.machines:
            self._place(machine)
        self.clusters = [self._cluster(number) for number in range(len(fleet.clusters))]

    def memory_of(self, cluster: int) -> ClusterMemory:
        """The last decision's memory of a cluster."""
        name = self.fleet.clusters[cluster]
        known = {memory.cluster: memory for memory in self.cycle_memory.clusters}
        return known.get(name, ClusterMemory(name))

    def demand_of(self, cluster: int) -> float:
        """The total dominant share of the cluster's pods; impossible ones and additional needs
        left out.
        """
        own = (n for n in self.needs if n.cluster == cluster and n.kind != "additional")
        sizes = (size for need in own for size in need.sizes if not size.impossible)
        return sum((size.pods * size.share for size in sizes), 0.0)

    @cached_property
    def largest(self) -> dict[str, int]:
        """The most of each resource that a machine of the fleet has."""
        largest: dict[str, int] = {}
        for flavour in {id(m.flavour): m.flavour for m in self.machines}.values():
            for name, amount in flavour.allocatable.items():
                largest[name] = max(amount, largest.get(name, 0))
        return largest

    def capacity_of(self, machine: Machine) -> int:
        """The larger share that a machine has of the fleet's most CPU and memory, in millionths."""
        has = machine.flavour.allocatable
        shares = (float(has.get(n, 0)) / max(self.largest.get(n, 0), 1) for n in ("cpu", "memory"))
        return round(max(shares) * 1_000_000)

    def accepting(self, need: NeedView, drained: Sequence[int] = ()) -> int:
        """How many machines in service of its cluster it accepts, without the rows `drained`."""
        its = (m for m in self.machines if m.state is S.CONFIGURED and m.cluster == need.cluster)
        return sum(need.accepts(m.flavour) and m.row not in drained for m in its)

    def _running(self) -> dict[int, int]:
        """What ran in the last decision, less what lost machines may have had."""
        known = {each.need: each for each in self.cycle_memory.spread_pods}
        found = {}
        for need in self.needs:
            if need.kind == "constrained" and need.key in known:
                each = known[need.key]
                lost = max(0, each.machines - self.accepting(need))
                found[need.index] = each.pods - lost * each.most
        return {index: pods for index, pods in found.items() if pods > 0}

    def short_seconds(self, need: NeedView) -> float:
        """For how long the need has been short."""
        ages = [age for age in self.cycle_memory.shortfall_ages if age.need == need.key]
        return self.now - ages[0].since_seconds if ages else 0.0

    def room(self, cluster: int, flavour: Flavour) -> dict[str, int]:
        """Allocatable of a machine for a cluster's pods."""
        return room_of(flavour, self.demand.overheads.get(cluster, ()))

    def cluster_of(self, need: NeedView) -> Cluster:
        """The need's cluster."""
        return self.clusters[need.cluster]

    def is_free(self, need: NeedView, machine: Machine) -> bool:
        """Whether it is available and not reserved for another need of at least its priority, nor
        has just arrived for another cluster or an additional need.
        """
        reserving_need = machine.reserved_for
        if machine.arrived_for != NONE:
            arrived_for = self.needs[machine.arrived_for]
            if arrived_for.cluster != need.cluster or arrived_for.kind == "additional":
                reserving_need = machine.arrived_for
        mine = reserving_need in (NONE, need.index)
        if need.cluster in machine.backed_off_for:
            return False
        return not machine.is_unavailable and (
            mine or self.needs[reserving_need].priority < need.priority
        )

    def held(self, cluster: int) -> list[Machine]:
        """A cluster's machines, those on their way, and those ordered for it."""
        return [
            machine
            for machine in self.machines
            if machine.supply_cluster == cluster
            or (machine.ordered_by != NONE and self.needs[machine.ordered_by].cluster == cluster)
        ]

    def ceiling_allows(self, need: NeedView, machine: Machine, chosen: Sequence[Machine]) -> bool:
        """Whether the ceiling of the need's cluster allows a machine beside those `chosen`."""
        held = {id(each): each for each in (*self.held(need.cluster), *chosen)}
        if machine.supply_cluster == need.cluster:
            return True
        return self.within_ceiling(need.cluster, [*held.values(), machine])

    def within_ceiling(self, cluster: int, machines: Sequence[Machine]) -> bool:
        """Whether a cluster's ceiling allows it all these machines."""
        ceiling = self.demand.ceilings.get(cluster, Ceiling())
        millionths = sum(round(each.flavour.price_per_hour * 1e6) for each in machines)
        return len(machines) <= ceiling.machines and (
            math.isinf(ceiling.dollars_per_hour)
            or millionths <= round(ceiling.dollars_per_hour * 1e6)
        )

    def slots_for(self, need: NeedView) -> Iterator[Slot]:
        """The machines of its cluster that a need may use."""
        for slot in self.cluster_of(need).slots:
            if slot.max_priority >= need.priority and need.accepts(slot.machine.flavour):
                yield slot

    def add(self, cluster: Cluster, machine: Machine) -> Slot:
        """Append a machine to those of a cluster."""
        slot = Slot(machine, self.room(cluster.number, machine.flavour))
        cluster.slots.append(slot)
        return slot

    def holder(self, machine: Machine) -> int:
        """The need that claims a machine: the one that ordered it; else an additional need with
        pods on it; else the first need with pods on it, or the one of equal priority that it is on
        its way to.
        """
        found = self._users(machine)
        additional = [index for index in found if self.needs[index].kind == "additional"]
        if machine.ordered_by == NONE and additional:
            return additional[0]
        return self.first_user(machine)

    def first_user(self, machine: Machine) -> int:
        """Like `holder`, but an additional need has no precedence."""
        if machine.ordered_by != NONE:
            return machine.ordered_by
        found, last = self._users(machine), machine.last_claimed_by
        if machine.state in (S.CREATING, S.DRAINING) and last in found:
            first = self.needs[found[0]]
            found = [last] if first.priority == self.needs[last].priority else found
        return [*found, NONE][0]

    def _users(self, machine: Machine) -> list[int]:
        slots = [s for c in self.clusters for s in c.slots if s.machine is machine]
        return sorted({size.need for slot in slots for size in slot.pods})

    def _restore_reservation(self, index: int, reservation: Reservation) -> None:
        if self.now - reservation.since_seconds < self.settings.reservation_seconds:
            self.reserved[index] = reservation
        else:
            self.not_acquiring.add(index)

    def _place(self, machine: Machine) -> None:
        last_claimed_by = machine.last_claimed_by
        if machine.state in (S.CONFIGURED, S.CONFIGURING):
            machine.supply_cluster = machine.cluster
        if machine.state in (S.CREATING, S.DRAINING):
            known = last_claimed_by != NONE
            machine.supply_cluster = (
                self.needs[last_claimed_by].cluster if known else machine.destination
            )
        reserved = machine.state in ACQUIRABLE_STATES and last_claimed_by in self.reserved
        if machine.state is S.DRAINING or reserved:
            machine.reserved_for = machine.initially_reserved_for = last_claimed_by
        elif machine.state is S.IDLE:
            machine.arrived_for = last_claimed_by

    def _cluster(self, number: int) -> Cluster:
        cluster = Cluster(number)
        its = sorted((m for m in self.machines if m.supply_cluster == number), key=keep_order)
        cluster.headroom_pool = [machine for machine in its if machine.headroom]
        for machine in its:
            if not machine.headroom:
                slot = self.add(cluster, machine)
                if machine.state is S.DRAINING and machine.reserved_for != NONE:
                    slot.max_priority = self.needs[machine.reserved_for].priority
        sizes = [size for need in self.needs if need.cluster == number for size in need.sizes]
        cpu, memory = (
            sum(size.amounts.get(name, 0) * size.left for size in sizes)
            / max(sum(slot.room.get(name, 0) for slot in cluster.slots), 1)
            for name in ("cpu", "memory")
        )
        if max(cpu, memory) > 0:
            cluster.factors = memory / max(cpu, memory), cpu / max(cpu, memory)
        return cluster
