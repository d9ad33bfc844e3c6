"""The oracle's phase 3: reclaims and disruption cost queries."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Sequence

from bigfleet.engine.cycle_memory import ClusterMemory
from tests.engine.oracle.assignment import first_fit, place_again
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.cycle_memory import Memories
from tests.engine.oracle.domains import label_keys
from tests.engine.oracle.objects import Cluster, Machine, PodSize, S, Slot
from tests.engine.oracle.packing import (
    BALANCED,
    pack,
    place_constrained,
    place_plain,
    plain_order,
    remember,
    restore,
)

# The pods of slots.
Before = Sequence[tuple[Slot, dict[PodSize, int]]]


class ReclaimPhase:
    """Finds the machines to reclaim: `going`."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._surplus: dict[int, list[Slot]] = {}
        self.open = sorted(cycle.demand.reported - cycle.demand.unreachable)
        acquired = [machine for machines in cycle.acquired.values() for machine in machines]
        self._acquiring = {cycle.needs[m.ordered_by].cluster for m in acquired}
        self.going = self._abandoned_by_gangs()
        self._must_go = [machine for machine in self.going if machine.disruption_cost != 0]
        self._unsearched: set[int] = set()
        for number in self.open:
            if self._is_search_due(number):
                self._reclaim_from(cycle.clusters[number])
            else:
                self._unsearched.add(number)

    def _is_search_due(self, number: int) -> bool:
        """Once in each sixth of a hold, as one ends, and after a decision that reclaimed."""
        cycle, memory = self._cycle, self._cycle.memory_of(number)
        sixth, searched = cycle.settings.reclaim_hold_seconds / 6, memory.searched_seconds
        if not self._is_answered(number) or searched is None or sixth == 0:
            return True
        last_reclaimed = memory.reclaimed_seconds
        if last_reclaimed is not None and searched <= last_reclaimed:
            return True
        for hold in (cycle.settings.reclaim_hold_seconds, cycle.settings.reacquire_seconds):
            if any(searched < s.since_seconds + hold <= cycle.now for s in memory.surplus):
                return True
        offset = zlib.crc32(memory.cluster.encode()) / 2**32
        return math.floor(searched / sixth + offset) != math.floor(cycle.now / sixth + offset)

    def _is_answered(self, number: int) -> bool:
        machines = self._cycle.machines
        its = [m for m in machines if m.cluster == number and m.state is S.CONFIGURED]
        return any(math.isfinite(machine.disruption_cost) for machine in its)

    def _abandoned_by_gangs(self) -> list[Machine]:
        """Unclaimed machines that served a gang which is in service in another domain."""
        cycle, found = self._cycle, []
        for cluster in cycle.clusters:
            for slot in list(cluster.slots) if cluster.number in self.open else ():
                machine = slot.machine
                domain = cycle.gang_domains.get(machine.last_claimed_by)
                unused = machine.state is S.CONFIGURED and not slot.pods
                if (
                    unused
                    and domain is not None
                    and self._is_in_service(cycle.needs[machine.last_claimed_by])
                ):
                    key = str(cycle.needs[machine.last_claimed_by].profile.same_key)
                    if machine.flavour.labels.get(key) != domain:
                        found.append(machine)
        for cluster in cycle.clusters:
            cluster.slots = [slot for slot in cluster.slots if slot.machine not in found]
        return found

    def spare(self, number: int) -> list[Machine]:
        """The machines that a cluster would release and could keep, in the order of release."""
        its = [m for m in self.going if m not in self._must_go and m.cluster == number]
        return sorted((m for m in its if not m.is_unavailable), key=reclaim_order)

    def _is_in_service(self, need: NeedView) -> bool:
        slots = self._cycle.cluster_of(need).slots
        its = [s for s in slots if any(size.need == need.index for size in s.pods)]
        return not need.lacks and all(slot.machine.state is S.CONFIGURED for slot in its)

    def _reclaim_from(self, cluster: Cluster) -> None:
        its = [s for s in cluster.slots if s.machine.state is S.CONFIGURED]
        its = sorted(
            (slot for slot in its if not slot.machine.is_unavailable),
            key=lambda slot: reclaim_order(slot.machine),
        )
        unschedulable = [slot for slot in its if _is_empty_unschedulable(slot)]
        its = [slot for slot in its if slot not in unschedulable and self._may_go(cluster, slot)]
        its.sort(key=lambda slot: (slot.machine.disruption_cost, bool(slot.pods)))
        its = [*unschedulable, *self._removable(cluster, its)]
        self._surplus[cluster.number] = its
        for slot in self._due(cluster, its):
            if self._evacuate(cluster, slot):
                self.going.append(slot.machine)

    def _removable(self, cluster: Cluster, its: Sequence[Slot]) -> list[Slot]:
        """Bisect in at most 24 trials: what fails is retried in halves, the first half first."""
        chosen: list[Slot] = []
        parts = [list(its)]
        for _ in range(24):
            if not parts:
                break
            part = parts.pop()
            if self._fits_without(cluster, [*chosen, *part]):
                chosen += part
            elif len(part) > 1:
                half = (len(part) + 1) // 2
                parts += [part[half:], part[:half]]
        return chosen

    def _may_go(self, cluster: Cluster, slot: Slot) -> bool:
        demand, number, machine = self._cycle.demand, cluster.number, slot.machine
        memory = self._cycle.memory_of(number)
        if not math.isfinite(machine.disruption_cost):
            return False
        fell = demand.fell_seconds.get(number)
        grown = -math.inf if memory.grown_seconds is None else memory.grown_seconds
        if fell is not None and fell >= grown and (memory.surplus or number not in self._acquiring):
            return True
        rose = demand.rose_seconds.get(number, -math.inf)
        stands_still = self._cycle.now - rose >= self._cycle.settings.reclaim_hold_seconds
        return machine.disruption_cost == 0 and stands_still

    def _fits_without(self, cluster: Cluster, going: Sequence[Slot]) -> bool:
        cycle = self._cycle
        if not has_room_for(cycle, cluster, going):
            return False
        sizes = [size for need in cycle.needs for size in need.sizes]
        memory = remember(cluster, sizes)
        running, beyond_skew = cycle.running, set(cycle.beyond_skew)
        try:
            return self._repacks_without(cluster, going)
        finally:
            restore(memory)
            cycle.running, cycle.beyond_skew = running, beyond_skew

    def _repacks_without(self, cluster: Cluster, going: Sequence[Slot]) -> bool:
        """A new count of all that has a place, and after it of 5 % more of what is plain, as far as
        these have places on all machines together.
        """
        cycle, slots = self._cycle, cluster.slots
        before = [(slot, dict(slot.pods)) for slot in slots]
        its = [need for need in cycle.needs if need.cluster == cluster.number]
        known = cycle.running
        cycle.running = _running_on(known, before)
        self._clear(cluster, slots)
        self._keep_additional(cluster, before)
        margin = self._reserve(cluster, its, before)
        fits = self._place(cluster, its, before)
        margin = self._place_more(cluster, its, margin) if fits else {}
        cycle.running = _running_on(known, [(s, pods) for s, pods in before if s not in going])
        self._clear(cluster, [slot for slot in slots if slot not in going])
        if not self._keep_additional(cluster, before) or not self._keep_domains(cluster, before):
            return False
        fits = self._place(cluster, its, before)
        return fits and self._place_more(cluster, its, margin) == margin

    def _reserve(
        self, cluster: Cluster, its: Sequence[NeedView], before: Before
    ) -> dict[PodSize, int]:
        """The pods to find room for beside those that have a place."""
        orders = [plain_order(self._cycle, cluster.number, p) for p in _priorities(its)]
        sizes = [size for order in orders for size in order]
        return _part_of(sizes, _placed(before), self._cycle.settings.reclaim_margin)

    def _clear(self, cluster: Cluster, slots: Sequence[Slot]) -> None:
        """Leave it these machines, without pods."""
        for size in [size for need in self._cycle.needs for size in need.sizes]:
            size.left = 0
        for slot in cluster.slots:
            slot.pods = {}
        cluster.slots = [*slots]

    def _place(self, cluster: Cluster, its: Sequence[NeedView], before: Before) -> bool:
        """Place all but additional pods, by priority; gangs stay where they were `before`. Whether
        all find places.
        """
        cycle, placed = self._cycle, _placed(before)
        for priority in _priorities(its):
            sizes = plain_order(cycle, cluster.number, priority)
            level = [need for need in its if need.priority == priority]
            self._keep_gangs(cluster, [n for n in level if n.kind == "gang"], before)
            for need in filter(lambda need: need.kind == "constrained", level):
                for size in need.sizes:
                    size.left = placed.get(size, 0)
                place_constrained(cycle, need)
            for size in sizes:
                size.left = placed.get(size, 0)
            place_plain(cycle, cluster, sizes)
        return not any(need.lacks for need in its)

    def _place_more(
        self, cluster: Cluster, its: Sequence[NeedView], margin: dict[PodSize, int]
    ) -> dict[PodSize, int]:
        """Place the `margin` as well; how much of it finds places."""
        for size, pods in margin.items():
            size.left = pods
        for priority in _priorities(its):
            pack(self._cycle, plain_order(self._cycle, cluster.number, priority), BALANCED)
        return {size: pods - size.left for size, pods in margin.items()}

    def _keep_additional(self, cluster: Cluster, before: Before) -> bool:
        """Keep the placements of additional needs; whether all their machines are there."""
        needs = self._cycle.needs
        for slot, pods in before:
            its = {s: number for s, number in pods.items() if needs[s.need].kind == "additional"}
            if its and slot not in cluster.slots:
                return False
            slot.pods |= its
        return True

    def _keep_gangs(self, cluster: Cluster, gangs: Sequence[NeedView], before: Before) -> None:
        """Keep the placements of `gangs`; what fits there no more may move in its domain."""
        sizes = [size for need in gangs for size in need.sizes]
        for slot, pods in before:
            for size in [size for size in sizes if size in pods]:
                if slot in cluster.slots and slot.fits(size) >= pods[size]:
                    slot.pods[size] = pods[size]
                else:
                    size.left += pods[size]
        for need in gangs:
            if need.index in self._cycle.gang_domains:
                key, domain = str(need.profile.same_key), self._cycle.gang_domains[need.index]
                usable = [s for s in cluster.slots if need.accepts(s.machine.flavour)]
                labels = [slot.machine.flavour.labels[key] for slot in usable]
                first_fit(need, [s for s, its in zip(usable, labels, strict=True) if its == domain])

    def _keep_domains(self, cluster: Cluster, before: Before) -> bool:
        """Whether each domain that has pods of a constrained need still has a machine for it."""
        for slot, pods in before:
            needs = [self._cycle.needs[size.need] for size in pods]
            for need in [need for need in needs if need.kind == "constrained"]:
                stay = [s.machine.flavour for s in cluster.slots if need.accepts(s.machine.flavour)]
                for key in label_keys(need):
                    there = slot.machine.flavour.labels.get(key)
                    if there not in [flavour.labels.get(key) for flavour in stay]:
                        return False
        return True

    def _due(self, cluster: Cluster, surplus: Sequence[Slot]) -> list[Slot]:
        """The surplus machines to reclaim now."""
        cycle, memory = self._cycle, self._cycle.memory_of(cluster.number)
        hold_seconds, most = cycle.settings.reclaim_hold_seconds, cap(cycle, cluster.number)
        due: list[Slot] = []
        for slot in surplus:
            hold = hold_seconds * self._hold_factor(memory, cluster, surplus, due, slot)
            if hold and slot.machine.disruption_cost and not self._has_spare(cluster, due):
                hold = max(hold, cycle.settings.reacquire_seconds)
            held = [s.machines for s in memory.surplus if s.since_seconds + hold <= cycle.now]
            if len(due) < min(most, max(held, default=0) if hold else len(surplus)):
                due.append(slot)
        acquired = memory.acquired_seconds
        earlier = memory.peaks[2:]
        if cycle.demand_of(cluster.number) > 1.01 * max(earlier, default=math.inf):
            return [slot for slot in due if slot.machine.disruption_cost == 0]
        if cluster.number in self._acquiring or (
            acquired is not None and cycle.now - acquired < hold_seconds
        ):
            return [slot for slot in due if slot.machine.disruption_cost == 0]
        return due

    def _has_spare(self, cluster: Cluster, due: Sequence[Slot]) -> bool:
        """Whether without those `due` there is more for the demand than when it last grew."""
        cycle, number = self._cycle, cluster.number
        ratio = cycle.memory_of(number).capacity_ratio
        if ratio is None:
            return True
        there = sum(cycle.capacity_of(slot.machine) for slot in cluster.slots)
        gone = sum(cycle.capacity_of(slot.machine) for slot in due)
        return there * 0.99 - ratio * cycle.demand_of(number) - gone > 0

    def _hold_factor(
        self,
        memory: ClusterMemory,
        cluster: Cluster,
        surplus: Sequence[Slot],
        due: Sequence[Slot],
        slot: Slot,
    ) -> int:
        """The longest hold for which a need wants this machine, after those `due` have gone: it is
        among the last of as many as the need acquired again.
        """
        factors = [1]
        for each in memory.reacquired:
            needs = [
                need
                for need in self._cycle.needs
                if need.cluster == cluster.number and need.key.fingerprint == each.fingerprint
            ]
            its = [s for s in surplus if any(_can_use(self._cycle, n, s) for n in needs)]
            if slot in its and len([s for s in its if s not in due]) <= each.machines:
                factors.append(each.hold_factor)
        return max(factors)

    def _evacuate(self, cluster: Cluster, slot: Slot) -> bool:
        """Move its pods to the others if they fit."""
        cycle = self._cycle
        sizes = [size for need in cycle.needs for size in need.sizes]
        memory, left = remember(cluster, sizes), {size: size.left for size in sizes}
        before, running = _placed([(slot, slot.pods)]), cycle.running
        cluster.slots = [other for other in cluster.slots if other is not slot]
        cycle.running = {
            index: pods - sum(number for size, number in before.items() if size.need == index)
            for index, pods in running.items()
        }
        for index in slot.clear():
            place_again(cycle, cycle.needs[index])
        if any(size.left > left[size] for size in sizes):
            restore(memory)
            cycle.running = running
            return False
        return True

    def growing(self) -> set[int]:
        """Clusters with more demand than a while ago, and not less than at any time since."""
        found = set()
        for number in range(len(self._cycle.fleet.clusters)):
            peaks, demand = self._cycle.memory_of(number).peaks, self._cycle.demand_of(number)
            if len(peaks) > 2 and demand > 1.01 * max(peaks[2:]) and demand >= 0.99 * max(peaks):
                found.add(number)
        return found

    def memories(self, reclaimed: dict[int, int]) -> tuple[ClusterMemory, ...]:
        """The memory of all clusters for the next decision."""
        found = {number: len(s) for number, s in self._surplus.items() if self._is_answered(number)}
        return Memories(self._cycle, found, self._unsearched).of(reclaimed)

    def surplus_beside(self, reclaimed: Collection[int]) -> dict[int, list[int]]:
        """By cluster that was searched, the rows of its surplus machines without `reclaimed`."""
        return {
            cluster: [slot.machine.row for slot in slots if slot.machine.row not in reclaimed]
            for cluster, slots in self._surplus.items()
            if self._is_answered(cluster)
        }

    def find_disruption_cost_queries(self) -> dict[int, list[int]]:
        """By cluster, the least utilized machines, if the first of them may be surplus."""
        cycle, asked = self._cycle, {}
        for number in self.open:
            cluster = cycle.clusters[number]
            its = [s for s in cluster.slots if s.machine.state is S.CONFIGURED]
            its = [slot for slot in its if not slot.machine.is_unavailable]
            least = sorted(its, key=lambda slot: _used(cycle, slot))
            if least and has_room_for(cycle, cluster, least[:1]):
                asked[number] = [slot.machine.row for slot in least[:16]]
        return asked


