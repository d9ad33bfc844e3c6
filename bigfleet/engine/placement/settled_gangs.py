"""Gangs placed on their cluster's machines, many at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bigfleet.engine.kernels.gang_request import GangPool
from bigfleet.engine.kernels.gangs import Gangs, settle
from bigfleet.engine.kernels.scoring import PlacementLog
from bigfleet.engine.placement.free_pools import FreePools
from bigfleet.engine.placement.gang_pools import (
    DomainChoice,
    by_domain,
    empty_pool,
    free_gang_pool,
)
from bigfleet.engine.placement.gangs import begin_gang, place_gang
from bigfleet.engine.snapshot import NONE, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState


def place_gangs(state: CycleState, free_pools: FreePools, gangs: Rows) -> set[int]:
    """Place all `gangs` of one priority on their cluster's machines in the domain that can hold
    them; returns those that no domain can hold.

    Machines that a domain lacks are acquired when it is the gang's turn. Until then clusters affect
    each other only through a gang that has a reservation and no more use for it: whatever comes
    before such a gang is placed first, and in between only gangs of one cluster are in order.
    """
    if not len(gangs):
        return set()
    cluster_of = state.demand.cluster[gangs]
    nothing = empty_pool(state)
    queues = {
        cluster: _Queue(state, free_pools, nothing, cluster, gangs[cluster_of == cluster])
        for cluster in np.unique(cluster_of).tolist()
    }
    incomplete: set[int] = set()
    reserved = np.flatnonzero(np.isin(gangs, [*state.reserved])).tolist()
    for begin, end in itertools.pairwise([-1, *reserved, len(gangs)]):
        for cluster in np.unique(cluster_of[begin + 1 : end]).tolist():
            last = int(gangs[end - 1])
            incomplete.update(queues[cluster].advance(last))
        if end < len(gangs):
            index = int(gangs[end])
            queues[state.cluster_of(index)].skip()
            if state.lacks(index) and not begin_gang(state, free_pools, index):
                incomplete.add(index)
    return incomplete


class _Queue:
    """The gangs of one cluster and priority, in order."""

    def __init__(
        self,
        state: CycleState,
        free_pools: FreePools,
        nothing: GangPool,
        cluster: int,
        needs: Rows,
    ) -> None:
        self._state, self._free_pools, self._nothing = state, free_pools, nothing
        self._packing = state.packings[cluster]
        profiles = [state.flavour_fit(index).profile.same_key for index in needs.tolist()]
        keys = [str(key) for key in profiles]
        distinct = sorted(set(keys))
        labels = [state.columns.label(key) for key in distinct]
        orders = [
            by_domain(self._packing, key, label.codes)
            for key, label in zip(distinct, labels, strict=True)
        ]
        self._gangs = Gangs(
            need=needs.astype(np.int64),
            key=np.array([distinct.index(key) for key in keys], np.int64),
            codes=np.stack([label.codes for label in labels]),
            by_domain=np.stack([order for order, _ in orders]),
            end=np.stack([end for _, end in orders]),
        )
        self._values = [label.values for label in labels]
        self._next = 0
        #: gangs that get their machines from one pool have the same fit
        fits = [
            (key, state.flavour_fit(index).number, index in state.not_acquiring)
            for key, index in zip(keys, needs.tolist(), strict=True)
        ]
        changes = [place for place in range(1, len(fits)) if fits[place] != fits[place - 1]]
        self._ends = [*changes, len(needs)]
        #: all classes of the gangs, and where those of each gang begin
        numbers = np.diff(state.classes.start)[needs]
        self._offset = np.append(0, numbers.cumsum())
        self._classes = np.arange(self._offset[-1]) + np.repeat(
            state.classes.start[needs] - self._offset[:-1], numbers
        )

    def skip(self) -> None:
        """Leave out the next gang."""
        self._next += 1

    def advance(self, last: int) -> Iterator[int]:
        """Place the gangs up to the need `last`; yields those that no domain can hold, which stay
        on their machines in service.
        """
        state, needs = self._state, self._gangs.need
        stop = int(np.searchsorted(needs, last, "right"))
        while self._next < stop:
            while self._ends[0] <= self._next:
                self._ends.pop(0)
            begin, domains = self._next, self._settle(min(stop, self._ends[0]))
            for place in range(begin, self._next):
                if domains[place] != NONE:
                    key = int(self._gangs.key[place])
                    state.gang_domains[int(needs[place])] = self._values[key][domains[place]]
            if self._next < min(stop, self._ends[0]):
                index = int(needs[self._next])
                choice = DomainChoice(int(domains[self._next]), False)
                place_gang(state, index, choice, in_service_only=True)
                self._next += 1
                yield index

    def _settle(self, stop: int) -> Longs:
        """Place gangs up to place `stop`, or to one that no domain can hold; returns the codes of
        their domains.
        """
        domains = np.full(len(self._gangs.need), NONE, np.int64)
        self._settle_with(self._nothing, stop, domains)
        # At rest it does not matter to a gang what it might acquire.
        if self._next < stop:
            index = int(self._gangs.need[self._next])
            self._settle_with(free_gang_pool(self._state, self._free_pools, index), stop, domains)
        return domains

    def _settle_with(self, pool: GangPool, stop: int, domains: Longs) -> None:
        state, gangs, first = self._state, self._gangs, self._next
        packing, classes = self._packing, state.classes
        index = int(gangs.need[first])
        availability = state.availability(index)

        def kernel(log: PlacementLog, length: int) -> int:
            self._next, length = settle(
                gangs,
                first,
                stop,
                pool,
                packing.machines(),
                classes.columns,
                availability,
                state.left,
                classes.start,
                int(state.priorities[index]),
                domains,
                log,
                length,
            )
            return length

        packing.write(self._classes[self._offset[first] : self._offset[stop]], kernel)
