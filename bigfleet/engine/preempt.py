"""Phase 2: who still lacks something takes what others can spare, then what others use less well.

It sees all that phase 1 has counted, in the order of needs. A plain need takes as much as there is;
a gang takes nothing unless it then is whole. Pods that lose their machine count on others of their
cluster, or are served again when it is their need's turn.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.acquire import choose_from, in_tiers, order
from bigfleet.engine.assign import Assignment
from bigfleet.engine.candidates import Candidates, PreemptionCandidates, in_ranks
from bigfleet.engine.constrained import label_keys, take_constrained
from bigfleet.engine.domains import PREEMPTABLE, SPARE, Home, choose_domain
from bigfleet.engine.gangs import (
    acquire_inside,
    pods_of,
    prospects,
    reserved_domain,
    same_key,
    serve_gang,
    settle,
    take_inside,
    withdraw,
)
from bigfleet.engine.pods import Kind
from bigfleet.engine.snapshot import NONE, Flags, Rows
from bigfleet.engine.state import State, Taken
from bigfleet.model.machine import MachineState

_FREE_STATES = (int(MachineState.IDLE), int(MachineState.SPECULATIVE))


def preempt(state: State, assignment: Assignment, reclaimable: Flags) -> None:
    """Take machines for all needs that lack something, in their order.

    `reclaimable` are the CONFIGURED machines that are to go in any case.
    """
    if state.left.any():
        _Preemption(state, assignment, reclaimable).run()


class _Preemption:
    """`_dirty` holds the clusters whose needs have to look again, because pods lost their places or
    machines came or went; `_stirred`: machines became free after a need had its turn, so that
    all later ones look again.
    """

    def __init__(self, state: State, assignment: Assignment, reclaimable: Flags) -> None:
        self._state, self._assignment = state, assignment
        self._candidates = PreemptionCandidates(state, reclaimable)
        given_back = np.unique(state.fleet.cluster[reclaimable]).tolist()
        self._dirty = {*state.acquiring_clusters(), *given_back}
        self._stirred = self._stop_keeping()

    def run(self) -> None:
        """Losers are of lower priority, so their turn is still to come.

        Additional pods have machines enough already, as far as counting tells: nobody is evicted
        for them.
        """
        state = self._state
        for index in range(len(state.demand.needs)):
            additional = state.classes.kind[index] == Kind.ADDITIONAL
            if state.lacks(index) and index not in state.expired and not additional:
                machines = len(state.book_of(index))
                self._help(index)
                if len(state.book_of(index)) > machines:  # whose rest is for others
                    self._dirty.add(state.cluster_of(index))

    def _stop_keeping(self) -> bool:
        """From now on idle machines are kept for nobody; whether that sets any free."""
        state = self._state
        kept = (state.kept_for != NONE) & np.isin(state.fleet.state, _FREE_STATES)
        set_free = bool((kept & ~state.unavailable).any())
        state.kept_for[kept] = NONE
        return set_free

    def _help(self, index: int) -> None:
        state = self._state
        if self._stirred or state.cluster_of(index) in self._dirty:
            self._assignment.serve(index)
            self._candidates.refresh()
        if not state.lacks(index):
            return
        candidates = self._candidates.of(index)
        candidacy = state.candidacy(index)
        if candidacy.profile.same_key is not None:
            self._complete(index, candidates)
        elif len(candidates.rows) and candidacy.is_constrained:
            keys = label_keys(candidacy)
            offers = list(in_ranks(state, index, candidates, keys))
            rows = take_constrained(state, index, offers, note=False)
            self._note(index, candidates, np.array(rows, np.intp))
        elif len(candidates.rows):
            basket = choose_from(
                state, index, np.empty(0, np.int64), in_ranks(state, index, candidates)
            )
            order(state, index, basket)
            self._note(index, candidates, basket.rows.astype(np.intp))

    def _complete(self, index: int, candidates: Candidates) -> None:
        """Make a gang whole in any domain where that is possible."""
        state, market = self._state, self._assignment.market
        had = state.acquired.get(index, [])
        counted = self._counted(index)
        withdraw(state, index)
        if had:  # pods of others that shared these machines have lost their places
            self._dirty.add(state.cluster_of(index))
        keys = (same_key(state, index),)
        gentle, others = candidates.only(candidates.gentle), candidates.only(~candidates.gentle)
        further = [(each, SPARE) for each in in_ranks(state, index, gentle, keys)]
        further += [(each, PREEMPTABLE) for each in in_ranks(state, index, others, keys)]
        found = prospects(state, market, index, further)
        home = choose_domain(found, *pods_of(state, index), reserved_domain(state, index))
        if not home.whole or not self._fill(index, home, candidates):
            # What it kept for becoming whole is for others from now on.
            self._stirred |= state.reserved.pop(index, None) is not None
            serve_gang(state, market, index)
        self._stirred |= not set(had) <= set(state.acquired.get(index, []))
        if self._counted(index) != counted:
            self._candidates.refresh()

    def _fill(self, index: int, home: Home, candidates: Candidates) -> bool:
        """Acquire and take in its domain what makes the gang whole; whether its ceiling lets it."""
        state, market = self._state, self._assignment.market
        keys = (same_key(state, index),)
        settle(state, index, home)
        state.at_ceiling.discard(index)
        acquire_inside(state, index, [*in_tiers(market.offers(index, keys))])
        if state.lacks(index):
            offers = list(in_ranks(state, index, candidates, keys))
            rows = take_inside(state, index, offers)
            if state.lacks(index) and index in state.at_ceiling:
                state.give_back(index, rows.tolist())
                state.expired.add(index)
                return False
            self._note(index, candidates, rows)
        return True

    def _counted(self, index: int) -> list[tuple[int, int, int]]:
        state = self._state
        return sorted(state.book_of(index).entries_of(state.classes.of(index)))

    def _note(self, index: int, candidates: Candidates, rows: Rows) -> None:
        """The need has taken `rows` of the candidates: their pods lose their places."""
        if not len(rows):
            return
        state = self._state
        place = {row: at for at, row in enumerate(candidates.rows.tolist())}
        at = np.array([place[row] for row in rows.tolist()], np.intp)
        state.taken[index] = Taken(rows, candidates.gentle[at], candidates.gap[at])
        homes = state.homes_of_rows[rows]
        for cluster in np.unique(homes[homes != NONE]).tolist():
            book, lost = state.books[cluster], rows[homes == cluster]
            for machine in np.flatnonzero(np.isin(book.rows, lost)).tolist():
                if book.orderer[machine] != index:
                    book.clear_machine(machine)
                    book.remove_machine(machine)
            reserve = state.reserve[cluster]
            state.reserve[cluster] = reserve[~np.isin(reserve, lost)]
            self._dirty.add(cluster)
        self._candidates.refresh()
