"""State of one decision: its inputs in indexed form, and what is decided so far."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bigfleet.engine.columns import PODS_COLUMN, columns_of
from bigfleet.engine.cycle_memory import ClusterMemory, CycleMemory, Reservation
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.fit.pod_classes import FlavourFit, NeedType, PodClasses
from bigfleet.engine.kernels.selection import FleetAvailability
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.kernels.term_domains import count_accepting
from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import (
    IN_SERVICE,
    NONE,
    Demand,
    EngineConfig,
    Flags,
    Fleet,
    Floats,
    Ints,
    Longs,
    Rows,
    flags_of,
    in_states,
)
from bigfleet.engine.state.ceiling_budgets import CeilingBudgets
from bigfleet.engine.state.cluster_packing import ALWAYS, ClusterPacking, PackingColumns
from bigfleet.engine.state.packings import Packings
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey

# A machine's place in keep order as one number: cluster, whether its operator has answered, whether
# no need claimed it, its state, price and penalty.
_ARRIVAL_BITS, _PRICE_BITS, _PENALTY_BITS = 2, 21, 8
_MOST_PENALTY = (1 << _PENALTY_BITS) - 1
_RELEASABLE = 1 << (_ARRIVAL_BITS + 1 + _PRICE_BITS + _PENALTY_BITS)
_CLUSTER_SHIFT = _RELEASABLE.bit_length()
# By state; machines in service first.
_ARRIVAL = np.full(max(MachineState) + 1, 3, np.int64)
_ARRIVAL[[MachineState.CONFIGURED, MachineState.CONFIGURING, MachineState.CREATING]] = 0, 1, 2

_INCOMING = (MachineState.CREATING, MachineState.DRAINING)
# Shares are counted in steps, so that a sum does not depend on its order.
_MILLION = 1_000_000


class TakenMachines(NamedTuple):
    """P machines that a need preempts."""

    #: [P] intp, rows of the fleet
    rows: Rows
    #: [P] bool, no pods are evicted: no need claims the machine, or it drains already
    non_disruptive: Flags
    #: [P] int64, how much lower the priority is that the machine serves
    gap: Longs


class CycleState:
    """A decision on n machines, N needs and C classes of pods."""

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
        self.columns = columns_of(fleet.flavours)
        self.matcher = Matcher(self.columns)
        self.capacities = Capacities(self.columns, self.matcher, demand)
        self.needs = need_columns_of(demand.needs)
        self.present = present_flavours(fleet)
        self.classes = PodClasses(self.needs, demand.cluster, self.capacities, self.present)
        #: [C] int64, pods without a place, impossible ones left out
        self.left: Longs = np.where(self.classes.impossible, 0, self.classes.count)
        #: [N] int64
        self.priorities: Longs = self.needs.priority
        #: by need: the reservations in force
        self.reserved: dict[int, Reservation] = {}
        #: needs that acquire and preempt nothing in this decision
        self.not_acquiring: set[int] = set(
            np.flatnonzero(flags_of(demand.suspended, len(fleet.clusters))[demand.cluster]).tolist()
        )
        self._restore(cycle_memory)
        #: by need with hard topology spread: how many of its pods run already, by the last count
        self.running: dict[int, int] = self._running(cycle_memory)
        #: needs of which such pods are counted where a term would not let them start
        self.beyond_skew: set[int] = set()
        #: [n] int32, the need that the machine drains for or is reserved for, or NONE
        self.reserved_for = self._reserved_for()
        #: [n] int32, `reserved_for` at the start of the decision
        self.initially_reserved_for = self.reserved_for.copy()
        self._idle_reserved = np.flatnonzero(fleet.acquirable & (self.reserved_for != NONE))
        #: rows of IDLE machines that were on their way to a need in the last decision
        self._arrived: Rows = self._just_arrived()
        #: [n] bool, ordered in this decision, or backed off
        self.unavailable: Flags = np.zeros(len(fleet), np.bool_)
        if fleet.backed_off is not None:
            self.unavailable |= fleet.backed_off
        #: [n] int32, the need that ordered the machine in this decision, or NONE
        self.ordered_by: Ints = np.full(len(fleet), NONE, np.int32)
        #: by need: rows that it acquired
        self.acquired: dict[int, list[int]] = {}
        #: by need: machines that it preempts
        self.taken: dict[int, TakenMachines] = {}
        #: by gang: the value of its topology key
        self.gang_domains: dict[int, str] = {}
        #: [n] int32, the cluster that the machine is supply for, or NONE
        self.supply_clusters = self._supply_clusters()
        self.budgets = CeilingBudgets(fleet, demand, self.columns, self.supply_clusters)
        #: needs from which their cluster's ceiling withheld a machine
        self.at_ceiling: set[int] = set()
        #: by cluster: rows kept as headroom for gangs, which are not in `packings`
        self.headroom_pool: dict[int, Rows] = {}
        #: by cluster
        self.packings = self._build_packings()

    def _just_arrived(self) -> Rows:
        is_idle = self.fleet.state == MachineState.IDLE
        was_for_need = self.fleet.last_claimed_by != NONE
        return np.flatnonzero(is_idle & was_for_need & (self.reserved_for == NONE))

    @cached_property
    def turns(self) -> Longs:
        """For each need [N] a number that grows in the order in which needs are placed: by
        priority, then gangs before constrained ones before plain ones, then by index. Additional
        needs count as gangs.
        """
        constrained, plain = 1, 2
        kind = np.where(self.classes.need_type == NeedType.PLAIN, plain, 0)
        kind[self.classes.need_type == NeedType.CONSTRAINED] = constrained
        number = np.arange(len(kind), dtype=np.int64)
        # The lowest 29 bits are the index, then two of the kind, and above them 32 of the priority.
        turns: Longs = (-self.priorities << 31) + (kind.astype(np.int64) << 29) + number
        return turns

    @cached_property
    def _backed_off_for(self) -> Ints:
        """[n] int32, the cluster for which the machine is backed off, or NONE."""
        column = self.fleet.backed_off_for
        return self._nobody if column is None else column

    @cached_property
    def _backed_off_for_too(self) -> Ints:
        """[n] int32, another cluster for which it is, or NONE."""
        column = self.fleet.backed_off_for_too
        return self._nobody if column is None else column

    @cached_property
    def _nobody(self) -> Ints:
        return np.full(len(self.fleet), NONE, np.int32)

    @cached_property
    def classes_by_size(self) -> dict[tuple[int, int, bool], Rows]:
        """By cluster and priority, the classes that growth is expected of; see `expected_pods`."""
        return {}

    @cached_property
    def term_limits(self) -> dict[int, Any]:
        """By number of a flavour fit, what its topology terms are; see `placement.topology`."""
        return {}

    def key(self, index: int) -> NeedKey:
        """The identity of need `index`."""
        return key_of(self.fleet, self.demand, index)

    def flavour_fit(self, index: int) -> FlavourFit:
        """How the flavours fit need `index`."""
        return self.classes.fit(index)

    def lacks(self, index: int) -> bool:
        """Whether the need has unplaced pods, impossible ones left out."""
        return bool(self.left[self.classes.of(index)].any())

    def lacking(self, start: int, stop: int) -> Flags:
        """Which of the needs from `start` to `stop` have unplaced pods."""
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

    def drop_idle_reservation(self, index: int) -> None:
        """Release the free machines reserved for a need whose pods are all placed without them.

        The need may have used machines on their way to another need, which would acquire as many
        again.
        """
        if index in self.reserved and not self.lacks(index):
            rows = self._idle_reserved
            rows = rows[(self.reserved_for[rows] == index) & ~self.unavailable[rows]]
            self.reserved_for[rows] = NONE

    @cached_property
    def arrivals(self) -> frozenset[int]:
        """The needs for which machines were created that have just arrived."""
        return frozenset(np.unique(self.fleet.last_claimed_by[self._arrived]).tolist())

    def arrived_for(self, index: int) -> Flags:
        """The machines [n] that were created for the need and have just arrived."""
        arrived = np.zeros(len(self.fleet), np.bool_)
        arrived[self._arrived[self.fleet.last_claimed_by[self._arrived] == index]] = True
        return arrived

    def release_arrived(self) -> bool:
        """Let all clusters use the machines that have just arrived; returns whether any is free."""
        arrived, self._arrived = self._arrived, self._arrived[:0]
        return not self.unavailable[arrived].all()

    @cached_property
    def changes(self) -> list[Rows]:
        """The machines that have been ordered or given back, in that order."""
        return []

    @cached_property
    def free_for_some(self) -> Flags:
        """The machines [n] that one need may get and another may not."""
        found: Flags = self.initially_reserved_for != NONE
        found |= (self._backed_off_for != NONE) | (self._backed_off_for_too != NONE)
        found[self._arrived] = True
        return found

    def _reservations_before(self, index: int) -> Ints:
        """`reserved_for` as need `index` sees it: a machine that has just arrived is for the
        cluster that it was created for, an additional one for the need that asked for it.
        """
        # Else a need of another cluster that arrived earlier would take it, and each cluster would
        # wait for machines that the other one chose.
        rows = self._arrived
        if not len(rows):
            return self.reserved_for
        holder = self.fleet.last_claimed_by[rows]
        open_ = self.demand.cluster[holder] == self.cluster_of(index)
        open_ &= self.classes.need_type[holder] != NeedType.ADDITIONAL
        reserved_for = self.reserved_for.copy()
        reserved_for[rows[~open_]] = holder[~open_]
        return reserved_for

    def availability(self, index: int) -> FleetAvailability:
        """The free machines as the cluster of need `index` sees them, for kernels."""
        cluster = self.cluster_of(index)
        return FleetAvailability(
            self.fleet.flavour,
            self.unavailable,
            self._backed_off_for,
            self._backed_off_for_too,
            self._reservations_before(index),
            self.priorities,
            self.supply_clusters,
            cluster,
            self.budgets.prices,
            self.budgets.remaining(cluster),
        )

    def record_order(self, index: int, rows: Rows) -> None:
        """Order machines for a need."""
        self.unavailable[rows] = True
        self.ordered_by[rows] = index
        self.changes.append(rows)
        self.budgets.charge(self.cluster_of(index), rows)

    def give_back(self, index: int, rows: Sequence[int]) -> None:
        """Undo a need's orders; other pods on these machines lose their places."""
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
        self.changes.append(at)
        self.budgets.refund(self.cluster_of(index), at)

    def unused_orders(self, index: int) -> list[int]:
        """The machines that the need has ordered and that have no pods."""
        packing = self.packing_of(index)
        unused: list[int] = packing.rows[(packing.orderer == index) & ~packing.has_pods].tolist()
        return unused

    def demand_of_clusters(self) -> Floats:
        """By cluster, the total dominant share of its pods, in largest machines; impossible pods
        and additional needs left out.
        """
        classes = self.classes
        left_out = classes.impossible | (classes.need_type[classes.need] == NeedType.ADDITIONAL)
        shares = np.where(left_out, 0.0, classes.count * classes.dominant_share)
        cluster = self.demand.cluster[classes.need]
        total: Floats = np.bincount(cluster, shares, len(self.fleet.clusters)).astype(np.float64)
        return total

    @cached_property
    def _capacity_of_flavour(self) -> Longs:
        """[F] int64, see `capacity_of`."""
        # All machines, large and small, may have room for as many pods.
        allocatable = self.columns.allocatable[:, :PODS_COLUMN]
        shares = (allocatable / self.classes.largest[:PODS_COLUMN]).max(axis=1, initial=0.0)
        millionths: Longs = np.rint(shares * _MILLION).astype(np.int64)
        return millionths

    def capacity_of(self, rows: Rows) -> Longs:
        """The capacity of each machine in CPU or memory, whichever is more, as a share of the
        fleet's largest in millionths.
        """
        return self._capacity_of_flavour[self.fleet.flavour[rows]]

    def capacity_of_cluster(self, cluster: int) -> int:
        """The capacity of its machines, those on their way included, in the same unit."""
        rows = self.packings[cluster].rows
        return int(self.capacity_of(rows[rows != NONE]).sum())

    def memory_of(self, cluster: int) -> ClusterMemory:
        """The memory that the last decision kept of a cluster."""
        name = self.fleet.clusters[cluster]
        return self._memory.get(name, ClusterMemory(name))

    def acquiring_clusters(self) -> set[int]:
        """The clusters that acquire machines in this decision."""
        return {self.cluster_of(index) for index, rows in self.acquired.items() if len(rows)}

    def claims(self, clusters: Iterable[int] | None = None) -> Ints:
        """For each machine [n] the need that claims it: the one that ordered it in this decision,
        or else the first with pods on it; NONE if there is none. A machine on its way stays with
        the need that it comes for. Only for the machines of `clusters`, if given.
        """
        return self._claims(clusters, self.needs.additional)

    def served(self, clusters: Iterable[int] | None = None) -> Ints:
        """Like `claims`, but an additional need has no precedence: of all needs with pods on a
        machine, the first one has the highest priority.
        """
        return self._claims(clusters, np.zeros_like(self.needs.additional))

    def _claims(self, clusters: Iterable[int] | None, preferred: Flags) -> Ints:
        claimed = np.full(len(self.fleet), NONE, np.int32)
        chosen = set(self.packings if clusters is None else clusters)
        self.packings.claim([*chosen], claimed, preferred)
        self._keep_incoming(chosen, claimed)
        np.copyto(claimed, self.ordered_by, where=self.ordered_by != NONE)
        return claimed

    @cached_property
    def drained_for(self) -> dict[int, Rows]:
        """By need: the machines that drain for it."""
        draining = self.fleet.state == MachineState.DRAINING
        rows = np.flatnonzero(draining & (self.initially_reserved_for != NONE))
        holder = self.initially_reserved_for[rows]
        return {index: rows[holder == index] for index in np.unique(holder).tolist()}

    @cached_property
    def _incoming(self) -> Flags:
        """The machines [n] on their way to a cluster."""
        coming: Flags = in_states(self.fleet.state, _INCOMING) & (self.supply_clusters != NONE)
        return coming

    @cached_property
    def _clusters_of_incoming(self) -> list[int]:
        clusters: list[int] = np.unique(self.supply_clusters[self._incoming]).tolist()
        return clusters

    def _keep_incoming(self, clusters: Container[int], claimed: Ints) -> None:
        """Let the needs that machines are on their way to claim them if they have pods there, too,
        and the claimant's priority is no higher.
        """
        # Else it would arrive for another need, and an equal could take it: the need that had it
        # drained would have another machine drained for the same pods.
        incoming = self._incoming
        for cluster in self._clusters_of_incoming:
            if cluster not in clusters:
                continue
            packing = self.packings[cluster]
            machine, pod_class, _ = packing.entries()
            rows, need = packing.rows[machine], self.classes.need[pod_class]
            its = np.flatnonzero(incoming[rows] & (self.fleet.last_claimed_by[rows] == need))
            its = its[self.priorities[claimed[rows[its]]] == self.priorities[need[its]]]
            claimed[rows[its]] = need[its]

    def _build_packings(self) -> Packings:
        fleet, supply_clusters = self.fleet, self.supply_clusters
        rows = self._in_keep_order(np.flatnonzero(supply_clusters != NONE))
        wanted = np.concatenate((self.demand.cluster, supply_clusters[rows]))
        clusters = np.unique(wanted).astype(np.intp)
        ahead = fleet.headroom[rows]
        parts = np.split(rows[ahead], np.searchsorted(supply_clusters[rows[ahead]], clusters)[1:])
        self.headroom_pool = dict(zip(clusters.tolist(), parts, strict=False))
        rows = rows[~ahead]
        start = np.append(np.searchsorted(supply_clusters[rows], clusters), len(rows))
        return Packings.of(
            clusters,
            self._packing_columns(rows),
            start,
            self.classes,
            self.left,
            self.demand,
            self.capacities,
        )

    def _packing_columns(self, rows: Rows) -> PackingColumns:
        fleet, flavour = self.fleet, self.fleet.flavour[rows]
        numbers = self.capacities.numbers(self.supply_clusters[rows])
        kind, capacity = self.classes.kinds(0)[flavour], self.capacities.matrix(0)[flavour]
        for number in np.unique(numbers[numbers > 0]).tolist():
            its = np.flatnonzero(numbers == number)
            kind[its] = self.classes.kinds(number)[flavour[its]]
            capacity[its] = self.capacities.matrix(number)[flavour[its]]
        priorities, last = self._max_priorities(rows), fleet.last_claimed_by[rows]
        return PackingColumns.empty_of(rows, flavour, kind, capacity, priorities, last)

    def _max_priorities(self, rows: Rows) -> Longs:
        """The highest priority that each of `rows` serves."""
        # A machine that drains for a need is not supply for higher priorities: they may demand a
        # shorter grace period.
        reserving_need = self.reserved_for[rows]
        drains = (self.fleet.state[rows] == MachineState.DRAINING) & (reserving_need != NONE)
        return np.where(drains, np.append(self.priorities, ALWAYS)[reserving_need], ALWAYS)

    def _supply_clusters(self) -> Ints:
        """The cluster that each machine is supply for."""
        fleet = self.fleet
        bound = in_states(fleet.state, IN_SERVICE)
        supply_clusters: Ints = np.where(bound, fleet.cluster, np.int32(NONE))
        rows = np.flatnonzero(in_states(fleet.state, _INCOMING))
        of_need = np.append(self.demand.cluster, np.int32(NONE))[fleet.last_claimed_by[rows]]
        supply_clusters[rows] = np.where(of_need != NONE, of_need, fleet.destination[rows])
        return supply_clusters

    def _in_keep_order(self, rows: Rows) -> Rows:
        """`rows` by cluster, in each the machines to be reclaimed last first: disruption cost
        unknown or infinite, then by disruption cost, claimed in the last decision, in service
        before on its way, the cheaper, the higher reclamation penalty.
        """
        fleet = self.fleet
        rows = fleet.by_tie_break(rows)
        # One number per machine is sorted several times as fast as seven columns.
        key = _ARRIVAL[fleet.state[rows]]
        key |= (fleet.last_claimed_by[rows] == NONE).astype(np.int64) << _ARRIVAL_BITS
        key <<= _PRICE_BITS + _PENALTY_BITS
        key |= self.columns.price_rank[fleet.flavour[rows]] << _PENALTY_BITS
        key |= _MOST_PENALTY - fleet.reclamation_bucket[rows].astype(np.int64)
        releasable = np.flatnonzero(np.isfinite(fleet.disruption_cost[rows]))
        if len(releasable):
            cost = fleet.disruption_cost[rows[releasable]]
            releasable = releasable[np.lexsort((key[releasable], -cost))]
            key[releasable] = _RELEASABLE | np.arange(len(releasable))
        key |= self.supply_clusters[rows].astype(np.int64) << _CLUSTER_SHIFT
        return rows[order_of(key)]

    @cached_property
    def constrained(self) -> list[int]:
        """The needs with topology constraints, in order."""
        found: list[int] = np.flatnonzero(self.classes.need_type == NeedType.CONSTRAINED).tolist()
        return found

    def accepting(self, needs: Sequence[int], drained: Sequence[int] | Rows = ()) -> Longs:
        """For each of `needs`, how many CONFIGURED machines of its cluster it accepts, without the
        rows `drained`.
        """
        fleet, its = self.fleet, np.array(needs, np.intp)
        serving = fleet.state == MachineState.CONFIGURED
        serving[np.asarray(drained, np.intp)] = False
        fits = np.array([self.flavour_fit(index).number for index in needs], np.int64)
        order = np.argsort(self.demand.cluster[its], kind="stable")
        clusters = self.demand.cluster[its[order]]
        start = np.searchsorted(clusters, np.arange(len(fleet.clusters) + 1))
        found = np.zeros(len(its), np.int64)
        count_accepting(
            serving, fleet.cluster, fleet.flavour, start, fits[order], self.classes.accepted, found
        )
        counts = np.empty_like(found)
        counts[order] = found
        return counts

    def _running(self, cycle_memory: CycleMemory) -> dict[int, int]:
        """The pods that ran in the last decision, without as many as lost machines may have had."""
        if not cycle_memory.spread_pods:
            return {}
        place = {self.key(index): index for index in self.constrained}
        known = [each for each in cycle_memory.spread_pods if each.need in place]
        needs, found = [place[each.need] for each in known], {}
        for each, index, machines in zip(known, needs, self.accepting(needs).tolist(), strict=True):
            lost = max(0, each.machines - machines)
            if (pods := each.pods - lost * each.most) > 0:
                found[index] = pods
        return found

    def _restore(self, cycle_memory: CycleMemory) -> None:
        self._memory = {memory.cluster: memory for memory in cycle_memory.clusters}
        self._restore_reservations(cycle_memory)

    def _restore_reservations(self, cycle_memory: CycleMemory) -> None:
        """Take over the last decision's reservations; a need whose reservation has expired passes
        for one cycle, so that others can use the machines.
        """
        if not cycle_memory.reservations:
            return
        place = self._place_of([reservation.need for reservation in cycle_memory.reservations])
        for reservation in cycle_memory.reservations:
            index = place.get(reservation.need, NONE)
            if index == NONE:
                continue
            age_seconds = self.now_seconds - reservation.since_seconds
            if age_seconds < self.settings.reservation_seconds:
                self.reserved[index] = reservation
            else:
                self.not_acquiring.add(index)

    def _place_of(self, keys: Iterable[NeedKey]) -> dict[NeedKey, int]:
        """By key, the index of each of these needs that is still there, among others."""
        # Few needs are asked for, and to compare the keys of all takes longer than to place them.
        keys = {*keys}
        clusters, fingerprints = {key.cluster for key in keys}, {key.fingerprint for key in keys}
        known = [profile.fingerprint in fingerprints for profile in self.needs.profiles]
        its = np.array(known, np.bool_)[self.needs.profile]
        its &= np.array([each in clusters for each in self.fleet.clusters])[self.demand.cluster]
        return {self.key(index): index for index in np.flatnonzero(its).tolist()}

    def _reserved_for(self) -> Ints:
        """For each machine [n] the need that it drains for or is reserved for, or NONE."""
        fleet = self.fleet
        has_reservation = np.zeros(len(self.demand.needs) + 1, np.bool_)  # the last is for NONE
        has_reservation[[*self.reserved]] = True
        # A draining machine needs no reservation: without it, the need would at once evict the pods
        # of another one.
        kept = fleet.state == MachineState.DRAINING
        kept |= fleet.acquirable & has_reservation[fleet.last_claimed_by]
        return np.where(kept, fleet.last_claimed_by, np.int32(NONE))


def present_flavours(fleet: Fleet) -> Rows:
    """The flavours that some machine of the fleet has."""
    return np.flatnonzero(np.bincount(fleet.flavour, minlength=len(fleet.flavours)))


def key_of(fleet: Fleet, demand: Demand, index: int) -> NeedKey:
    """The identity of need `index` among all clusters' needs."""
    return NeedKey(fleet.clusters[int(demand.cluster[index])], *demand.needs[index].key)
