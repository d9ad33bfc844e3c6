"""Whether a cluster's pods have places without some of its machines, and which those might be."""

from __future__ import annotations

import copy

import numpy as np

from bigfleet.engine.assign import Assignment
from bigfleet.engine.book import Book
from bigfleet.engine.constrained import count_constrained, label_keys
from bigfleet.engine.gangs import first_fit, same_key
from bigfleet.engine.snapshot import NONE, Flags, Longs, Rows
from bigfleet.engine.state import State
from bigfleet.model.machine import MachineState

_MOST_ASKED = 16


class Recount:
    """The cluster's pods packed anew, onto its machines but for those `gone`."""

    def __init__(self, state: State, assignment: Assignment, cluster: int, gone: Flags) -> None:
        self._state, self._cluster = state, cluster
        self._levels = assignment.levels(cluster)
        self._before, self._gone = state.books[cluster], gone
        self._left = np.zeros_like(state.left)
        stay = ~gone & (self._before.rows != NONE)
        self._place = np.cumsum(stay) - 1
        self._book = self._before.emptied(stay, self._left)
        self._trial = copy.copy(state)
        self._trial.books, self._trial.left = {cluster: self._book}, self._left

    def succeeds(self) -> bool:
        """Whether everything finds a place."""
        if not self._keep_domains() or not self._keep_placed():
            return False
        self._ask_for_more()
        for priority, constrained, order in self._levels:
            for index in constrained:
                its = self._state.classes.of(index)
                self._left[its] = self._placed[its]
                count_constrained(self._trial, index)
            if order is not None:
                self._left[order] = self._wanted[order]
                self._book.count(order, priority)
            if self._left.any():
                return False
        return True

    def _keep_domains(self) -> bool:
        """Whether pods that spread stay in as many zones as before. Without its last machine a zone
        is no domain any more, so that one of them could hold them all.
        """
        state, before = self._state, self._before
        stay = ~self._gone & (before.rows != NONE)
        for index in [index for _, constrained, _ in self._levels for index in constrained]:
            machines = {machine for machine, _, _ in before.entries_of(state.classes.of(index))}
            its = np.array(sorted(machines), np.intp)
            for key in label_keys(state.candidacy(index)):
                codes = state.columns.label(key).codes[before.flavour]
                if not np.isin(codes[its], codes[stay]).all():
                    return False
        return True

    def _keep_placed(self) -> bool:
        """Gangs and additional pods stay where they are; those that lose their machine must fit
        into the same domain.
        """
        state, needs = self._state, self._state.demand.needs
        self._placed: Longs = np.zeros_like(state.left)
        machines, klasses, numbers = self._before.entries()
        np.add.at(self._placed, klasses, numbers)
        lost = []
        entries = zip(machines.tolist(), klasses.tolist(), numbers.tolist(), strict=True)
        for machine, klass, pods in entries:
            index = int(state.classes.need[klass])
            gang = needs[index].profile.same_key is not None
            if (gang or needs[index].is_additional) and self._gone[machine]:
                lost.append((index, klass, pods))
            elif gang or needs[index].is_additional:
                self._book.put(int(self._place[machine]), klass, pods)
        return all(self._finds_place(*each) for each in sorted(lost))

    def _finds_place(self, index: int, klass: int, pods: int) -> bool:
        state, book = self._state, self._book
        if state.demand.needs[index].is_additional or index not in state.homes:
            return False
        label = state.columns.label(same_key(state, index))
        inside = label.codes[book.flavour] == label.values.index(state.homes[index])
        inside &= state.candidacy(index).accepted[book.flavour]
        self._left[klass] = pods
        first_fit(self._trial, index, np.flatnonzero(inside).tolist())
        return not self._left[klass]

    def _ask_for_more(self) -> None:
        """Of plain pods so many more as the reserve says, spread over all sizes."""
        self._wanted = self._placed.copy()
        orders = [order for _, _, order in self._levels if order is not None]
        if orders:
            order = np.concatenate(orders)
            before = self._placed[order].cumsum()
            reserve = np.floor(before * self._state.settings.reclaim_reserve + 1e-9)
            self._wanted[order] += np.diff(reserve, prepend=0.0).astype(np.int64)


def is_conceivable(book: Book, gone: Flags) -> bool:
    """Whether the other machines have as much free as is used on those that go."""
    stay = ~gone & (book.rows != NONE)
    used = (book.capacity[gone] - book.free[gone]).sum(axis=0)
    return bool((book.free[stay].sum(axis=0) >= used).all())


def to_ask_about(state: State) -> dict[int, Rows]:
    """Clusters that might have machines to spare, and the first of them to ask about: those that
    are used least by what is counted on them.
    """
    asked = {}
    for cluster in sorted(state.demand.reported - state.demand.unreachable):
        book = state.books.get(cluster)
        if book is None:
            continue
        rows = np.where(book.rows == NONE, 0, book.rows)
        at = np.flatnonzero(
            (book.rows != NONE)
            & (state.fleet.state[rows] == MachineState.CONFIGURED)
            & ~state.unavailable[rows]
        )
        capacity = np.maximum(book.capacity[at], 1)
        used = ((book.capacity[at] - book.free[at]) / capacity).max(axis=1, initial=0.0)
        least = at[np.argsort(used, kind="stable")]
        alone = np.zeros(len(book), np.bool_)
        alone[least[:1]] = True
        if len(least) and is_conceivable(book, alone):
            asked[cluster] = book.rows[least[:_MOST_ASKED]]
    return asked
