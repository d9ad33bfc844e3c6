"""Phase 2: needs that are still short take surplus machines, then preempt lower priorities.

Needs are served in their order, after all placements of phase 1. A plain need takes as much as it
can get; a gang takes nothing unless that completes it. Pods that lose their machine are placed on
others of their cluster, or served again when it is their need's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bigfleet.engine.fit.pod_classes import NeedType
from bigfleet.engine.kernels.gang_request import SOURCE_PREEMPTIBLE, SOURCE_SURPLUS
from bigfleet.engine.phases.assign import AssignmentPhase
from bigfleet.engine.phases.preemption_candidates import Candidates, PreemptionCandidates, in_ranks
from bigfleet.engine.placement.acquire import order
from bigfleet.engine.placement.constrained import take_constrained
from bigfleet.engine.placement.gang_pools import DomainChoice, choose_domain, same_key
from bigfleet.engine.placement.gangs import (
    acquire_in_domain,
    place_gang,
    preempt_in_domain,
    reserved_domain,
    serve_gang,
    take_first_fit,
    unplace_gang,
)
from bigfleet.engine.placement.selection import choose_machines
from bigfleet.engine.placement.topology_terms import label_keys
from bigfleet.engine.snapshot import NONE, Flags, Rows
from bigfleet.engine.state.cycle_state import CycleState, TakenMachines

# Classes looked at together for the next need that is short.
_LOOK_AHEAD = 4096


def preempt(state: CycleState, assignment: AssignmentPhase, reclaimable: Flags) -> None:
    """Take machines for all needs that are short, in their order.

    `reclaimable` [n] are the CONFIGURED machines that are reclaimed in any case.
    """
    if state.left.any():
        _Preemption(state, assignment, reclaimable).run()


class _Preemption:
    def __init__(self, state: CycleState, assignment: AssignmentPhase, reclaimable: Flags) -> None:
        self._state, self._assignment = state, assignment
        self._candidates = PreemptionCandidates(state, reclaimable)
        given_back = np.unique(state.fleet.cluster[reclaimable]).tolist()
        #: clusters whose needs are placed again: pods lost their places, or machines changed
        self._dirty_clusters = {*state.acquiring_clusters(), *given_back}
        #: all needs are placed again: machines became free after a need had its turn
        self._all_dirty = self._drop_idle_reservations()

    def run(self) -> None:
        """Serve all needs once: victims have a lower priority, so their turn is still to come."""
        state = self._state
        for index in self._short_needs():
            # By its simulated placements, the cluster of an additional need has enough machines:
            # no pods are evicted for it.
            additional = state.classes.need_type[index] == NeedType.ADDITIONAL
            if state.lacks(index) and index not in state.not_acquiring and not additional:
                if state.needs.gang[index]:
                    self._serve_gang(index)
                else:
                    self._serve(index, self._preempt_for)

    def _serve(self, index: int, how: Callable[[int], None]) -> None:
        state = self._state
        machines = len(state.packing_of(index))
        how(index)
        # Others may use the remaining capacity of the new machines.
        if len(state.packing_of(index)) > machines:
            self._dirty_clusters.add(state.cluster_of(index))

    def _serve_gang(self, index: int) -> None:
        """Serve a gang, and earlier needs again of which more pods have no place than before: it
        has given back machines that they had counted on, or completes itself with those of another.
        """
        state, classes = self._state, self._state.classes
        before = state.left[: classes.start[index]].copy()
        self._serve(index, self._preempt_for)
        lost = np.flatnonzero(state.left[: len(before)] > before)
        for index in np.unique(classes.need[lost]).tolist():
            # They have had their turn. A gang among them would again take machines from others; it
            # may use those that have been ordered again.
            is_gang, assignment = state.needs.gang[index], self._assignment
            self._serve(index, assignment.place_again if is_gang else assignment.serve)
            self._candidates.refresh([state.cluster_of(index)])

    def _short_needs(self) -> Iterator[int]:
        """All needs that are short when it is their turn, in order."""
        state, index = self._state, 0
        # What one need takes may make later needs short, never earlier ones.
        while index < len(state.needs):
            at = int(state.classes.start[index])
            short = np.flatnonzero(state.left[at : at + _LOOK_AHEAD])
            if len(short):
                yield (index := int(state.classes.need[at + int(short[0])]))
                index += 1
            elif at + _LOOK_AHEAD >= len(state.left):
                return
            else:
                index = int(state.classes.need[at + _LOOK_AHEAD])

    def _drop_idle_reservations(self) -> bool:
        """Release all reserved free machines; returns whether there were any."""
        state = self._state
        kept = (state.reserved_for != NONE) & state.fleet.acquirable
        set_free = bool((kept & ~state.unavailable).any())
        state.reserved_for[kept] = NONE
        return state.arrived.release(state.unavailable) or set_free

    def _preempt_for(self, index: int) -> None:
        state = self._state
        if self._all_dirty or state.cluster_of(index) in self._dirty_clusters:
            self._assignment.serve(index)
            self._candidates.refresh([state.cluster_of(index)])
        if not state.lacks(index):
            return
        candidates = self._candidates.of(index)
        flavour_fit = state.flavour_fit(index)
        if flavour_fit.profile.same_key is not None:
            self._complete_gang(index, candidates)
        elif len(candidates.rows) and flavour_fit.is_constrained:
            keys = label_keys(flavour_fit)
            pools = list(in_ranks(state, index, candidates, keys))
            rows = take_constrained(state, index, pools, record_acquired=False)
            self._note(index, candidates, np.array(rows, np.intp))
            # Even if it takes none, some of its pods may have found places meanwhile.
            self._candidates.refresh([state.cluster_of(index)])
        elif len(candidates.rows):
            selection = choose_machines(
                state, index, np.empty(0, np.int64), in_ranks(state, index, candidates)
            )
            order(state, index, selection)
            self._note(index, candidates, selection.rows.astype(np.intp))

    def _complete_gang(self, index: int, candidates: Candidates) -> None:
        """Complete a gang in any domain where that is possible."""
        state, free_pools = self._state, self._assignment.free_pools
        had = state.acquired.get(index, [])
        counted = self._usable_machines(index)
        unplace_gang(state, index)
        if had:  # other pods on these machines lost their places
            self._dirty_clusters.add(state.cluster_of(index))
        keys = (same_key(state, index),)
        non_disruptive, others = (
            candidates.only(candidates.non_disruptive),
            candidates.only(~candidates.non_disruptive),
        )
        further = [(each, SOURCE_SURPLUS) for each in in_ranks(state, index, non_disruptive, keys)]
        further += [(each, SOURCE_PREEMPTIBLE) for each in in_ranks(state, index, others, keys)]
        kept = reserved_domain(state, index)
        choice = choose_domain(state, free_pools, index, kept, further)
        if not choice.whole or not self._fill(index, choice, candidates):
            # It cannot be completed: release its reservation.
            self._all_dirty |= state.reserved.pop(index, None) is not None
            serve_gang(state, free_pools, index)
        self._all_dirty |= not set(had) <= set(state.acquired.get(index, []))
        if self._usable_machines(index) != counted:
            self._candidates.refresh([state.cluster_of(index)])

    def _fill(self, index: int, choice: DomainChoice, candidates: Candidates) -> bool:
        """Acquire and preempt what the gang lacks in its domain; False if it stays incomplete."""
        state, keys = self._state, (same_key(self._state, index),)
        free_pools = self._assignment.free_pools.pools(index, keys)
        place_gang(state, index, choice)
        state.at_ceiling.discard(index)
        acquire_in_domain(state, index, free_pools)
        if not state.lacks(index):
            return True
        pools = list(in_ranks(state, index, candidates, keys))
        rows = preempt_in_domain(state, index, pools)
        if state.lacks(index):
            state.give_back(index, rows.tolist())
            if index in state.at_ceiling:
                state.not_acquiring.add(index)
                return False
            rows = take_first_fit(state, index, choice, [*free_pools, *pools])
        self._note(index, candidates, rows)
        return not state.lacks(index)

    def _usable_machines(self, index: int) -> list[tuple[int, int, int]]:
        state = self._state
        return sorted(state.packing_of(index).placements.one_by_one(state.classes.of(index)))

    def _note(self, index: int, candidates: Candidates, rows: Rows) -> None:
        """Record that the need takes `rows` of the candidates; their pods lose their places."""
        if not len(rows):
            return
        state = self._state
        its = np.flatnonzero(np.isin(candidates.rows, rows))
        its = its[np.argsort(candidates.rows[its])]
        at = its[np.searchsorted(candidates.rows[its], rows)]
        state.taken[index] = TakenMachines(rows, candidates.non_disruptive[at], candidates.gap[at])
        supply_clusters = state.supply_clusters[rows]
        for cluster in np.unique(supply_clusters[supply_clusters != NONE]).tolist():
            packing, lost = state.packings[cluster], rows[supply_clusters == cluster]
            for machine in np.flatnonzero(np.isin(packing.rows, lost)).tolist():
                if packing.orderer[machine] != index:
                    packing.clear_machine(machine)
                    packing.remove_machine(machine)
            headroom_pool = state.headroom_pool[cluster]
            state.headroom_pool[cluster] = headroom_pool[~np.isin(headroom_pool, lost)]
            self._dirty_clusters.add(cluster)
            self._candidates.refresh([cluster])
        self._candidates.refresh([state.cluster_of(index)])
