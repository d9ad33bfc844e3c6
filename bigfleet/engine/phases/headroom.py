"""One machine ahead for small gangs, so that kube-scheduler need not tear them.

A gang that fits on one machine is served as plain demand: any room of its size will do. But the
scheduler binds a gang's pods one by one, the first to any node with room for that one. In a cluster
that has no room for all of them together, the others then wait at a rack in which nothing may be
left, while their need counts as met. So each cluster with such gangs keeps one machine more than
its pods count on that holds the largest of them, or acquires one once everybody else was served.
Nothing is taken from anybody for it; who lacks machines and can acquire none may use it, and who
outranks the gangs may take it. Were it there for everybody, each pod that comes would have the next
one bought, and so a cluster would grow by machines as small as a gang.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.fit.normalise import is_folded
from bigfleet.engine.placement.acquire import FreePools, choose_machines, in_tiers
from bigfleet.engine.snapshot import NONE, Flags, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.machine import MachineState


class Headroom:
    """The machines ahead, of one decision."""

    def __init__(self, state: CycleState, free_pools: FreePools) -> None:
        self._state, self._free_pools = state, free_pools
        self._gangs = _largest_first(state)
        self._by_cluster: dict[int, list[int]] = {}

    @property
    def rows(self) -> frozenset[int]:
        """All machines that are kept or acquired to be ahead."""
        return frozenset(row for rows in self._by_cluster.values() for row in rows)

    def retain(self) -> None:
        """Set apart machines that hold no pods: those first that were ahead before."""
        self._by_cluster = {}
        for index in self._gangs:
            if not self._has_room(index):
                chosen = self._unused(index)[:1]
                self._record(index, chosen)
                self._remove_from_packing(index, chosen)

    def acquire(self) -> None:
        """Choose again, after others may have used what was chosen, and acquire what is missing.

        A need that lacks machines, or passes, gets none ahead either.
        """
        self.retain()
        state = self._state
        for index in self._gangs:
            passes = state.lacks(index) or index in state.not_acquiring
            if not passes and not self._has_room(index):
                self._record(index, self._acquired(index))

    def _acquired(self, index: int) -> Rows:
        """A machine for one more of the need's largest gangs, which nobody counts on yet."""
        state, largest = self._state, _largest(self._state, index)
        state.left[largest] += 1
        pools = in_tiers(self._free_pools.pools(index))
        selection = choose_machines(
            state, index, np.empty(0, np.int64), pools, pods_at_most=1, machines_at_most=1
        )
        state.left[largest] -= 1
        rows = selection.rows.astype(np.intp)
        state.unavailable[rows] = True
        state.ordered_by[rows] = index
        state.budgets.charge(state.cluster_of(index), rows)
        state.acquired.setdefault(index, []).extend(rows.tolist())
        return rows

    def _unused(self, index: int) -> Rows:
        """Machines of the need's cluster without pods that can hold its largest gang."""
        state, cluster = self._state, self._state.cluster_of(index)
        packing, headroom_pool = state.packings[cluster], state.headroom_pool[cluster]
        empty = packing.rows[~packing.has_pods & (packing.rows != NONE)]
        empty = empty[~state.unavailable[empty]]
        # Whoever lacks machines was offered those that are ahead, and has not used these.
        ahead = state.fleet.headroom[empty]
        in_service = state.fleet.state[empty] == MachineState.CONFIGURED
        rows = np.concatenate((headroom_pool, empty[ahead], empty[in_service & ~ahead]))
        return rows[self._holds(index, rows)]

    def _remove_from_packing(self, index: int, rows: Rows) -> None:
        cluster = self._state.cluster_of(index)
        packing, headroom_pool = self._state.packings[cluster], self._state.headroom_pool[cluster]
        for machine in np.flatnonzero(np.isin(packing.rows, rows)).tolist():
            packing.remove_machine(machine)
        new = rows[~np.isin(rows, headroom_pool)]
        self._state.headroom_pool[cluster] = np.concatenate((headroom_pool, new))

    def _has_room(self, index: int) -> bool:
        ahead = self._by_cluster.get(self._state.cluster_of(index), [])
        return bool(self._holds(index, np.array(ahead, np.intp)).any())

    def _holds(self, index: int, rows: Rows) -> Flags:
        """Which machines the need's largest gang could have to itself."""
        state = self._state
        flavour = state.fleet.flavour[rows]
        size = state.classes.sizes[_largest(state, index)]
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


def _largest_first(state: CycleState) -> list[int]:
    """The folded gangs of all clusters: what has room for a large one has it for a small one."""
    shares = {
        index: float(state.classes.dominant_share[_largest(state, index)])
        for index, need in enumerate(state.demand.needs)
        if is_folded(need) and not state.classes.impossible[state.classes.of(index)].all()
    }
    return sorted(shares, key=lambda index: (-shares[index], index))
