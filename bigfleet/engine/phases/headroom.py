"""Headroom: one empty machine per cluster for gangs that fit on one machine.

Such a gang is served as plain demand: any machine with room for all of it will do. But
kube-scheduler binds a gang's pods one by one, the first to any Node with room for that pod. If no
machine has room for the whole gang, its other pods then wait for a rack that may be full, while
their need counts as met. So each cluster with such gangs keeps one machine beyond its placements
that holds the largest of them: one without pods, or else one that would be released, or it acquires
one once all other needs are served. Nothing is preempted for it. A need that is short and can
acquire nothing may use it, and a higher priority may preempt it. If any need could use it at any
time, each new pod would cause another acquisition, and the cluster would grow by machines as small
as a gang.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.phases.reclaim import reclaim_order
from bigfleet.engine.placement.free_pools import FreePools
from bigfleet.engine.placement.growth import NO_PODS
from bigfleet.engine.placement.selection import choose_machines
from bigfleet.engine.snapshot import NONE, Flags, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.machine import MachineState


class Headroom:
    """The headroom machines of one decision."""

    def __init__(self, state: CycleState, free_pools: FreePools) -> None:
        self._state, self._free_pools = state, free_pools
        #: by need with folded gangs, the largest first: the class of its largest gangs
        self._gangs = _largest_first(state)
        self._by_cluster: dict[int, list[int]] = {}
        #: by cluster: its machines without pods, in the order in which they are chosen
        self._without_pods: dict[int, Rows] = {}

    @property
    def rows(self) -> frozenset[int]:
        """All machines kept or acquired as headroom."""
        return frozenset(row for rows in self._by_cluster.values() for row in rows)

    def retain(self) -> None:
        """Set aside machines without pods, those that were headroom before first."""
        self._by_cluster, self._without_pods = {}, {}
        for index in self._gangs:
            if not self._has_room(index) and len(chosen := self._unused(index)[:1]):
                self._record(index, chosen)
                self._remove_from_packing(index, chosen)

    def acquire(self, reclaimable: Flags, must_go: Flags) -> None:
        """Choose again, since other needs may have used the machines; keep, of the machines [n]
        that are `reclaimable`, one that need not go; and acquire what is still missing.
        """
        self.retain()
        state, released = self._state, np.flatnonzero(reclaimable & ~must_go)
        for index in self._gangs:
            # A need that is short has no use for headroom.
            if state.lacks(index) or self._has_room(index):
                continue
            if len(kept := self._last(index, released[reclaimable[released]])):
                reclaimable[kept] = False
                self._record(index, kept)
            elif index not in state.not_acquiring:
                self._record(index, self._acquired(index))

    def _last(self, index: int, released: Rows) -> Rows:
        """Of the machines `released` by the need's cluster that can hold its largest gang, the last
        in reclaim order.
        """
        # Else one that would do is released in the decision that acquires another.
        state = self._state
        its = state.fleet.cluster[released] == state.cluster_of(index)
        rows = released[its & ~state.unavailable[released]]
        rows = rows[self._holds(index, rows)]
        return reclaim_order(state.fleet, state.columns.price, rows)[-1:]

    def _acquired(self, index: int) -> Rows:
        """Acquire an unclaimed machine for one more of the need's largest gangs."""
        state, largest = self._state, self._gangs[index]
        state.left[largest] += 1
        pools = self._free_pools.pools(index)
        selection = choose_machines(
            state,
            index,
            np.empty(0, np.int64),
            pools,
            pods_at_most=1,
            machines_at_most=1,
            expected=NO_PODS,
        )
        state.left[largest] -= 1
        rows = selection.rows.astype(np.intp)
        state.record_order(index, rows)
        state.acquired.setdefault(index, []).extend(rows.tolist())
        return rows

    def _unused(self, index: int) -> Rows:
        """Machines of the need's cluster without pods that can hold its largest gang."""
        cluster = self._state.cluster_of(index)
        if cluster not in self._without_pods:
            self._without_pods[cluster] = self._find_without_pods(cluster)
        rows = self._without_pods[cluster]
        return rows[self._holds(index, rows)]

    def _find_without_pods(self, cluster: int) -> Rows:
        state = self._state
        packing, headroom_pool = state.packings[cluster], state.headroom_pool[cluster]
        empty = packing.rows[~packing.has_pods & (packing.rows != NONE)]
        empty = empty[~state.unavailable[empty]]
        # Former headroom that a need was offered and has not used comes first.
        ahead = state.fleet.headroom[empty]
        in_service = state.fleet.state[empty] == MachineState.CONFIGURED
        return np.concatenate((headroom_pool, empty[ahead], empty[in_service & ~ahead]))

    def _remove_from_packing(self, index: int, rows: Rows) -> None:
        cluster = self._state.cluster_of(index)
        packing, headroom_pool = self._state.packings[cluster], self._state.headroom_pool[cluster]
        for row in rows.tolist():
            for machine in np.flatnonzero(packing.rows == row).tolist():
                packing.remove_machine(machine)
        self._without_pods.pop(cluster, None)
        known = headroom_pool.tolist()
        new = np.array([row for row in rows.tolist() if row not in known], np.intp)
        self._state.headroom_pool[cluster] = np.concatenate((headroom_pool, new))

    def _has_room(self, index: int) -> bool:
        ahead = self._by_cluster.get(self._state.cluster_of(index), [])
        return bool(self._holds(index, np.array(ahead, np.intp)).any())

    def _holds(self, index: int, rows: Rows) -> Flags:
        """Which machines could hold the need's largest gang if they were empty."""
        state = self._state
        if not len(rows):
            return np.empty(0, np.bool_)
        flavour = state.fleet.flavour[rows]
        size = state.classes.sizes[self._gangs[index]]
        room = state.capacities.of(state.cluster_of(index))[flavour]
        held: Flags = state.flavour_fit(index).accepted[flavour] & (room >= size).all(axis=1)
        return held

    def _record(self, index: int, rows: Rows) -> None:
        self._by_cluster.setdefault(self._state.cluster_of(index), []).extend(rows.tolist())


def _largest(state: CycleState, index: int) -> int:
    """The class of the need's largest gangs that some machine could hold."""
    its = state.classes.of(index)
    first = int(np.argmin(state.classes.impossible[its]))
    return int(its.start) + first


def _largest_first(state: CycleState) -> dict[int, int]:
    """The needs of folded gangs, largest first: a machine for a large gang holds small ones. By
    each, the class of its largest gangs that some machine could hold.
    """
    largest = {
        index: _largest(state, index)
        for index in np.flatnonzero(state.needs.folded_gangs).tolist()
        if not state.classes.impossible[state.classes.of(index)].all()
    }
    share = state.classes.dominant_share
    ordered = sorted(largest, key=lambda index: (-float(share[largest[index]]), index))
    return {index: largest[index] for index in ordered}
