"""Phase 1: every need counts what its cluster has, then acquires the rest.

Needs are served by priority. Of one priority, first each cluster's pods are packed onto what those
of higher priority have left of its machines, whichever need they belong to, because that is what
kube-scheduler will do: gangs first, then needs whose pods depend on each other, then all others,
the most constrained first and the largest first. Then the needs whose pods found no place acquire
machines, in the order of their arrival; what such a machine has left goes to the others.
"""

from __future__ import annotations

import itertools

import numpy as np

from bigfleet.engine.acquire import Market, acquire
from bigfleet.engine.constrained import acquire_constrained, count_constrained
from bigfleet.engine.gangs import begin_gang, count_at_home, first_fit, serve_gang
from bigfleet.engine.normalise import is_folded
from bigfleet.engine.pods import Kind
from bigfleet.engine.snapshot import NONE, Longs, Rows
from bigfleet.engine.state import State
from bigfleet.model.machine import MachineState


class Assignment:
    """Serves needs, one after the other."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.market = Market(state)
        self._order = _packing_order(state)

    def run(self) -> None:
        """Serve all needs."""
        state = self._state
        self._count_additional()
        changes = np.flatnonzero(np.diff(state.priorities)) + 1
        borders = [0, *changes.tolist(), len(state.priorities)]
        for start, stop in itertools.pairwise(borders if len(state.priorities) else []):
            needs = np.arange(start, stop)
            incomplete = self._count(needs)
            for index in needs[state.lacking(start, stop)].tolist():
                if index not in incomplete:
                    self.serve(index)
            for index in sorted(incomplete):
                self.serve(index)

    def serve(self, index: int) -> None:
        """Find places for what the need lacks, and acquire machines for the rest."""
        state = self._state
        if not state.lacks(index):
            return
        kind = state.classes.kind[index]
        if kind != Kind.PLAIN or is_folded(state.demand.needs[index]):
            self._use_reserve(index)
        if kind == Kind.GANG:
            serve_gang(state, self.market, index)
        else:
            self.count_again(index)
            self._acquire(index)
        if state.lacks(index) and self._use_reserve(index):
            self.count_again(index)

    def _acquire(self, index: int) -> None:
        state = self._state
        if not state.lacks(index) or index in state.expired or self._awaits_others(index):
            return
        if state.classes.kind[index] == Kind.CONSTRAINED:
            acquire_constrained(state, self.market, index)
        else:
            acquire(state, self.market, index, self._order_of(index))

    def count_again(self, index: int) -> None:
        """Find places for pods of the need that lost theirs, on machines of its cluster."""
        state = self._state
        kind = state.classes.kind[index]
        if kind == Kind.GANG:
            count_at_home(state, index)
        elif kind == Kind.CONSTRAINED:
            count_constrained(state, index)
        elif kind == Kind.PLAIN:
            its = state.classes.of(index)
            order = np.arange(its.start, its.stop, dtype=np.int64)
            state.book_of(index).count_more(order, int(state.priorities[index]))

    def levels(self, cluster: int) -> list[tuple[int, list[int], Longs | None]]:
        """The cluster's needs in the order in which they are counted: for each priority the needs
        whose pods depend on each other, and the classes of all plain ones.
        """
        state = self._state
        constrained: dict[int, list[int]] = {}
        kinds = state.classes.kind
        its = (state.demand.cluster == cluster) & (kinds == Kind.CONSTRAINED)
        for index in np.flatnonzero(its).tolist():
            constrained.setdefault(int(state.priorities[index]), []).append(index)
        plain = {priority for its, priority in self._order if its == cluster}
        return [
            (priority, constrained.get(priority, []), self._order.get((cluster, priority)))
            for priority in sorted({*constrained, *plain}, reverse=True)
        ]

    def _count(self, needs: Rows) -> set[int]:
        """Pack the pods of all needs of one priority onto their clusters' machines; the gangs that
        no domain can hold as a whole, which come after everybody else.
        """
        state, kinds = self._state, self._state.classes.kind[needs]
        incomplete = {
            index
            for index in needs[kinds == Kind.GANG].tolist()
            if state.lacks(index) and not begin_gang(state, self.market, index)
        }
        for index in needs[kinds == Kind.CONSTRAINED].tolist():
            count_constrained(state, index)
        priority = int(state.priorities[needs[0]])
        for cluster in np.unique(state.demand.cluster[needs[kinds == Kind.PLAIN]]).tolist():
            if (cluster, priority) in self._order:  # else no machine could hold any of its pods
                state.books[cluster].count(self._order[cluster, priority], priority)
        return incomplete

    def _count_additional(self) -> None:
        """Additional needs count the machines that were fetched for them, and no others: whatever
        else is there may be full of pods, which no count of machines can tell.
        """
        state = self._state
        for index in np.flatnonzero(state.classes.kind == Kind.ADDITIONAL).tolist():
            book, accepted = state.book_of(index), state.candidacy(index).accepted
            fetched = state.fleet.wanted_by[book.rows] == index
            first_fit(state, index, np.flatnonzero(fetched & accepted[book.flavour]).tolist())

    def _use_reserve(self, index: int) -> bool:
        """Count on what was kept ahead of gangs: it is there for them, for needs that look at the
        domains of all machines, and for others when there is nothing to acquire. Whether that adds
        any machine.
        """
        state = self._state
        cluster, candidacy = state.cluster_of(index), state.candidacy(index)
        rows = state.reserve[cluster]
        useful = candidacy.accepted[state.fleet.flavour[rows]]
        helps = bool(useful.any()) and state.classes.kind[index] != Kind.ADDITIONAL
        if helps:
            state.reserve[cluster] = rows[~useful]
            found, fleet = rows[useful], state.fleet
            state.books[cluster].add(found, fleet.flavour[found], fleet.wanted_by[found])
            if candidacy.is_constrained:  # their domains have been there all the time
                state.books[cluster].clear_need(state.classes.of(index))
        return helps

    def _awaits_others(self, index: int) -> bool:
        """Whether pods that want a machine beyond those there may yet find room on one that their
        cluster is about to get, or has just got: kube-scheduler must have had time to use it, and
        the news of that time to arrive.
        """
        state = self._state
        if state.classes.kind[index] != Kind.ADDITIONAL:
            return False
        came_seconds = state.memory_of(state.cluster_of(index)).coming_seconds
        grace_seconds = state.settings.arrival_grace_seconds
        if came_seconds is not None and state.now_seconds - came_seconds < grace_seconds:
            return True
        fleet, book = state.fleet, state.book_of(index)
        coming = (fleet.state[book.rows] != MachineState.CONFIGURED) & (book.rows != NONE)
        coming &= fleet.wanted_by[book.rows] != index
        coming &= state.candidacy(index).accepted[book.flavour]
        its = state.classes.of(index)
        waiting = state.classes.sizes[its][state.left[its] > 0]
        return any((book.capacity[coming] >= size).all(axis=1).any() for size in waiting)

    def _order_of(self, index: int) -> Longs:
        """All classes that are packed together with those of a plain need."""
        key = self._state.cluster_of(index), int(self._state.priorities[index])
        return self._order.get(key, np.empty(0, np.int64))


def _packing_order(state: State) -> dict[tuple[int, int], Longs]:
    """The classes of plain needs by cluster and priority, those first that fewest flavours accept,
    then the largest.
    """
    classes = state.classes
    plain = classes.kind[classes.need] == Kind.PLAIN
    its = np.flatnonzero(plain & ~classes.impossible)
    choice = classes.accepted[:, state.present].sum(axis=1)[classes.candidacy[its]]
    need = classes.need[its]
    cluster, priority = state.demand.cluster[need], state.priorities[need]
    order = np.lexsort((its, -classes.share[its], choice, -priority, cluster))
    its, keys = its[order], np.stack((cluster[order], priority[order]), axis=1)
    if not len(its):
        return {}
    borders = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    starts = [0, *borders.tolist()]
    return {
        (int(keys[start, 0]), int(keys[start, 1])): part.astype(np.int64)
        for start, part in zip(starts, np.split(its, borders), strict=True)
    }
