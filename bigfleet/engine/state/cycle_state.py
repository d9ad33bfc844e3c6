"""Everything that one decision works on: what came in, worked out, and what is decided so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.cycle_memory import ClusterMemory, CycleMemory, Reservation
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.fit.pod_classes import FlavourFit, NeedType, PodClasses
from bigfleet.engine.kernels.selection import FleetAvailability
from bigfleet.engine.snapshot import (
    NONE,
    Demand,
    EngineConfig,
    Flags,
    Fleet,
    Floats,
    Ints,
    Longs,
    Rows,
)
from bigfleet.engine.state.ceiling_budgets import CeilingBudgets
from bigfleet.engine.state.cluster_packing import ALWAYS, ClusterPacking
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey

_RESERVABLE = (MachineState.IDLE, MachineState.SPECULATIVE)
_INCOMING = (MachineState.CREATING, MachineState.DRAINING)


class TakenMachines(NamedTuple):
    """Machines that a need takes from others: of the `non_disruptive` ones nobody is evicted for
    it, since no need counts them or they drain already; the others serve needs whose priority is
    `gap` lower.
    """

    rows: Rows
    non_disruptive: Flags
    gap: Longs


class CycleState:
    """`left` [C] is how many pods of each class have no place, impossible ones not counted.

    `packings` has the machines of each cluster, by its number, but for those in `headroom_pool`,
    which were kept ahead of gangs. `supply_clusters` [n] is the cluster that a machine is supply
    for, NONE where there is none. `unavailable` [n] marks machines that were acquired or taken in
    this decision, or are held back, `ordered_by` [n] for whom. `reserved_for` [n] is the need that
    a machine is drained or kept for, else NONE, and `initially_reserved_for` [n] what that was at
    first. By need: `acquired` and `taken` are the machines that it ordered, `gang_domains` the
    domains of gangs, `reserved` the reservations in force. Needs in `not_acquiring` acquire and
    take nothing, so that others can have what was kept for them. From those in `at_ceiling` their
    cluster's ceiling has withheld something.
    """

    def __init__(
        self,
        fleet: Fleet,
        demand: Demand,
        cycle_memory: CycleMemory,
        settings: EngineConfig,
        now_seconds: float,
    ) -> None:
        self.fleet, self.demand, self.settings = fleet, demand, settings
        self.now_seconds = now_seconds
        self.columns = FlavourColumns(fleet.flavours)
        self.matcher = Matcher(fleet.flavours, self.columns)
        self.capacities = Capacities(self.columns, self.matcher, demand)
        self.present: Rows = np.unique(fleet.flavour).astype(np.intp)
        self.classes = PodClasses(demand, self.columns, self.matcher, self.capacities, self.present)
        self.left: Longs = np.where(self.classes.impossible, 0, self.classes.count)
        self.priorities: Longs = np.array([n.priority for n in demand.needs], np.int64)
        self.reserved: dict[int, Reservation] = {}
        passing = np.isin(demand.cluster, sorted(demand.suspended))
        self.not_acquiring: set[int] = set(np.flatnonzero(passing).tolist())
        self._memory = {memory.cluster: memory for memory in cycle_memory.clusters}
        self._take_up(cycle_memory)
        self.reserved_for = self._reserved_for()
        self.initially_reserved_for = self.reserved_for.copy()
        free = np.isin(fleet.state, [int(state) for state in _RESERVABLE])
        self._idle_reserved = np.flatnonzero(free & (self.reserved_for != NONE))
        backed_off = fleet.backed_off
        self.unavailable: Flags = (
            np.zeros(len(fleet), np.bool_) if backed_off is None else backed_off.copy()
        )
        self.ordered_by: Ints = np.full(len(fleet), NONE, np.int32)
        self.acquired: dict[int, list[int]] = {}
        self.taken: dict[int, TakenMachines] = {}
        self.gang_domains: dict[int, str] = {}
        self.supply_clusters = self._supply_clusters()
        self.budgets = CeilingBudgets(fleet, demand, self.supply_clusters)
        self.at_ceiling: set[int] = set()
        self.headroom_pool: dict[int, Rows] = {}
        self.packings: dict[int, ClusterPacking] = self._build_packings()

    def key(self, index: int) -> NeedKey:
        """The identity of need `index`."""
        return key_of(self.fleet, self.demand, index)

    def flavour_fit(self, index: int) -> FlavourFit:
        """What need `index` makes of the flavours."""
        return self.classes.of_need[index]

    def lacks(self, index: int) -> bool:
        """Whether pods of the need have no place that some machine could hold."""
        return bool(self.left[self.classes.of(index)].any())

    def lacking(self, start: int, stop: int) -> Flags:
        """For the needs from `start` to `stop`, whether they lack places."""
        bounds = self.classes.start
        missing = self.left[bounds[start] : bounds[stop]] > 0
        flags = np.zeros(stop - start, np.bool_)
        flags[self.classes.need[bounds[start] : bounds[stop]][missing] - start] = True
        return flags

    def cluster_of(self, index: int) -> int:
        """The cluster of need `index`."""
        return int(self.demand.cluster[index])

    def packing_of(self, index: int) -> ClusterPacking:
        """The machines of the need's cluster."""
        return self.packings[self.cluster_of(index)]

    def may_have(self, index: int, rows: Rows) -> Flags:
        """Which of `rows` are not kept for another need of at least the same priority."""
        reserving_need = self.reserved_for[rows]
        lower = self.priorities[reserving_need] < self.priorities[index]
        allowed: Flags = (reserving_need == NONE) | (reserving_need == index) | lower
        return allowed

    def drop_idle_reservation(self, index: int) -> None:
        """What idly waits for a need that has places without it is for others. It may have found
        them on what is on its way to one of these, which would acquire as much again.
        """
        if index in self.reserved and not self.lacks(index):
            rows = self._idle_reserved
            rows = rows[(self.reserved_for[rows] == index) & ~self.unavailable[rows]]
            self.reserved_for[rows] = NONE

    def availability(self, index: int) -> FleetAvailability:
        """What kernels read of the fleet's machines when need `index` chooses some."""
        cluster = self.cluster_of(index)
        return FleetAvailability(
            self.fleet.flavour,
            self.unavailable,
            self.reserved_for,
            self.priorities,
            self.supply_clusters,
            cluster,
            self.budgets.prices,
            self.budgets.remaining(cluster),
        )

    def give_back(self, index: int, rows: Sequence[int]) -> None:
        """Do not order machines after all that a need has ordered; other pods lose their places."""
        if not len(rows):
            return
        packing, at = self.packing_of(index), np.array(rows, np.intp)
        for machine in np.flatnonzero(
            np.isin(packing.rows, at) & (packing.orderer == index)
        ).tolist():
            packing.clear_machine(machine)
            packing.remove_machine(machine)
        self.unavailable[at] = False
        self.ordered_by[at] = NONE
        self.budgets.refund(self.cluster_of(index), at)

    def demand_of_clusters(self) -> Floats:
        """By cluster, what its pods ask for that some machine could hold: how many times the
        largest machine, by their scarcest resource.
        """
        classes = self.classes
        shares = np.where(classes.impossible, 0.0, classes.count * classes.dominant_share)
        cluster = self.demand.cluster[classes.need]
        total: Floats = np.bincount(cluster, shares, len(self.fleet.clusters)).astype(np.float64)
        return total

    def clusters_with_incoming(self) -> set[int]:
        """The clusters to which machines are on their way, but for those of additional needs."""
        additional = np.append(
            self.classes.need_type == NeedType.ADDITIONAL, np.False_
        )  # the last is NONE
        incoming = (self.supply_clusters != NONE) & (self.fleet.state != MachineState.CONFIGURED)
        incoming &= ~additional[self.fleet.last_claimed_by]
        ordered = (i for i, rows in self.acquired.items() if len(rows) and not additional[i])
        return {*self.supply_clusters[incoming].tolist(), *(self.cluster_of(i) for i in ordered)}

    def memory_of(self, cluster: int) -> ClusterMemory:
        """What the last decision handed on about a cluster."""
        name = self.fleet.clusters[cluster]
        return self._memory.get(name, ClusterMemory(name, factor_seconds=self.now_seconds))

    def acquiring_clusters(self) -> set[int]:
        """The clusters that acquire machines in this decision."""
        return {self.cluster_of(index) for index, rows in self.acquired.items() if len(rows)}

    def claims(self) -> Ints:
        """For each machine the need that counts it: the one that ordered it in this decision, or
        else the first one with pods on it; NONE where there is none.
        """
        claimed = np.full(len(self.fleet), NONE, np.int32)
        for packing in self.packings.values():
            mine = packing.rows != NONE
            claimed[packing.rows[mine]] = packing.holders()[mine]
        ordered = self.ordered_by != NONE
        claimed[ordered] = self.ordered_by[ordered]
        return claimed

    def _build_packings(self) -> dict[int, ClusterPacking]:
        fleet, packings = self.fleet, {}
        supply_clusters = self.supply_clusters
        rows = self._in_keep_order(np.flatnonzero(supply_clusters != NONE))
        rows = rows[np.argsort(supply_clusters[rows], kind="stable")]
        borders = np.searchsorted(supply_clusters[rows], np.arange(len(fleet.clusters) + 1))
        wanted = {*self.demand.cluster.tolist(), *supply_clusters[rows].tolist()}
        cluster_of_class = self.demand.cluster[self.classes.need]
        classes = np.argsort(cluster_of_class, kind="stable").astype(np.int64)
        ends = np.searchsorted(cluster_of_class[classes], np.arange(len(fleet.clusters) + 1))
        for cluster in sorted(wanted):
            packing = ClusterPacking(self.classes, self.left, self.capacities.of(cluster))
            mine = rows[borders[cluster] : borders[cluster + 1]]
            ahead = fleet.headroom[mine]
            self.headroom_pool[cluster] = mine[ahead]
            mine = mine[~ahead]
            packing.add(
                mine, fleet.flavour[mine], fleet.last_claimed_by[mine], self._max_priorities(mine)
            )
            packing.set_resource_ratio(classes[ends[cluster] : ends[cluster + 1]])
            packings[cluster] = packing
        return packings

    def _max_priorities(self, rows: Rows) -> Longs:
        """Up to which priority machines serve needs. One that drains for a need is not for those
        that outrank it: they may demand that pods leave faster.
        """
        reserving_need = self.reserved_for[rows]
        drains = (self.fleet.state[rows] == MachineState.DRAINING) & (reserving_need != NONE)
        return np.where(drains, np.append(self.priorities, ALWAYS)[reserving_need], ALWAYS)

    def _supply_clusters(self) -> Ints:
        """The cluster that each machine is supply for."""
        fleet = self.fleet
        bound = np.isin(fleet.state, (int(MachineState.CONFIGURED), int(MachineState.CONFIGURING)))
        incoming = np.isin(fleet.state, [int(state) for state in _INCOMING])
        of_need = np.append(self.demand.cluster, np.int32(NONE))[fleet.last_claimed_by]
        destination = np.where(of_need != NONE, of_need, fleet.destination)
        supply_clusters: Ints = np.where(
            bound, fleet.cluster, np.where(incoming, destination, np.int32(NONE))
        )
        return supply_clusters

    def _in_keep_order(self, rows: Rows) -> Rows:
        """Machines that are least to be given back first: those whose release would cost most or is
        not known, then those that the last decision counted, what is in service before what is
        still to come, the cheaper, the one with the higher reclamation penalty.
        """
        fleet = self.fleet
        cost = fleet.disruption_cost[rows]
        releasable = np.isfinite(cost)
        state = fleet.state[rows]
        arrival = np.select(
            [state == MachineState.CONFIGURED, state == MachineState.CONFIGURING,
             state == MachineState.CREATING], [0, 1, 2], 3,
        )  # fmt: skip
        penalty = -fleet.reclamation_bucket[rows].astype(np.int64)
        keys = (
            fleet.tie_break[rows],
            penalty,
            self.columns.price[fleet.flavour[rows]],
            arrival,
            fleet.last_claimed_by[rows] == NONE,
            np.where(releasable, -cost, 0.0),
            releasable,
        )
        return rows[np.lexsort(keys)]

    def _take_up(self, cycle_memory: CycleMemory) -> None:
        if not cycle_memory.reservations:
            return
        place = {self.key(index): index for index in range(len(self.demand.needs))}
        for reservation in cycle_memory.reservations:
            index = place.get(reservation.need, NONE)
            if index == NONE:
                continue
            age_seconds = self.now_seconds - reservation.since_seconds
            if age_seconds < self.settings.reservation_seconds:
                self.reserved[index] = reservation
            else:
                self.not_acquiring.add(index)

    def _reserved_for(self) -> Ints:
        """For each machine the need that it is drained or kept for, else NONE.

        What drains for a need does so however long it takes: let go, it would be missed at once,
        and another machine's pods would be evicted in its place.
        """
        fleet = self.fleet
        has_reservation = np.zeros(len(self.demand.needs) + 1, np.bool_)  # the last is for NONE
        has_reservation[[*self.reserved]] = True
        free = np.isin(fleet.state, [int(state) for state in _RESERVABLE])
        kept = fleet.state == MachineState.DRAINING
        kept |= free & has_reservation[fleet.last_claimed_by]
        return np.where(kept, fleet.last_claimed_by, np.int32(NONE))


def key_of(fleet: Fleet, demand: Demand, index: int) -> NeedKey:
    """The identity of need `index` among all clusters' needs."""
    return NeedKey(fleet.clusters[int(demand.cluster[index])], *demand.needs[index].key)