def _is_empty_unschedulable(slot: Slot) -> bool:
    """Whether its Node takes no new pods and is empty."""
    nothing = slot.machine.flavour.limited and not any(slot.room.values())
    return nothing and slot.machine.disruption_cost == 0


def _can_use(cycle: Cycle, need: NeedView, slot: Slot) -> bool:
    """Whether a pod of the need can run on the machine, were it empty."""
    room = cycle.room(need.cluster, slot.machine.flavour)
    return need.accepts(slot.machine.flavour) and any(
        need.holds_one(room, size) for size in need.sizes if not size.impossible
    )


def _used(cycle: Cycle, slot: Slot) -> float:
    return max(
        (slot.room.get(name, 0) - slot.free(name)) / max(slot.room.get(name, 0), 1)
        for name in cycle.resources
    )


def has_room_for(cycle: Cycle, cluster: Cluster, going: Sequence[Slot]) -> bool:
    """Whether the others have as much free as is used on those `going`."""
    return all(
        sum(slot.free(name) for slot in cluster.slots if slot not in going)
        >= sum(slot.room.get(name, 0) - slot.free(name) for slot in going)
        for name in cycle.resources
    )


def _placed(before: Before) -> dict[PodSize, int]:
    placed: dict[PodSize, int] = {}
    for _, its in before:
        for size, pods in its.items():
            placed[size] = placed.get(size, 0) + pods
    return placed


