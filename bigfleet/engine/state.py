"""Everything that one decision works on: what came in, worked out, and what is decided so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.allowances import Allowances
from bigfleet.engine.book import ALWAYS, Book
from bigfleet.engine.capacity import Capacities
from bigfleet.engine.carry import Carry, ClusterMemory, Reservation
from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.matching import Matcher
from bigfleet.engine.pods import Candidacy, Kind, PodClasses
from bigfleet.engine.purchase import Stock
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Floats, Ints, Longs, Rows, Settings
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey

_KEEPABLE = (MachineState.IDLE, MachineState.SPECULATIVE)
_COMING = (MachineState.CREATING, MachineState.DRAINING)


class Taken(NamedTuple):
    """Machines that a need takes from others: of the `gentle` ones nobody is evicted for it, since
    no need counts them or they drain already; the others serve needs whose priority is `gap` lower.
    """

    rows: Rows
    gentle: Flags
    gap: Longs


class State:
    """`left` [C] is how many pods of each class have no place, impossible ones not counted.

    `books` has the machines of each cluster, by its number, but for those in `reserve`, which were
    kept ahead of gangs. `homes_of_rows` [n] is the cluster that a machine is supply for, NONE where
    there is none. `unavailable` [n] marks machines that were acquired or taken in this decision,
    or are held back, `ordered_by` [n] for whom. `kept_for` [n] is the need that a machine is
    drained or kept for, else NONE, and `promised_to` [n] what that was at first. By need:
    `acquired` and `taken` are the machines that it ordered, `homes` the domains of gangs,
    `reserved` the reservations in force. Needs in `expired` acquire and take nothing, so that
    others can have what was kept for them. From those in `at_ceiling` their cluster's ceiling has
    withheld something.
    """

    def __init__(
        self, fleet: Fleet, demand: Demand, carry: Carry, settings: Settings, now_seconds: float
    ) -> None:
        self.fleet, self.demand, self.settings = fleet, demand, settings
        self.now_seconds = now_seconds
        self.columns = FlavourColumns(fleet.flavours)
        self.matcher = Matcher(fleet.flavours, self.columns)
        self.capacities = Capacities(self.columns, self.matcher, demand)
        self.present: Rows = np.unique(fleet.flavour).astype(np.intp)
        self.classes = PodClasses(demand, self.columns, self.matcher, self.capacities, self.present)
        self.left: Longs = np.where(self.classes.impossible, 0, self.classes.count)
        self.priorities: Longs = np.array([n.priority for n in demand.needs], np.int64)
        self.reserved: dict[int, Reservation] = {}
        passing = np.isin(demand.cluster, sorted(demand.suspended))
        self.expired: set[int] = set(np.flatnonzero(passing).tolist())
        self._memory = {memory.cluster: memory for memory in carry.clusters}
        self._take_up(carry)
        self.kept_for = self._kept_for()
        self.promised_to = self.kept_for.copy()
        free = np.isin(fleet.state, [int(state) for state in _KEEPABLE])
        self._idle_promises = np.flatnonzero(free & (self.kept_for != NONE))
        held_back = fleet.held_back
        self.unavailable: Flags = (
            np.zeros(len(fleet), np.bool_) if held_back is None else held_back.copy()
        )
        self.ordered_by: Ints = np.full(len(fleet), NONE, np.int32)
        self.acquired: dict[int, list[int]] = {}
        self.taken: dict[int, Taken] = {}
        self.homes: dict[int, str] = {}
        self.homes_of_rows = self._homes_of_rows()
        self.allowances = Allowances(fleet, demand, self.homes_of_rows)
        self.at_ceiling: set[int] = set()
        self.reserve: dict[int, Rows] = {}
        self.books: dict[int, Book] = self._open_books()

    def key(self, index: int) -> NeedKey:
        """The identity of need `index`."""
        return key_of(self.fleet, self.demand, index)

    def candidacy(self, index: int) -> Candidacy:
        """What need `index` makes of the flavours."""
        return self.classes.of_need[index]

    def lacks(self, index: int) -> bool:
        """Whether pods of the need have no place that some machine could hold."""
        return bool(self.left[self.classes.of(index)].any())

    def lacking(self, start: int, stop: int) -> Flags:
        """For the needs from `start` to `stop`, whether they lack places."""
        bounds = self.classes.start
        missing = self.left[bounds[start] : bounds[stop]] > 0
        flags = np.zeros(stop - start, np.bool_)
        flags[self.classes.need[bounds[start] : bounds[stop]][missing] - start] = True
        return flags

    def cluster_of(self, index: int) -> int:
        """The cluster of need `index`."""
        return int(self.demand.cluster[index])

    def book_of(self, index: int) -> Book:
        """The machines of the need's cluster."""
        return self.books[self.cluster_of(index)]

    def may_have(self, index: int, rows: Rows) -> Flags:
        """Which of `rows` are not kept for another need of at least the same priority."""
        keeper = self.kept_for[rows]
        lower = self.priorities[keeper] < self.priorities[index]
        allowed: Flags = (keeper == NONE) | (keeper == index) | lower
        return allowed

    def forgo(self, index: int) -> None:
        """What idly waits for a need that has places without it is for others. It may have found
        them on what is on its way to one of these, which would acquire as much again.
        """
        if index in self.reserved and not self.lacks(index):
            rows = self._idle_promises
            rows = rows[(self.kept_for[rows] == index) & ~self.unavailable[rows]]
            self.kept_for[rows] = NONE

    def stock(self, index: int) -> Stock:
        """What kernels read of the fleet's machines when need `index` chooses some."""
        cluster = self.cluster_of(index)
        return Stock(
            self.fleet.flavour,
            self.unavailable,
            self.kept_for,
            self.priorities,
            self.homes_of_rows,
            cluster,
            self.allowances.prices,
            self.allowances.left(cluster),
        )

    def give_back(self, index: int, rows: Sequence[int]) -> None:
        """Do not order machines after all that a need has ordered; other pods lose their places."""
        if not len(rows):
            return
        book, at = self.book_of(index), np.array(rows, np.intp)
        for machine in np.flatnonzero(np.isin(book.rows, at) & (book.orderer == index)).tolist():
            book.clear_machine(machine)
            book.remove_machine(machine)
        self.unavailable[at] = False
        self.ordered_by[at] = NONE
        self.allowances.give_back(self.cluster_of(index), at)

    def demand_of_clusters(self) -> Floats:
        """By cluster, what its pods ask for that some machine could hold: how many times the
        largest machine, by their scarcest resource.
        """
        classes = self.classes
        shares = np.where(classes.impossible, 0.0, classes.count * classes.share)
        cluster = self.demand.cluster[classes.need]
        total: Floats = np.bincount(cluster, shares, len(self.fleet.clusters)).astype(np.float64)
        return total

    def coming_clusters(self) -> set[int]:
        """The clusters to which machines are on their way, but for those of additional needs."""
        additional = np.append(self.classes.kind == Kind.ADDITIONAL, np.False_)  # the last is NONE
        coming = (self.homes_of_rows != NONE) & (self.fleet.state != MachineState.CONFIGURED)
        coming &= ~additional[self.fleet.wanted_by]
        ordered = (i for i, rows in self.acquired.items() if len(rows) and not additional[i])
        return {*self.homes_of_rows[coming].tolist(), *(self.cluster_of(i) for i in ordered)}

    def memory_of(self, cluster: int) -> ClusterMemory:
        """What the last decision handed on about a cluster."""
        name = self.fleet.clusters[cluster]
        return self._memory.get(name, ClusterMemory(name, factor_seconds=self.now_seconds))

    def acquiring_clusters(self) -> set[int]:
        """The clusters that acquire machines in this decision."""
        return {self.cluster_of(index) for index, rows in self.acquired.items() if len(rows)}

    def claims(self) -> Ints:
        """For each machine the need that counts it: the one that ordered it in this decision, or
        else the first one with pods on it; NONE where there is none.
        """
        claimed = np.full(len(self.fleet), NONE, np.int32)
        for book in self.books.values():
            mine = book.rows != NONE
            claimed[book.rows[mine]] = book.holders()[mine]
        ordered = self.ordered_by != NONE
        claimed[ordered] = self.ordered_by[ordered]
        return claimed

    def _open_books(self) -> dict[int, Book]:
        fleet, books = self.fleet, {}
        homes = self.homes_of_rows
        rows = self._in_keep_order(np.flatnonzero(homes != NONE))
        rows = rows[np.argsort(homes[rows], kind="stable")]
        borders = np.searchsorted(homes[rows], np.arange(len(fleet.clusters) + 1))
        wanted = {*self.demand.cluster.tolist(), *homes[rows].tolist()}
        cluster_of_class = self.demand.cluster[self.classes.need]
        classes = np.argsort(cluster_of_class, kind="stable").astype(np.int64)
        ends = np.searchsorted(cluster_of_class[classes], np.arange(len(fleet.clusters) + 1))
        for cluster in sorted(wanted):
            book = Book(self.classes, self.left, self.capacities.of(cluster))
            mine = rows[borders[cluster] : borders[cluster + 1]]
            ahead = fleet.headroom[mine]
            self.reserve[cluster] = mine[ahead]
            mine = mine[~ahead]
            book.add(mine, fleet.flavour[mine], fleet.wanted_by[mine], self._open_from(mine))
            book.expect(classes[ends[cluster] : ends[cluster + 1]])
            books[cluster] = book
        return books

    def _open_from(self, rows: Rows) -> Longs:
        """Up to which priority machines serve needs. One that drains for a need is not for those
        that outrank it: they may demand that pods leave faster.
        """
        keeper = self.kept_for[rows]
        drains = (self.fleet.state[rows] == MachineState.DRAINING) & (keeper != NONE)
        return np.where(drains, np.append(self.priorities, ALWAYS)[keeper], ALWAYS)

    def _homes_of_rows(self) -> Ints:
        """The cluster that each machine is supply for."""
        fleet = self.fleet
        bound = np.isin(fleet.state, (int(MachineState.CONFIGURED), int(MachineState.CONFIGURING)))
        coming = np.isin(fleet.state, [int(state) for state in _COMING])
        of_need = np.append(self.demand.cluster, np.int32(NONE))[fleet.wanted_by]
        destination = np.where(of_need != NONE, of_need, fleet.destination)
        homes: Ints = np.where(bound, fleet.cluster, np.where(coming, destination, np.int32(NONE)))
        return homes

    def _in_keep_order(self, rows: Rows) -> Rows:
        """Machines that are least to be given back first: those whose release would cost most or is
        not known, then those that the last decision counted, what is in service before what is
        still to come, the cheaper, the one with the higher reclamation penalty.
        """
        fleet = self.fleet
        cost = fleet.release_cost[rows]
        releasable = np.isfinite(cost)
        state = fleet.state[rows]
        arrival = np.select(
            [state == MachineState.CONFIGURED, state == MachineState.CONFIGURING,
             state == MachineState.CREATING], [0, 1, 2], 3,
        )  # fmt: skip
        penalty = -fleet.reclamation_bucket[rows].astype(np.int64)
        keys = (
            fleet.tie_break[rows],
            penalty,
            self.columns.price[fleet.flavour[rows]],
            arrival,
            fleet.wanted_by[rows] == NONE,
            np.where(releasable, -cost, 0.0),
            releasable,
        )
        return rows[np.lexsort(keys)]

    def _take_up(self, carry: Carry) -> None:
        if not carry.reservations:
            return
        place = {self.key(index): index for index in range(len(self.demand.needs))}
        for reservation in carry.reservations:
            index = place.get(reservation.need, NONE)
            if index == NONE:
                continue
            age_seconds = self.now_seconds - reservation.since_seconds
            if age_seconds < self.settings.reservation_seconds:
                self.reserved[index] = reservation
            else:
                self.expired.add(index)

    def _kept_for(self) -> Ints:
        """For each machine the need that it is drained or kept for, else NONE.

        What drains for a need does so however long it takes: let go, it would be missed at once,
        and another machine's pods would be evicted in its place.
        """
        fleet = self.fleet
        has_reservation = np.zeros(len(self.demand.needs) + 1, np.bool_)  # the last is for NONE
        has_reservation[[*self.reserved]] = True
        free = np.isin(fleet.state, [int(state) for state in _KEEPABLE])
        kept = fleet.state == MachineState.DRAINING
        kept |= free & has_reservation[fleet.wanted_by]
        return np.where(kept, fleet.wanted_by, np.int32(NONE))


def key_of(fleet: Fleet, demand: Demand, index: int) -> NeedKey:
    """The identity of need `index` among all clusters' needs."""
    return NeedKey(fleet.clusters[int(demand.cluster[index])], *demand.needs[index].key)
