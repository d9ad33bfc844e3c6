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

from bigfleet.engine.acquire import Market, choose_from, in_tiers
from bigfleet.engine.normalise import is_folded
from bigfleet.engine.snapshot import NONE, Flags, Rows
from bigfleet.engine.state import State
from bigfleet.model.machine import MachineState


class Headroom:
    """The machines ahead, of one decision."""

    def __init__(self, state: State, market: Market) -> None:
        self._state, self._market = state, market
        self._gangs = _largest_first(state)
        self._ahead: dict[int, list[int]] = {}

    @property
    def rows(self) -> frozenset[int]:
        """All machines that are kept or acquired to be ahead."""
        return frozenset(row for rows in self._ahead.values() for row in rows)

    def retain(self) -> None:
        """Set apart machines that hold no pods: those first that were ahead before."""
        self._ahead = {}
        for index in self._gangs:
            if not self._has_room(index):
                chosen = self._unused(index)[:1]
                self._note(index, chosen)
                self._set_apart(index, chosen)

    def acquire(self) -> None:
        """Choose again, after others may have used what was chosen, and acquire what is missing.

        A need that lacks machines, or passes, gets none ahead either.
        """
        self.retain()
        state = self._state
        for index in self._gangs:
            passes = state.lacks(index) or index in state.expired
            if not passes and not self._has_room(index):
                self._note(index, self._acquired(index))

    def _acquired(self, index: int) -> Rows:
        """A machine for one more of the need's largest gangs, which nobody counts on yet."""
        state, largest = self._state, _largest(self._state, index)
        state.left[largest] += 1
        offers = in_tiers(self._market.offers(index))
        basket = choose_from(
            state, index, np.empty(0, np.int64), offers, pods_at_most=1, machines_at_most=1
        )
        state.left[largest] -= 1
        rows = basket.rows.astype(np.intp)
        state.unavailable[rows] = True
        state.ordered_by[rows] = index
        state.allowances.order(state.cluster_of(index), rows)
        state.acquired.setdefault(index, []).extend(rows.tolist())
        return rows

    def _unused(self, index: int) -> Rows:
        """Machines of the need's cluster without pods that can hold its largest gang."""
        state, cluster = self._state, self._state.cluster_of(index)
        book, reserve = state.books[cluster], state.reserve[cluster]
        empty = book.rows[~book.opened & (book.rows != NONE)]
        empty = empty[~state.unavailable[empty]]
        # Whoever lacks machines was offered those that are ahead, and has not used these.
        ahead = state.fleet.headroom[empty]
        in_service = state.fleet.state[empty] == MachineState.CONFIGURED
        rows = np.concatenate((reserve, empty[ahead], empty[in_service & ~ahead]))
        return rows[self._holds(index, rows)]

    def _set_apart(self, index: int, rows: Rows) -> None:
        cluster = self._state.cluster_of(index)
        book, reserve = self._state.books[cluster], self._state.reserve[cluster]
        for machine in np.flatnonzero(np.isin(book.rows, rows)).tolist():
            book.remove_machine(machine)
        new = rows[~np.isin(rows, reserve)]
        self._state.reserve[cluster] = np.concatenate((reserve, new))

    def _has_room(self, index: int) -> bool:
        ahead = self._ahead.get(self._state.cluster_of(index), [])
        return bool(self._holds(index, np.array(ahead, np.intp)).any())

    def _holds(self, index: int, rows: Rows) -> Flags:
        """Which machines the need's largest gang could have to itself."""
        state = self._state
        flavour = state.fleet.flavour[rows]
        size = state.classes.sizes[_largest(state, index)]
        room = state.capacities.of(state.cluster_of(index))[flavour]
        held: Flags = state.candidacy(index).accepted[flavour] & (room >= size).all(axis=1)
        return held

    def _note(self, index: int, rows: Rows) -> None:
        self._ahead.setdefault(self._state.cluster_of(index), []).extend(rows.tolist())


def _largest(state: State, index: int) -> int:
    """The class of the need's largest gangs that some machine could hold."""
    its = state.classes.of(index)
    first = int(np.argmin(state.classes.impossible[its]))
    return int(its.start) + first


def _largest_first(state: State) -> list[int]:
    """The folded gangs of all clusters: what has room for a large one has it for a small one."""
    shares = {
        index: float(state.classes.share[_largest(state, index)])
        for index, need in enumerate(state.demand.needs)
        if is_folded(need) and not state.classes.impossible[state.classes.of(index)].all()
    }
    return sorted(shares, key=lambda index: (-shares[index], index))
