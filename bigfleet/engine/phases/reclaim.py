"""Phase 3: reclaim of surplus machines.

A CONFIGURED machine is reclaimed only if
- its cluster's operator has reported what that disrupts (`Fleet.disruption_cost`); the least
  disruptive go first;
- the cluster's pods, plus a margin, fit on its other machines;
- the cluster has had as many surplus machines for the reclaim hold (`reclaim_holds.py`), in which
  they are looked for six times;
- demand is not growing: a machine with pods stays until demand has fallen since the cluster last
  acquired a machine, and while the cluster's demand as a whole grows; an empty one stays until
  demand has been stable for the hold. An empty machine that can hold no pods is surplus in any
  case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bigfleet.engine.cycle_memory import ClusterMemory
from bigfleet.engine.phases.assign import AssignmentPhase
from bigfleet.engine.phases.limits import reclaim_cap
from bigfleet.engine.phases.reclaim_holds import ReclaimHolds
from bigfleet.engine.phases.repacking import Repacking
from bigfleet.engine.placement.gangs import in_gang_domain
from bigfleet.engine.snapshot import NONE, Flags, Fleet, Floats, Ints, Rows, flags_of
from bigfleet.engine.state.claims import claims
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.machine import MachineState

# Each trial repacks all pods of a cluster.
_MAX_TRIALS = 24


class ReclaimPhase:
    """Finds the machines that one decision reclaims."""

    def __init__(self, state: CycleState, assignment: AssignmentPhase) -> None:
        self._state, self._assignment = state, assignment
        self._holds = ReclaimHolds(state)
        self._surplus: dict[int, Rows] = {}
        #: [n] bool, machines to reclaim whose pods hang until they are evicted
        self.must_go: Flags = np.zeros(len(state.fleet), np.bool_)
        self._acquiring = state.acquiring_clusters()
        configured = state.fleet.state == MachineState.CONFIGURED
        clusters = len(state.fleet.clusters)
        #: [clusters] how many machines each has in service
        self._configured = np.bincount(state.fleet.cluster[configured], minlength=clusters)
        #: clusters whose operators have named machines that could go
        self._answered = {
            *state.fleet.cluster[configured & np.isfinite(state.fleet.disruption_cost)].tolist()
        }

    def reclaimable(self) -> Flags:
        """The CONFIGURED machines [n] to reclaim; pods placed on them move to others."""
        state = self._state
        going = np.zeros(len(state.fleet), np.bool_)
        left = abandoned_by_gangs(state)
        going[left] = True
        self.must_go = going & (state.fleet.disruption_cost != 0)
        for cluster in np.unique(state.fleet.cluster[left]).tolist():
            packing = state.packings[cluster]
            for machine in np.flatnonzero(np.isin(packing.rows, left)).tolist():
                packing.remove_machine(machine)
        for cluster in sorted(state.demand.reachable):
            if cluster in self._answered and self._holds.is_search_due(cluster):
                rows = self._surplus[cluster] = self._find_surplus(cluster)
                for row in self._due(cluster, rows).tolist():
                    going[row] = self._evacuate(cluster, row)
        return going

    def _evacuate(self, cluster: int, row: int) -> bool:
        """Move the machine's pods to the cluster's other machines and remove it; False, and nothing
        has changed, if they do not fit.
        """
        # They may fit only after a full repack, which the simulation does not need.
        state, packing = self._state, self._state.packings[cluster]
        memory, left, running = packing.checkpoint(), state.left.copy(), state.running.copy()
        machine = int(np.flatnonzero(packing.rows == row)[0])
        losers = packing.clear_machine(machine)
        for index in state.running.keys() & losers:
            # They will not have been running where they go: that must be within their terms.
            its = state.classes.of(index)
            state.running[index] -= int((state.left[its] - left[its]).sum())
        packing.remove_machine(machine)
        for index in losers:
            self._assignment.place_again(index)
        if (state.left > left).any():
            packing.restore(memory)
            state.left[:], state.running = left, running
            return False
        return True

    def growing(self) -> frozenset[int]:
        """See `Decision.growing`."""
        return self._holds.growing()

    def memory(self, reclaimed: Mapping[int, int]) -> Iterator[ClusterMemory]:
        """The memory of all clusters for the next decision; `reclaimed` counts the surplus machines
        that each of them loses.
        """
        found = {cluster: len(rows) for cluster, rows in self._surplus.items()}
        answered = self._answered & self._state.demand.reachable
        return self._holds.memory(found, answered, reclaimed)

    def surplus_beside(self, reclaimed: Rows) -> dict[int, Rows]:
        """The surplus machines of each cluster in which they were looked for, without those
        `reclaimed`.
        """
        return {cluster: rows[~np.isin(rows, reclaimed)] for cluster, rows in self._surplus.items()}

    def _due(self, cluster: int, rows: Rows) -> Rows:
        """The surplus machines `rows` to reclaim now: as many as have been surplus for their whole
        hold, within the cap.
        """
        state = self._state
        most = reclaim_cap(int(self._configured[cluster]), state.settings.reclaim_cap_fraction)
        due = self._holds.due(cluster, rows, most)
        return due if self._is_stable(cluster) else due[state.fleet.disruption_cost[due] == 0]

    def _find_surplus(self, cluster: int) -> Rows:
        """The cluster's surplus machines: those that can hold no pods, and the candidates without
        all of which its pods fit.
        """
        unschedulable = self._empty_unschedulable(cluster)
        rows = self._candidates(cluster)
        rows = rows[~np.isin(rows, unschedulable)]
        return np.concatenate((unschedulable, self._removable(cluster, rows)))

    def _removable(self, cluster: int, rows: Rows) -> Rows:
        """Those of `rows` without which the cluster's pods fit, found by bisection."""
        # Bisecting what fails isolates a machine that must stay, such as one with part of a gang.
        repacking = Repacking(self._state, self._assignment, cluster)
        chosen, parts = rows[:0], [rows] if len(rows) else []
        for _ in range(_MAX_TRIALS):
            if not parts:
                break
            part = parts.pop()
            if repacking.fits_without(np.concatenate((chosen, part))):
                chosen = np.concatenate((chosen, part))
            elif len(part) > 1:
                half = (len(part) + 1) // 2
                parts += [part[half:], part[:half]]
        return chosen

    def _empty_unschedulable(self, cluster: int) -> Rows:
        """Empty machines whose Nodes take no new pods: they are surplus whatever demand does."""
        state, packing = self._state, self._state.packings[cluster]
        limited = state.columns.limited[packing.flavour] & ~packing.capacity.any(axis=1)
        rows = packing.rows[(packing.rows != NONE) & limited]
        fleet, in_service = state.fleet, state.fleet.state[rows] == MachineState.CONFIGURED
        empty = in_service & ~state.unavailable[rows] & (fleet.disruption_cost[rows] == 0)
        return reclaim_order(fleet, state.columns.price, rows[empty])

    def _candidates(self, cluster: int) -> Rows:
        """Machines that may be reclaimed, the least disruptive first, then those without pods."""
        state, fleet = self._state, self._state.fleet
        packing = state.packings[cluster]
        rows = packing.rows[self._in_service(packing)]
        cost = fleet.disruption_cost[rows]
        allowed = np.isfinite(cost)
        has_decreased = self._demand_has_decreased(cluster)
        allowed &= has_decreased | ((cost == 0) & self._demand_is_stable(cluster))
        rows = reclaim_order(fleet, state.columns.price, rows[allowed])
        counted = np.isin(rows, packing.rows[packing.has_pods])
        return rows[np.lexsort((counted, fleet.disruption_cost[rows]))]

    def _in_service(self, packing: ClusterPacking) -> Flags:
        state = self._state
        rows = np.where(packing.rows == NONE, 0, packing.rows)
        in_service: Flags = (state.fleet.state[rows] == MachineState.CONFIGURED) & (
            packing.rows != NONE
        )
        return in_service & ~state.unavailable[rows]

    def _demand_has_decreased(self, cluster: int) -> bool:
        """Whether demand has fallen since the cluster last grew."""
        memory = self._state.last_decision.cluster(cluster)
        fell = self._state.demand.fell_seconds.get(cluster)
        # A machine acquired beside surplus ones is for pods that these cannot hold: no growth.
        grows = cluster in self._acquiring and not memory.surplus
        return not grows and memory.has_fallen_since_it_grew(fell)

    def _is_stable(self, cluster: int) -> bool:
        """Whether the cluster does not grow, and has acquired nothing for a hold."""
        # Pods of a machine that drains would compete with those that wait for a new one. Where some
        # pods end all the time, demand has always just fallen, also while more begin: then what a
        # large machine makes surplus is needed again soon.
        state = self._state
        acquired = state.last_decision.cluster(cluster).acquired_seconds
        if cluster in self._acquiring or self._holds.grows(cluster):
            return False
        hold_seconds = state.settings.reclaim_hold_seconds
        return acquired is None or state.now_seconds - acquired >= hold_seconds

    def _demand_is_stable(self, cluster: int) -> bool:
        """Whether demand has not grown for `reclaim_hold_seconds`."""
        state = self._state
        rose = state.demand.rose_seconds.get(cluster)
        return rose is None or state.now_seconds - rose >= state.settings.reclaim_hold_seconds


