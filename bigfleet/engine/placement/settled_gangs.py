"""Gangs that stay in the domain in which they have machines, placed many at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from bigfleet.engine.kernels.gangs import Gangs, settle
from bigfleet.engine.kernels.scoring import PlacementLog
from bigfleet.engine.snapshot import NONE, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState


def settle_gangs(state: CycleState, gangs: Rows) -> Iterator[int]:
    """Place all `gangs` of one priority that fit on their cluster's machines in the only domain in
    which they had some, and yield the others when it is their turn.

    Such a gang is best served there: no other domain has more of it on its cluster's machines, and
    none has any on the gang's own. Clusters do not affect each other here, so only gangs of one
    cluster are placed in their order. A gang with a reservation is yielded: it may have to release
    it.
    """
    if not len(gangs):
        return
    cluster_of = state.demand.cluster[gangs]
    queues: list[tuple[int, _Queue]] = []
    for cluster in np.unique(cluster_of).tolist():
        queue = _Queue(state, cluster, gangs[cluster_of == cluster])
        if (index := queue.advance()) != NONE:
            queues.append((index, queue))
    heapq.heapify(queues)
    while queues:
        index, queue = queues[0]
        yield index
        following = queue.advance()
        if following == NONE:
            heapq.heappop(queues)
        else:
            heapq.heapreplace(queues, (following, queue))


class _Queue:
    """The gangs of one cluster and priority, in order."""

    def __init__(self, state: CycleState, cluster: int, needs: Rows) -> None:
        self._state, self._packing = state, state.packings[cluster]
        self._keys = [str(state.flavour_fit(index).profile.same_key) for index in needs.tolist()]
        distinct = sorted(set(self._keys))
        labels = [state.columns.label(key) for key in distinct]
        claimed = self._packing.last_claimed_by
        order = self._packing.in_order("", lambda: claimed)
        begin, end = (np.searchsorted(claimed[order], needs, side) for side in ("left", "right"))
        sizes = np.where(np.isin(needs, [*state.reserved]), 0, end - begin)
        start = np.append(0, sizes.cumsum())
        within = np.arange(start[-1]) - np.repeat(start[:-1], sizes)
        self._gangs = Gangs(
            need=needs.astype(np.int64),
            key=np.array([distinct.index(key) for key in self._keys], np.int64),
            codes=np.stack([label.codes for label in labels]),
            by_domain=np.stack([self._by_domain(key) for key in distinct]),
            start=start,
            machine=order[np.repeat(begin, sizes) + within].astype(np.int64),
        )
        self._values = [label.values for label in labels]
        self._next = 0
        #: all classes of the gangs, and where those of each gang begin
        numbers = np.diff(state.classes.start)[needs]
        self._offset = np.append(0, numbers.cumsum())
        self._classes = np.arange(self._offset[-1]) + np.repeat(
            state.classes.start[needs] - self._offset[:-1], numbers
        )

    def _by_domain(self, key: str) -> Longs:
        """The cluster's machines by their domain."""
        codes = self._state.columns.label(key).codes
        return self._packing.in_order(key, lambda: codes[self._packing.flavour])

    def advance(self) -> int:
        """Place gangs up to one that has to choose its domain; returns that one, or NONE."""
        state, gangs, first = self._state, self._gangs, self._next
        packing, classes = self._packing, state.classes
        domains = np.full(len(gangs.need), NONE, np.int64)

        def kernel(log: PlacementLog, length: int) -> int:
            self._next, length = settle(
                gangs,
                first,
                packing.machines(),
                classes.columns,
                state.left,
                classes.start,
                int(state.priorities[gangs.need[0]]),
                domains,
                log,
                length,
            )
            return length

        packing.write(self._classes[self._offset[first] :], kernel)
        placed = np.flatnonzero(domains[: self._next] != NONE)
        for place, code in zip(placed.tolist(), domains[placed].tolist(), strict=True):
            name = self._values[int(gangs.key[place])][code]
            state.gang_domains[int(gangs.need[place])] = name
        if self._next == len(gangs.need):
            return NONE
        self._next += 1
        return int(gangs.need[self._next - 1])