def _priorities(needs: Sequence[NeedView]) -> list[int]:
    return sorted({need.priority for need in needs}, reverse=True)


def _part_of(
    sizes: Sequence[PodSize], placed: dict[PodSize, int], part: float
) -> dict[PodSize, int]:
    """The fraction `part` of the placed pods, cumulatively from the first size on."""
    found, pods, more = {}, 0, 0
    for size in sizes:
        pods += placed.get(size, 0)
        reserve = math.floor(pods * part + 1e-9)
        found[size] = reserve - more
        more = reserve
    return found


def cap(cycle: Cycle, number: int) -> int:
    """How many machines a cluster may give back in one cycle."""
    its = [m for m in cycle.machines if m.state is S.CONFIGURED and m.cluster == number]
    return max(1, math.floor(cycle.settings.reclaim_cap_fraction * len(its) + 1e-9))


def reclaim_order(machine: Machine) -> tuple[float, ...]:
    """The least disruptive first."""
    known = not math.isnan(machine.disruption_cost)
    cost = machine.disruption_cost if known else 0.0
    return cost, -machine.flavour.price_per_hour, machine.last_reclamation, machine.tie_break


def _running_on(
    known: dict[int, int], slots: Sequence[tuple[Slot, dict[PodSize, int]]]
) -> dict[int, int]:
    """How many pods of the `known` needs are on the machines in service among `slots`."""
    found = dict.fromkeys(known, 0)
    for slot, pods in slots:
        for size, number in pods.items():
            if size.need in found and slot.machine.state is S.CONFIGURED:
                found[size.need] += number
    return found