def abandoned_by_gangs(state: CycleState) -> Rows:
    """Unclaimed machines in the former domain of a gang that is now complete in another one.

    Pods that still run there keep the gang's pending pods from any other domain, and the former
    domain has no room for them: until they are evicted, the gang hangs while its need counts as
    met.
    """
    fleet = state.fleet
    if not state.gang_domains:
        return np.empty(0, np.intp)
    open_ = flags_of(state.demand.reachable, len(fleet.clusters))[fleet.cluster]
    gangs = flags_of(state.gang_domains, len(state.needs))[fleet.last_claimed_by]
    idle = (fleet.state == MachineState.CONFIGURED) & open_ & gangs
    for ahead in state.headroom_pool.values():
        idle[ahead] = False
    found, rows = [np.empty(0, np.intp)], np.flatnonzero(idle)
    if len(rows):
        rows = rows[claims(state)[rows] == NONE]
    for index in np.unique(fleet.last_claimed_by[rows]).tolist():
        if _is_in_service(state, index):
            its = rows[fleet.last_claimed_by[rows] == index]
            here = in_gang_domain(state, index, fleet.flavour[its])
            found.append(its[~here])
    return np.concatenate(found)


def _is_in_service(state: CycleState, index: int) -> bool:
    """Whether all pods of the need are placed on CONFIGURED machines."""
    packing = state.packing_of(index)
    machines = {machine for machine, _, _ in packing.placements.one_by_one(state.classes.of(index))}
    states = state.fleet.state[packing.rows[sorted(machines)]]
    return not state.lacks(index) and bool((states == MachineState.CONFIGURED).all())


