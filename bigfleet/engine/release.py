"""Phase 3: which machines a cluster gives back, and when.

What runs is left alone. A CONFIGURED machine goes only if its cluster's operator has said what that
would disturb (`Fleet.release_cost`), those that disturb least first; if the cluster's pods, and a
few more, count on the others without it; if the cluster has had machines to spare for its hold; and
if it is not just growing: a machine with pods on it stays until demand has fallen since the cluster
last acquired one, an empty one until demand has stood still for the hold. An empty one that can
hold nothing is to spare whatever demand does.

A release by count alone would go to and fro: kube-scheduler packs worse than a count can, so that
what was given back has to be bought again. So a cluster that acquires a machine soon after it gave
one back, though its demand has hardly grown, holds on to its machines for twice as long from then
on, until that has long been no use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from bigfleet.engine.assign import Assignment
from bigfleet.engine.book import Book
from bigfleet.engine.carry import ClusterMemory
from bigfleet.engine.gangs import same_key
from bigfleet.engine.rails import reclaim_cap
from bigfleet.engine.recount import Recount
from bigfleet.engine.snapshot import NONE, Flags, Fleet, Floats, Ints, Rows
from bigfleet.engine.state import State
from bigfleet.model.machine import MachineState

_LONGEST_FACTOR = 32
# Each is a new count of all pods of a cluster.
_MOST_TRIALS = 12


class Release:
    """What one decision gives back."""

    def __init__(self, state: State, assignment: Assignment) -> None:
        self._state, self._assignment = state, assignment
        self._demand = state.demand_of_clusters()
        self._spare: dict[int, int] = {}
        self._acquiring = state.acquiring_clusters()

    def reclaimable(self) -> Flags:
        """CONFIGURED machines that are to go in any case."""
        state = self._state
        going = np.zeros(len(state.fleet), np.bool_)
        left = left_behind(state)
        going[left] = True
        for cluster in np.unique(state.fleet.cluster[left]).tolist():
            book = state.books[cluster]
            for machine in np.flatnonzero(np.isin(book.rows, left)).tolist():
                book.remove_machine(machine)
        for cluster in sorted(state.demand.reported - state.demand.unreachable):
            if cluster in state.books:
                rows = self._to_spare(cluster)
                self._spare[cluster] = len(rows)
                for row in self._due(cluster, rows).tolist():
                    going[row] = self._evacuate(cluster, row)
        return going

    def _evacuate(self, cluster: int, row: int) -> bool:
        """Count the machine's pods on the cluster's others, and the machine no more; False where
        that cannot be done one machine after the other.
        """
        state, book = self._state, self._state.books[cluster]
        memory, left = book.remember(), state.left.copy()
        machine = int(np.flatnonzero(book.rows == row)[0])
        losers = book.clear_machine(machine)
        book.remove_machine(machine)
        for index in losers:
            self._assignment.count_again(index)
        if (state.left > left).any():
            book.restore(memory)
            state.left[:] = left
            return False
        return True

    def memory(self, acquiring: set[int], reclaimed: Mapping[int, int]) -> Iterator[ClusterMemory]:
        """What to hand on: `acquiring` are the clusters that acquire machines now, `reclaimed` has
        how many each gives back that it had to spare, to whomever they go.
        """
        state, now = self._state, self._state.now_seconds
        names, coming = state.fleet.clusters, state.coming_clusters()
        for cluster, name in sorted(enumerate(names), key=lambda pair: pair[1]):
            memory = self._with_spare(cluster, reclaimed.get(cluster, 0))
            if cluster in coming:
                memory = replace(memory, coming_seconds=now)
            if cluster in acquiring:
                memory = self._having_acquired(memory, float(self._demand[cluster]))
            elif now - memory.factor_seconds > state.settings.rebuy_seconds * memory.hold_factor:
                factor = max(1, memory.hold_factor // 2)
                memory = replace(memory, hold_factor=factor, factor_seconds=now)
            if reclaimed.get(cluster, 0):
                demand = float(self._demand[cluster])
                memory = replace(memory, reclaimed_seconds=now, reclaimed_demand=demand)
            if replace(memory, factor_seconds=0.0) != ClusterMemory(name):
                yield memory

    def _with_spare(self, cluster: int, reclaimed: int) -> ClusterMemory:
        spare = self._spare.get(cluster, 0) - reclaimed
        memory = self._state.memory_of(cluster)
        return memory.with_spare(spare, reclaimed, self._state.now_seconds)

    def _having_acquired(self, memory: ClusterMemory, demand: float) -> ClusterMemory:
        state = self._state
        had_spare = state.memory_of(state.fleet.clusters.index(memory.cluster)).spare
        soon = (
            memory.reclaimed_seconds is not None
            and state.now_seconds - memory.reclaimed_seconds < state.settings.rebuy_seconds
        )
        has_grown = demand > memory.reclaimed_demand * (1 + state.settings.reclaim_reserve)
        if soon and not has_grown:
            factor = min(_LONGEST_FACTOR, memory.hold_factor * 2)
            memory = replace(
                memory,
                hold_factor=factor,
                factor_seconds=state.now_seconds,
                reclaimed_seconds=None,
            )
        if not had_spare:
            memory = replace(memory, grown_seconds=state.now_seconds)
        return replace(memory, acquired_seconds=state.now_seconds)

    def _due(self, cluster: int, rows: Rows) -> Rows:
        """Which of the spare machines `rows` go now: as many as there have been for the cluster's
        whole hold, within the cap.
        """
        state = self._state
        configured = state.fleet.state == MachineState.CONFIGURED
        count = int((configured & (state.fleet.cluster == cluster)).sum())
        most = reclaim_cap(count, state.settings.reclaim_cap_fraction)
        hold_seconds = self._hold_seconds(cluster)
        if hold_seconds:
            held = state.memory_of(cluster).held(hold_seconds, state.now_seconds)
            most = min(most, held)
        due = rows[:most]
        return due if self._is_settled(cluster) else due[state.fleet.release_cost[due] == 0]

    def _hold_seconds(self, cluster: int) -> float:
        factor = self._state.memory_of(cluster).hold_factor
        return self._state.settings.reclaim_hold_seconds * factor

    def _to_spare(self, cluster: int) -> Rows:
        """Machines that can hold nothing, and those of the cluster's candidates without which its
        pods have places, all together.
        """
        useless = self._useless(cluster)
        rows = self._candidates(cluster)
        rows = rows[~np.isin(rows, useless)]
        return np.concatenate((useless, self._dispensable(cluster, rows)))

    def _dispensable(self, cluster: int, rows: Rows) -> Rows:
        """All of them, else as many as are found by halving what fails: one machine that must stay,
        such as one with a part of a gang, keeps no others.
        """
        recount = Recount(self._state, self._assignment, cluster)
        chosen, parts = rows[:0], [rows] if len(rows) else []
        for _ in range(_MOST_TRIALS):
            if not parts:
                break
            part = parts.pop()
            if recount.can_do_without(np.concatenate((chosen, part))):
                chosen = np.concatenate((chosen, part))
            elif len(part) > 1:
                half = (len(part) + 1) // 2
                parts += [part[half:], part[:half]]
        return chosen

    def _useless(self, cluster: int) -> Rows:
        """Empty machines whose Nodes take no new pods: without them nothing changes, whatever
        demand does.
        """
        state, book = self._state, self._state.books[cluster]
        limited = state.columns.limited[book.flavour] & ~book.capacity.any(axis=1)
        rows = book.rows[(book.rows != NONE) & limited]
        fleet, at_work = state.fleet, state.fleet.state[rows] == MachineState.CONFIGURED
        empty = at_work & ~state.unavailable[rows] & (fleet.release_cost[rows] == 0)
        return release_order(fleet, state.columns.price, rows[empty])

    def _candidates(self, cluster: int) -> Rows:
        """Those that disturb least first; of equals those on which nothing is counted."""
        state, fleet = self._state, self._state.fleet
        book = state.books[cluster]
        rows = book.rows[self._at_work(book)]
        cost = fleet.release_cost[rows]
        allowed = np.isfinite(cost)
        has_fallen = self._has_fallen(cluster)
        allowed &= has_fallen | ((cost == 0) & self._stands_still(cluster))
        rows = release_order(fleet, state.columns.price, rows[allowed])
        counted = np.isin(rows, book.rows[book.opened])
        return rows[np.lexsort((counted, fleet.release_cost[rows]))]

    def _at_work(self, book: Book) -> Flags:
        state = self._state
        rows = np.where(book.rows == NONE, 0, book.rows)
        at_work: Flags = (state.fleet.state[rows] == MachineState.CONFIGURED) & (book.rows != NONE)
        return at_work & ~state.unavailable[rows]

    def _has_fallen(self, cluster: int) -> bool:
        """Whether demand has fallen since the cluster last grew. What it acquires beside machines
        that it has to spare is for pods that these cannot hold, and no growth.
        """
        memory = self._state.memory_of(cluster)
        fell, grown = self._state.demand.fell_seconds.get(cluster), memory.grown_seconds
        grows = cluster in self._acquiring and not memory.spare
        return fell is not None and not grows and (grown is None or fell >= grown)

    def _is_settled(self, cluster: int) -> bool:
        """Whether the cluster acquires nothing, and has not for its hold unless demand fell since:
        pods that wait for a machine may need the room that others are about to take.
        """
        state = self._state
        acquired = state.memory_of(cluster).acquired_seconds
        if cluster in self._acquiring:
            return False
        if acquired is None or state.demand.fell_seconds.get(cluster, -math.inf) >= acquired:
            return True
        return state.now_seconds - acquired >= self._hold_seconds(cluster)

    def _stands_still(self, cluster: int) -> bool:
        """Whether demand has not grown for as long as a machine is held."""
        state = self._state
        rose = state.demand.rose_seconds.get(cluster)
        return rose is None or state.now_seconds - rose >= state.settings.reclaim_hold_seconds


def left_behind(state: State) -> Rows:
    """Machines that nobody counts and that served a gang before it became whole elsewhere.

    Its pods there hold the others to the old domain, which has no room for them: until they are
    evicted, too, the gang hangs between two domains while its need counts as met.
    """
    fleet = state.fleet
    open_ = np.isin(fleet.cluster, sorted(state.demand.reported - state.demand.unreachable))
    idle = (fleet.state == MachineState.CONFIGURED) & open_ & (fleet.wanted_by != NONE)
    for ahead in state.reserve.values():
        idle[ahead] = False
    rows = np.flatnonzero(idle & (state.claims() == NONE))
    found = [np.empty(0, np.intp)]
    for index in np.unique(fleet.wanted_by[rows]).tolist():
        if index in state.homes and _at_work(state, index):
            label = state.columns.label(same_key(state, index))
            its = rows[fleet.wanted_by[rows] == index]
            here = label.codes[fleet.flavour[its]] == label.values.index(state.homes[index])
            found.append(its[~here])
    return np.concatenate(found)


def _at_work(state: State, index: int) -> bool:
    """Whether the need lacks nothing and all its machines can take pods."""
    book = state.book_of(index)
    machines = {machine for machine, _, _ in book.entries_of(state.classes.of(index))}
    states = state.fleet.state[book.rows[sorted(machines)]]
    return not state.lacks(index) and bool((states == MachineState.CONFIGURED).all())


def releases(state: State, claimed_by: Ints) -> Rows:
    """Elastic machines to be given back to their seller, in release order: those idle and unwanted
    for longer than their hold, and failed ones. One that has been idle for an unknown time stays.
    """
    fleet, settings = state.fleet, state.settings
    elastic = np.array([f.capacity_type.elastic for f in fleet.flavours], np.bool_)
    holds = np.array(
        [
            settings.idle_hold_seconds.get(f.capacity_type, np.inf)
            if f.capacity_type.elastic
            else np.inf
            for f in fleet.flavours
        ]
    )
    overdue = state.now_seconds - fleet.unused_since_seconds > holds[fleet.flavour]
    unclaimed = claimed_by == NONE
    kept = np.isin(state.promised_to, [*state.reserved])
    idle = (fleet.state == MachineState.IDLE) & unclaimed & overdue & ~kept
    failed = (fleet.state == MachineState.FAILED) & elastic[fleet.flavour]
    return release_order(fleet, state.columns.price, np.flatnonzero(idle | failed))


def release_order(fleet: Fleet, price: Floats, rows: Rows) -> Rows:
    """What disturbs least first, then the dearest, the lower reclamation penalty, tie_break."""
    cost = np.nan_to_num(fleet.release_cost[rows], nan=0.0, posinf=np.finfo(np.float64).max)
    dear = -price[fleet.flavour[rows]]
    return rows[np.lexsort((fleet.tie_break[rows], fleet.reclamation_bucket[rows], dear, cost))]
