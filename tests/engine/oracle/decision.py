"""The same decision computed in a slow, obvious way, from docs/design/engine.md.

Machines, pods and clusters are plain objects, numbers are Python numbers. Shared with the engine
are only its inputs and outputs: snapshots, `CycleMemory`, `Decision`. Reports, reasons and the
validation of snapshots are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bigfleet.engine.cycle_memory import CycleMemory, Reservation, ShortfallAge, SpreadPods
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Fleet
from bigfleet.model.need import Size
from tests.engine.oracle.assignment import serve_all
from tests.engine.oracle.cycle import Cycle
from tests.engine.oracle.headroom import Headroom
from tests.engine.oracle.objects import Machine, S
from tests.engine.oracle.preemption import PreemptionPhase, grace
from tests.engine.oracle.reclaim import ReclaimPhase, cap, reclaim_order

# Action type, row, need and grace period in seconds.
Order = tuple[str, int, int, int]


class Oracle:
    """One decision; its parts can be compared with those of a `Decision`."""

    def __init__(
        self,
        fleet: Fleet,
        demand: Demand,
        cycle_memory: CycleMemory,
        settings: EngineConfig,
        now: float,
    ) -> None:
        self._cycle = cycle = Cycle(fleet, demand, cycle_memory, settings, now)
        serve_all(cycle)
        headroom = Headroom(cycle)
        headroom.retain()
        self._reclaim = ReclaimPhase(cycle)
        self._preemption = PreemptionPhase(cycle, self._reclaim.going)
        self._preemption.run()
        headroom.acquire(self._reclaim)
        self.headroom = headroom.rows
        reclaims = [*self._reclaims_for_needs(), *self._voluntary_reclaims()]
        within = list(self._capped(reclaims))
        self.reclaims_capped = len(reclaims) - len(within)
        self.actions = [*self._acquisitions(), *self._preemptions(), *within, *self._deletes()]
        self.claimed_by = [cycle.holder(machine) for machine in cycle.machines]
        self.disruption_cost_queries = self._reclaim.find_disruption_cost_queries()
        self.shortfalls, shortfall_ages = self._shortfalls()
        self.at_ceiling = {index for index in cycle.at_ceiling if cycle.needs[index].lacks}
        self.held = {
            cluster: _amounts(cycle.held(cluster))
            for cluster, ceiling in demand.ceilings.items()
            if min(ceiling.machines, ceiling.dollars_per_hour) < math.inf
        }
        given_back: dict[int, int] = {}
        for _, row, _, _ in within:
            if cycle.machines[row] in self._reclaim.going:
                cluster = cycle.machines[row].cluster
                given_back[cluster] = given_back.get(cluster, 0) + 1
        memories = self._reclaim.memories(given_back)
        self.surplus = self._reclaim.surplus_beside({row for _, row, _, _ in within})
        self.growing = self._reclaim.growing()
        drained = [row for _, row, _, _ in (*self._preemptions(), *within)]
        self.cycle_memory = CycleMemory(
            tuple(self._reservations()), shortfall_ages, memories, tuple(self._spread_pods(drained))
        )
        self.beyond_skew = cycle.beyond_skew

    @property
    def placements(self) -> dict[tuple[int, int, int], int]:
        """Row, need and size, and how many pods have a place there."""
        placed: dict[tuple[int, int, int], int] = {}
        for cluster in self._cycle.clusters:
            for slot in cluster.slots:
                for size, pods in slot.pods.items():
                    placed[slot.machine.row, size.need, size.number] = pods
        return placed

    def _acquisitions(self) -> Iterator[Order]:
        for index, machines in sorted(self._cycle.acquired.items()):
            for machine in machines:
                kind = "Bootstrap" if machine.state is S.IDLE else "Provision"
                yield kind, machine.row, index, 0

    def _preemptions(self) -> Iterator[Order]:
        for index, taken in sorted(self._preemption.taken.items()):
            for each in taken:
                if not each.non_disruptive:
                    yield "Preempt", each.machine.row, index, grace(each.gap)

    def _reclaims_for_needs(self) -> Iterator[Order]:
        for index, taken in sorted(self._preemption.taken.items()):
            for each in taken:
                if each.non_disruptive and each.machine.state is S.CONFIGURED:
                    yield "Reclaim", each.machine.row, index, grace(each.gap)

    def _voluntary_reclaims(self) -> Iterator[Order]:
        seconds = self._cycle.settings.voluntary_grace_seconds
        for machine in sorted(self._reclaim.going, key=reclaim_order):
            if not machine.is_unavailable:
                yield "Reclaim", machine.row, NONE, seconds

    def _capped(self, orders: list[Order]) -> Iterator[Order]:
        given: dict[int, int] = {}
        for order in orders:
            cluster = self._cycle.machines[order[1]].cluster
            given[cluster] = given.get(cluster, 0) + 1
            if given[cluster] <= cap(self._cycle, cluster):
                yield order

    def _deletes(self) -> Iterator[Order]:
        for machine in sorted(self._cycle.machines, key=reclaim_order):
            if self._is_to_delete(machine):
                yield "Delete", machine.row, NONE, 0

    def _is_to_delete(self, machine: Machine) -> bool:
        cycle, kind = self._cycle, machine.flavour.capacity_type
        if machine.state is S.FAILED:
            return kind.elastic
        hold_seconds = cycle.settings.idle_hold_seconds.get(kind)
        unclaimed = (
            cycle.holder(machine) == NONE and machine.initially_reserved_for not in cycle.reserved
        )
        if machine.state is not S.IDLE or not kind.elastic or hold_seconds is None or not unclaimed:
            return False
        return cycle.now - machine.unused_since > hold_seconds

    def _shortfalls(self) -> tuple[list[tuple[object, ...]], tuple[ShortfallAge, ...]]:
        cycle, shortfall_ages = self._cycle, list[ShortfallAge]()
        found: list[tuple[object, ...]] = []
        last = {aged.need: aged for aged in cycle.cycle_memory.shortfall_ages}
        for need in cycle.needs:
            short = [Size(tuple(sorted(s.amounts.items())), s.left) for s in need.sizes if s.left]
            impossible = [need.need.sizes[s.number] for s in need.sizes if s.impossible]
            if short or impossible:
                before = last.get(need.key, ShortfallAge(need.key, 0, cycle.now))
                now = ShortfallAge(need.key, before.cycles + 1, before.since_seconds)
                shortfall_ages.append(now)
                sizes = tuple(sorted(short)), tuple(sorted(impossible))
                found.append((need.index, *sizes, now.cycles, now.since_seconds))
        return found, tuple(shortfall_ages)

    def _reservations(self) -> Iterator[Reservation]:
        cycle = self._cycle
        for need in cycle.needs:
            its = [m for m in cycle.machines if self.claimed_by[m.row] == need.index]
            gang = need.profile.same_key is not None
            waits = any(
                not (machine.state is S.CONFIGURED and machine.cluster == need.cluster)
                and (gang or self._is_drained_for(machine, need.index))
                for machine in its
            )
            if waits and not (gang and need.lacks):
                domain = cycle.gang_domains[need.index] if gang else ""
                before = cycle.reserved.get(need.index)
                continues = before is not None and before.domain == domain
                since = before.since_seconds if before and continues else cycle.now
                yield Reservation(need.key, domain, since)

    def _spread_pods(self, drained: Sequence[int]) -> Iterator[SpreadPods]:
        """What runs, by the count, of the needs with hard topology spread."""
        cycle = self._cycle
        for need in cycle.needs:
            if need.kind == "constrained" and need.terms:
                slots = cycle.cluster_of(need).slots
                its = {s: sum(n for z, n in s.pods.items() if z.need == need.index) for s in slots}
                here = [
                    pods
                    for slot, pods in its.items()
                    if slot.machine.state is S.CONFIGURED and slot.machine.row not in drained
                    if slot.machine.cluster == need.cluster
                ]
                if sum(here):
                    known = min(cycle.running.get(need.index, 0), sum(its.values()))
                    known, machines = max(sum(here), known), cycle.accepting(need, drained)
                    yield SpreadPods(need.key, known, max(here), machines)

    def _is_drained_for(self, machine: Machine, index: int) -> bool:
        drained = machine.state in (S.DRAINING, S.CONFIGURED)
        return drained or machine.initially_reserved_for == index


def _amounts(machines: Sequence[Machine]) -> tuple[int, int]:
    """The number of machines, and their price in micro-dollars an hour."""
    return len(machines), sum(round(each.flavour.price_per_hour * 1e6) for each in machines)
