"""State of one decision: its inputs in indexed form, and what is decided so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bigfleet.engine.columns import columns_of
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.fit.pod_classes import FlavourFit, NeedType, PodClasses
from bigfleet.engine.kernels.candidate_pool import FleetAvailability
from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import (
    NONE,
    Demand,
    EngineConfig,
    Flags,
    Fleet,
    Ints,
    Longs,
    Rows,
    flags_of,
    in_states,
)
from bigfleet.engine.state.ceiling_budgets import CeilingBudgets
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.last_decision import Arrived, LastDecision, key_of, reserved_machines
from bigfleet.engine.state.packing_columns import PackingColumns
from bigfleet.engine.state.packing_order import turns_of
from bigfleet.engine.state.packings import Packings
from bigfleet.engine.state.supply import (
    INCOMING,
    highest_priorities,
    in_keep_order,
    supply_clusters_of,
)
from bigfleet.model.need import NeedKey


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
        self.last_decision = LastDecision(fleet, demand, self.needs, cycle_memory)
        #: by need: the reservations in force
        self.reserved, expired = self.last_decision.reservations(settings, now_seconds)
        suspended = flags_of(demand.suspended, len(fleet.clusters))[demand.cluster]
        #: needs that acquire and preempt nothing in this decision: those of suspended clusters, and
        #: those whose reservation has expired, so that others can use its machines
        self.not_acquiring: set[int] = {*np.flatnonzero(suspended).tolist(), *expired}
        #: by need with hard topology spread: how many of its pods run already, by the last count
        self.running = self.last_decision.running(self.classes, self.constrained)
        #: needs of which such pods are counted where a term would not let them start
        self.beyond_skew: set[int] = set()
        #: [n] int32, the need that the machine drains for or is reserved for, or NONE
        self.reserved_for = reserved_machines(fleet, demand, self.reserved)
        #: [n] int32, `reserved_for` at the start of the decision
        self.initially_reserved_for = self.reserved_for.copy()
        #: machines that were free and reserved at the start
        self.idle_reserved: Rows = np.flatnonzero(fleet.acquirable & (self.reserved_for != NONE))
        #: machines that were on their way in the last decision
        self.arrived = Arrived(fleet, demand, self.needs.additional, self.reserved_for)
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
        self.supply_clusters = supply_clusters_of(fleet, demand)
        self.budgets = CeilingBudgets(fleet, demand, self.columns, self.supply_clusters)
        #: needs from which their cluster's ceiling withheld a machine
        self.at_ceiling: set[int] = set()
        #: by cluster: rows kept as headroom for gangs, which are not in `packings`
        self.headroom_pool: dict[int, Rows] = {}
        #: by cluster
        self.packings = self._build_packings()

    @cached_property
    def turns(self) -> Longs:
        """See `turns_of`."""
        return turns_of(self.classes.need_type, self.priorities)

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
        """By number of a flavour fit, what its topology terms are; see `topology_terms`."""
        return {}

    def key(self, index: int) -> NeedKey:
        """The identity of need `index`."""
        return key_of(self.fleet, self.demand, index)

    def flavour_fit(self, index: int) -> FlavourFit:
        """How the flavours fit need `index`."""
        return self.classes.fit(index)

    def lacks(self, index: int) -> bool:
        """Whether the need has unplaced pods, impossible ones left out."""
        return bool(np.count_nonzero(self.left[self.classes.of(index)]))

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

    @cached_property
    def changes(self) -> list[Rows]:
        """The machines that have been ordered or given back, in that order."""
        return []

    @cached_property
    def free_for_some(self) -> Flags:
        """The machines [n] that one need may get and another may not."""
        found: Flags = self.initially_reserved_for != NONE
        found |= (self._backed_off_for != NONE) | (self._backed_off_for_too != NONE)
        found[self.arrived.rows] = True
        return found

    def availability(self, index: int) -> FleetAvailability:
        """The free machines as the cluster of need `index` sees them, for kernels."""
        cluster = self.cluster_of(index)
        return FleetAvailability(
            self.fleet.flavour,
            self.unavailable,
            self._backed_off_for,
            self._backed_off_for_too,
            self.arrived.reserved_before(index, self.reserved_for),
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

    def acquiring_clusters(self) -> set[int]:
        """The clusters that acquire machines in this decision."""
        return {self.cluster_of(index) for index, rows in self.acquired.items() if len(rows)}

    @cached_property
    def incoming(self) -> Flags:
        """The machines [n] on their way to a cluster."""
        coming: Flags = in_states(self.fleet.state, INCOMING) & (self.supply_clusters != NONE)
        return coming

    @cached_property
    def clusters_of_incoming(self) -> list[int]:
        """The clusters that machines are on their way to."""
        clusters: list[int] = np.unique(self.supply_clusters[self.incoming]).tolist()
        return clusters

    def _build_packings(self) -> Packings:
        fleet, supply_clusters = self.fleet, self.supply_clusters
        rows = in_keep_order(fleet, self.columns, supply_clusters)
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
        highest = highest_priorities(fleet, self.reserved_for, self.priorities, rows)
        last = fleet.last_claimed_by[rows]
        return PackingColumns.empty_of(rows, flavour, kind, capacity, highest, last)

    @cached_property
    def constrained(self) -> list[int]:
        """The needs with topology constraints, in order."""
        found: list[int] = np.flatnonzero(self.classes.need_type == NeedType.CONSTRAINED).tolist()
        return found


def present_flavours(fleet: Fleet) -> Rows:
    """The flavours that some machine of the fleet has."""
    return np.flatnonzero(np.bincount(fleet.flavour, minlength=len(fleet.flavours)))
