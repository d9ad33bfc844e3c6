"""Phase 1: place pods on their cluster's machines, then acquire machines for the rest.

Needs are served by priority. For each priority, first the pods of each cluster are packed onto the
capacity that higher priorities left, as kube-scheduler will: gangs, then needs with topology
constraints, then all others, those with fewest flavours first and the largest first. Then needs
with unplaced pods acquire machines in the order of their arrival; remaining capacity is offered to
the cluster's other pending pods.
"""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np

from bigfleet.engine.fit.pod_classes import NeedType
from bigfleet.engine.placement.acquire import acquire
from bigfleet.engine.placement.constrained import acquire_constrained, place_constrained
from bigfleet.engine.placement.free_pools import FreePools
from bigfleet.engine.placement.gangs import first_fit, place_in_gang_domain, serve_gang
from bigfleet.engine.placement.settled_gangs import place_gangs
from bigfleet.engine.placement.topology_terms import label_keys
from bigfleet.engine.snapshot import NONE, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.engine.state.packing_order import PackingOrder
from bigfleet.model.group import FoldedGangs
from bigfleet.model.machine import MachineState


class AssignmentPhase:
    """Serves needs one after the other."""

    def __init__(self, state: CycleState) -> None:
        self._state = state
        self.free_pools = FreePools(state)
        self._order = PackingOrder(state.classes, state.demand.cluster)
        #: constrained needs that have had their turn
        self._served: set[int] = set()

    def run(self) -> None:
        """Serve all needs."""
        state = self._state
        self._place_additional()
        changes = np.flatnonzero(np.diff(state.priorities)) + 1
        borders = [0, *changes.tolist(), len(state.priorities)]
        for start, stop in itertools.pairwise(borders if len(state.priorities) else []):
            needs = np.arange(start, stop)
            incomplete = self._place_priority(needs)
            for index in needs[state.lacking(start, stop)].tolist():
                if index not in incomplete:
                    self.serve(index)
            # Gangs that no domain can hold must not take machines from needs that can be met.
            for index in sorted(incomplete):
                self.serve(index)

    def serve(self, index: int) -> None:
        """Place the need's unplaced pods, and acquire machines for the rest."""
        state = self._state
        if not state.lacks(index):
            return
        need_type = state.classes.need_type[index]
        self._start_over(index)
        # Headroom exists for folded gangs; topology terms must see the domains of all machines.
        is_folded = isinstance(state.demand.needs[index].group, FoldedGangs)
        if need_type != NeedType.PLAIN or is_folded:
            self._use_headroom(index)
        if need_type == NeedType.GANG:
            serve_gang(state, self.free_pools, index)
        else:
            self.place_again(index)
            self._acquire(index)
        # Nothing left to acquire: any need may use the headroom.
        if state.lacks(index) and self._use_headroom(index):
            self.place_again(index)
        self._return_unused_headroom(index)
        self._give_back_unused(index)

    def _acquire(self, index: int) -> None:
        state = self._state
        if not state.lacks(index) or index in state.not_acquiring:
            return
        if state.classes.need_type[index] == NeedType.CONSTRAINED:
            acquire_constrained(state, self.free_pools, index)
        else:
            acquire(state, self.free_pools, index, self._order_of(index))

    def place_again(self, index: int) -> None:
        """Place the need's unplaced pods on its cluster's machines."""
        state = self._state
        need_type = state.classes.need_type[index]
        if need_type == NeedType.GANG:
            place_in_gang_domain(state, index)
        elif need_type == NeedType.CONSTRAINED:
            place_constrained(state, index)
        elif need_type == NeedType.PLAIN:
            its = state.classes.of(index)
            order = np.arange(its.start, its.stop, dtype=np.int64)
            state.packing_of(index).place_more(order, int(state.priorities[index]))

    def levels(self, cluster: int) -> list[tuple[int, list[int], Longs]]:
        """The cluster's needs in the order in which they are placed: for each priority the needs
        with topology constraints, and the classes of all plain needs.
        """
        state = self._state
        constrained: dict[int, list[int]] = {}
        need_types = state.classes.need_type
        its = (state.demand.cluster == cluster) & (need_types == NeedType.CONSTRAINED)
        for index in np.flatnonzero(its).tolist():
            constrained.setdefault(int(state.priorities[index]), []).append(index)
        priorities = {*constrained, *self._order.priorities(cluster)}
        return [
            (priority, constrained.get(priority, []), self._order.of(cluster, priority))
            for priority in sorted(priorities, reverse=True)
        ]

    def _place_priority(self, needs: Rows) -> set[int]:
        """Place the pods of all needs of one priority on their clusters' machines; returns the
        gangs that no domain can hold.
        """
        state, need_types = self._state, self._state.classes.need_type[needs]
        gangs = needs[need_types == NeedType.GANG]
        incomplete = place_gangs(state, self.free_pools, gangs)
        self._place_on_drained(needs)
        for index in needs[need_types == NeedType.CONSTRAINED].tolist():
            self._take_arrived(index)
            place_constrained(state, index)
        priority = int(state.priorities[needs[0]])
        state.packings.place(self._order.of_priority(priority), priority)
        return incomplete

    def _take_arrived(self, index: int) -> None:
        """Acquire what was created for a constrained need, has just arrived, and makes a domain of
        its own, as far as it places pods there.
        """
        # It made that domain while it was being created. Without it the others would have all pods.
        state = self._state
        if (
            index not in state.arrived.needs
            or index in state.not_acquiring
            or not state.lacks(index)
        ):
            return
        arrived = state.arrived.of(index)
        rows, packing = np.flatnonzero(arrived), state.packing_of(index)
        arrived[rows] = False
        for key in label_keys(state.flavour_fit(index)):
            codes = state.columns.label(key).codes
            known = codes[packing.flavour[packing.rows != NONE]]
            arrived[rows] |= ~np.isin(codes[state.fleet.flavour[rows]], known)
        if arrived.any():
            acquire_constrained(state, FreePools(state, arrived), index)
            self._give_back_unused(index)

    def _place_on_drained(self, needs: Rows) -> None:
        """Place pods of the plain ones of `needs` on the machines that drain for them."""
        # Else pods of the same priority that were counted elsewhere, or nowhere, might be counted
        # there, and another machine would be drained for the need.
        state = self._state
        if not self._drained_for:
            return
        for index in needs[np.isin(needs, [*self._drained_for])].tolist():
            if state.classes.need_type[index] == NeedType.PLAIN:
                order = self._order_of(index)
                its = order[state.classes.need[order] == index]
                rows = self._drained_for[index]
                state.packing_of(index).place_on(rows, its, int(state.priorities[index]))

    @cached_property
    def _drained_for(self) -> dict[int, Rows]:
        """By need: the machines that drain for it."""
        state = self._state
        draining = state.fleet.state == MachineState.DRAINING
        rows = np.flatnonzero(draining & (state.initially_reserved_for != NONE))
        holder = state.initially_reserved_for[rows]
        return {index: rows[holder == index] for index in np.unique(holder).tolist()}

    def _place_additional(self) -> None:
        """Place additional needs on the machines acquired for them."""
        # Other machines may be full although the simulation has room on them: that is why the pods
        # are pending. Those that were acquired together come one by one. The pods that still wait
        # are for the next ones: on those that are there, others of the need run by now.
        state, fleet = self._state, self._state.fleet
        for index in np.flatnonzero(state.classes.need_type == NeedType.ADDITIONAL).tolist():
            packing, accepted = state.packing_of(index), state.flavour_fit(index).accepted
            own = fleet.last_claimed_by[packing.rows] == index
            machines = np.flatnonzero(own & accepted[packing.flavour])
            there = fleet.state[packing.rows[machines]] == MachineState.CONFIGURED
            first_fit(state, index, machines[np.argsort(there, kind="stable")].tolist())

    def _use_headroom(self, index: int) -> bool:
        """Add the cluster's headroom that the need accepts to its machines; returns whether there
        is any.
        """
        state = self._state
        cluster, flavour_fit = state.cluster_of(index), state.flavour_fit(index)
        rows = state.headroom_pool[cluster]
        useful = flavour_fit.accepted[state.fleet.flavour[rows]]
        helps = bool(useful.any()) and state.classes.need_type[index] != NeedType.ADDITIONAL
        if helps:
            state.headroom_pool[cluster] = rows[~useful]
            found, fleet = rows[useful], state.fleet
            state.packings[cluster].add(found, fleet.flavour[found], fleet.last_claimed_by[found])
            # The domains existed all along: start over with the right minimum.
            if flavour_fit.is_constrained:
                state.packings[cluster].clear_need(state.classes.of(index))
        return helps

    def _start_over(self, index: int) -> None:
        """Remove the pods of a constrained need, in its first turn, if another need has got the
        cluster's headroom since it was placed.
        """
        state = self._state
        if state.classes.need_type[index] != NeedType.CONSTRAINED or index in self._served:
            return
        self._served.add(index)
        rows = state.packing_of(index).rows
        if state.fleet.headroom[rows[rows != NONE]].any():
            # That machine was a domain all along: the minimum was too high without it.
            state.packing_of(index).clear_need(state.classes.of(index))

    def _return_unused_headroom(self, index: int) -> None:
        """Keep from later needs the cluster's headroom that need `index` has left empty."""
        state, cluster = self._state, self._state.cluster_of(index)
        packing = state.packings[cluster]
        present = np.flatnonzero((packing.rows != NONE) & ~packing.has_pods)
        unused = present[state.fleet.headroom[packing.rows[present]]]
        if len(unused):
            # Else gangs without a use for it would be placed there, and it would be replaced.
            rows = packing.rows[unused]
            state.headroom_pool[cluster] = np.concatenate((state.headroom_pool[cluster], rows))
            for machine in unused.tolist():
                packing.remove_machine(machine)

    def _give_back_unused(self, index: int) -> None:
        """Give back the machines that a constrained need has ordered and that are empty: once it is
        placed again, its pods may be on machines that other needs have ordered since.
        """
        state, ordered = self._state, self._state.acquired.get(index)
        if not ordered or state.classes.need_type[index] != NeedType.CONSTRAINED:
            return
        empty = state.unused_orders(index)
        if unused := [row for row in ordered if row in empty]:
            state.give_back(index, unused)
            state.acquired[index] = [row for row in ordered if row not in unused]

    def _order_of(self, index: int) -> Longs:
        """All classes that are packed together with those of need `index`."""
        return self._order.of(self._state.cluster_of(index), int(self._state.priorities[index]))