def machines_to_delete(state: CycleState, claimed_by: Ints) -> Rows:
    """Elastic machines to return to their provider, in reclaim order: those idle and unclaimed for
    longer than their hold, and failed ones. A machine that is idle since an unknown time stays.
    """
    fleet, elastic = state.fleet, state.columns.elastic
    holds = np.full(len(state.columns), np.inf)
    for capacity_type, seconds in state.settings.idle_hold_seconds.items():
        holds[elastic & (state.columns.capacity_type == capacity_type)] = seconds
    idle = np.flatnonzero((fleet.state == MachineState.IDLE) & (claimed_by == NONE))
    overdue = state.now_seconds - fleet.unused_since_seconds[idle] > holds[fleet.flavour[idle]]
    kept = flags_of(state.reserved, len(state.needs))[state.initially_reserved_for[idle]]
    failed = np.flatnonzero(fleet.state == MachineState.FAILED)
    failed = failed[elastic[fleet.flavour[failed]]]
    going = np.concatenate((idle[overdue & ~kept], failed))
    return reclaim_order(fleet, state.columns.price, going)


def reclaim_order(fleet: Fleet, price: Floats, rows: Rows) -> Rows:
    """`rows` by ascending disruption cost, descending price, ascending reclamation penalty, then
    tie_break.
    """
    cost = np.nan_to_num(fleet.disruption_cost[rows], nan=0.0, posinf=np.finfo(np.float64).max)
    by_price = -price[fleet.flavour[rows]]
    return rows[np.lexsort((fleet.tie_break[rows], fleet.reclamation_bucket[rows], by_price, cost))]
