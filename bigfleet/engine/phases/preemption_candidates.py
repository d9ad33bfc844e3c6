"""Machines that a need may take from others, once their pods have left.

In this order: machines that drain without a requester; surplus machines; machines that drain for
needs of lower priority; machines of needs of lower priority, those with PINNED interruption last.
Machines that do not drain yet are CONFIGURED and in another cluster that has reported and whose
operator is reachable. (On the machines of the need's own cluster, kube-scheduler decides between
pods.) A machine has the highest priority of the needs with pods on it.

Any need may take a surplus machine that is about to be reclaimed; other surplus machines keep the
priority of the need that they last served. A machine that must stay, according to its cluster's
operator, may not be preempted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from bigfleet.engine.phases.victims import grace_periods, scores
from bigfleet.engine.placement.acquire import EligiblePool, pool_of
from bigfleet.engine.snapshot import NONE, Bytes, Flags, Floats, Ints, Longs, Rows, flags_of
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState

_BELOW_ALL_PRIORITIES = np.iinfo(np.int64).min


class CandidateTier(IntEnum):
    """Kinds of candidates in the order in which they are taken."""

    DRAINING = 0
    SURPLUS = 1
    COMING = 2
    VICTIM = 3
    PINNED = 4


class Candidates(NamedTuple):
    """P machines that one need may take, best first."""

    #: [P] intp, rows of the fleet
    rows: Rows
    #: [P] int64, ascending; equal candidates share a rank
    rank: Longs
    #: [P] bool, unclaimed or draining already
    non_disruptive: Flags
    #: [P] int64, how much lower the machine's priority is
    gap: Longs

    def only(self, which: Flags) -> Candidates:
        """The candidates for which `which` [P] holds."""
        return Candidates(
            self.rows[which], self.rank[which], self.non_disruptive[which], self.gap[which]
        )


class PreemptionCandidates:
    """All machines that some need may take after phase 1."""

    def __init__(self, state: CycleState, reclaimable: Flags) -> None:
        """`reclaimable` [n] are the CONFIGURED machines that are reclaimed in any case."""
        fleet = state.fleet
        self._state = state
        open_ = flags_of(state.demand.reachable, len(fleet.clusters))[fleet.cluster]
        drains = fleet.state == MachineState.DRAINING
        works = (fleet.state == MachineState.CONFIGURED) & open_
        self._rows = rows = np.flatnonzero(drains | works)
        self._drains, self._leaves = drains[rows], drains[rows] | reclaimable[rows]
        #: the need that each machine drains for, or NONE: no need takes that from another
        self._reserved_for = np.where(self._drains, state.reserved_for[rows], np.int32(NONE))
        self._supply_cluster = state.supply_clusters[rows]
        self._holder = self._reserved_for.copy()
        self._priority = np.empty(len(rows), np.int64)
        self._interruption = np.empty(len(rows), np.uint8)
        self._reclamation = np.empty(len(rows), np.uint8)
        self._tier = np.empty(len(rows), np.uint8)
        #: clusters whose placements have changed; None for all, at the beginning
        self._dirty: set[int] | None = None

    def refresh(self, clusters: Iterable[int]) -> None:
        """Recompute the candidates of these clusters before the next use: placements changed."""
        if self._dirty is not None:
            self._dirty.update(clusters)

    def of(self, index: int) -> Candidates:
        """The machines that need `index` may take."""
        if self._dirty is None:
            self._recompute(np.arange(len(self._rows)), self._state.claims())
        elif self._dirty:
            its = flags_of(self._dirty, len(self._state.fleet.clusters))[self._supply_cluster]
            self._recompute(np.flatnonzero(its), self._state.claims(self._dirty))
        self._dirty = set()
        at = self._open_to(index)
        if not len(at):
            nothing = np.empty(0, np.intp)
            return Candidates(nothing, nothing, nothing > 0, nothing)
        return self._ranked(index, at)

    def _recompute(self, at: Rows, claims: Ints) -> None:
        """Recompute the candidates in these positions; `claims` [n] is of their clusters."""
        state, rows = self._state, self._rows[at]
        reserving_need = self._reserved_for[at]
        holder = np.where(reserving_need != NONE, reserving_need, claims[rows])
        held = holder != NONE
        priority = np.where(
            held, np.append(state.priorities, 0)[holder], state.fleet.priority[rows]
        )
        # These leave their cluster in any case.
        priority[~held & self._leaves[at]] = _BELOW_ALL_PRIORITIES
        self._holder[at], self._priority[at] = holder, priority
        self._interruption[at] = self._buckets("interruption_bucket", rows, holder)
        self._reclamation[at] = self._buckets("reclamation_bucket", rows, holder)
        self._tier[at] = self._tiers(at)

    def _tiers(self, at: Rows) -> Bytes:
        held, drains = self._holder[at] != NONE, self._drains[at]
        tier = np.where(held, int(CandidateTier.VICTIM), int(CandidateTier.SURPLUS))
        tier[(self._interruption[at] == penalty.PINNED) & held] = CandidateTier.PINNED
        tier[drains & held] = CandidateTier.COMING
        tier[drains & ~held] = CandidateTier.DRAINING
        return tier.astype(np.uint8)

    def _buckets(self, name: str, rows: Rows, holder: Ints) -> Bytes:
        """The penalty bucket of each machine's holder, or the one that it last had."""
        last = getattr(self._state.fleet, name)[rows]
        held = np.append(getattr(self._state.needs, name), np.uint8(penalty.ZERO))[holder]
        return np.where(holder == NONE, last, held).astype(np.uint8)

    def _open_to(self, index: int) -> Rows:
        """Positions of the candidates that the need may take and that are still available."""
        state, fleet = self._state, self._state.fleet
        priority, flavour_fit = int(state.priorities[index]), state.flavour_fit(index)
        promised = fleet.last_claimed_by[self._rows] == index
        promised &= self._tier == CandidateTier.SURPLUS
        lower = (self._priority < priority) | promised
        if flavour_fit.profile.same_key is not None:
            lower |= self._incomplete_gangs_yield(priority)
        at = np.flatnonzero(lower)
        rows, tier = self._rows[at], self._tier[at]
        # Machines that are supply for its own cluster were used in phase 1.
        own = np.where(
            self._drains[at],
            self._comes_to(index, at),
            fleet.cluster[rows] == state.cluster_of(index),
        )
        open_ = flavour_fit.accepted[fleet.flavour[rows]] & ~own & ~state.unavailable[rows]
        # Its operator reports pods that must stay, of unknown priority, whatever is placed there.
        open_ &= ~((tier == CandidateTier.SURPLUS) & np.isposinf(fleet.disruption_cost[rows]))
        if flavour_fit.profile.never_preempts:
            open_ &= tier < CandidateTier.COMING
        at, incoming = at[open_], tier[open_] == CandidateTier.COMING
        return at[~incoming | self._drains_in_time(priority, at)] if incoming.any() else at

    def _comes_to(self, index: int, at: Rows) -> Flags:
        """Which machines drain for the need's cluster, but not for a need of lower priority: phase
        1 has used them.
        """
        state = self._state
        outranked = np.append(state.priorities, np.iinfo(np.int64).max)[self._reserved_for[at]]
        open_ = outranked >= state.priorities[index]
        comes: Flags = open_ & (self._supply_cluster[at] == state.cluster_of(index))
        return comes

    def _drains_in_time(self, priority: int, at: Rows) -> Flags:
        """Which machines that drain for needs of lower priority do so within the grace period that
        this priority may demand.
        """
        # An urgent need must not wait for pods that were given ten minutes.
        served = self._state.fleet.priority[self._rows[at]]
        given = grace_periods(np.maximum(self._priority[at] - served, 0))
        demanded = grace_periods(np.maximum(priority - served, 0))
        in_time: Flags = given <= demanded
        return in_time

    def _incomplete_gangs_yield(self, priority: int) -> Flags:
        """Which machines of this priority belong to incomplete gangs: they yield to a gang that is
        complete with them.
        """
        # Otherwise two gangs that each hold a part of a domain would deadlock.
        state = self._state
        same = (self._priority == priority) & (self._holder != NONE)
        broken = [
            need
            for need in np.unique(self._holder[same]).tolist()
            if state.flavour_fit(need).profile.same_key is not None and state.lacks(need)
        ]
        giving: Flags = same & np.isin(self._holder, broken)
        return giving

    def _ranked(self, index: int, at: Rows) -> Candidates:
        state, fleet, tier = self._state, self._state.fleet, self._tier[at]
        rows, priority = self._rows[at], int(state.priorities[index])
        is_victim, is_coming = tier >= CandidateTier.VICTIM, tier == CandidateTier.COMING
        is_surplus = tier == CandidateTier.SURPLUS
        served = np.where(is_surplus, fleet.priority[rows], self._priority[at])
        served[tier == CandidateTier.DRAINING] = priority  # no pods are evicted for this need
        gap = np.maximum(priority - served, 0)
        score = np.where(is_victim, self._scores(at, gap), np.where(is_coming, gap, 0.0))
        new = fleet.last_claimed_by[rows] != index
        flavour_tier = state.flavour_fit(index).tier[fleet.flavour[rows]]
        keys = np.stack((-score, new, flavour_tier, tier))
        order = np.lexsort((fleet.tie_break[rows], *keys))
        return Candidates(rows[order], _ranks(keys[:, order]), ~is_victim[order], gap[order])

    def _scores(self, at: Rows, gap: Longs) -> Floats:
        weights = self._state.settings.victim_weights
        return scores(gap, self._interruption[at], self._reclamation[at], weights)


def in_ranks(
    state: CycleState, index: int, candidates: Candidates, keys: tuple[str, ...] = ()
) -> Iterator[EligiblePool]:
    """The candidates as pools, one for each rank."""
    number = state.capacities.number(state.cluster_of(index))
    borders = np.flatnonzero(np.diff(candidates.rank)) + 1
    for rows in np.split(candidates.rows, borders):
        pool = pool_of(state, rows, state.flavour_fit(index), number, keys)
        yield pool, np.ones(len(pool.costs), np.bool_)


def _ranks(keys: Floats) -> Longs:
    """Number the distinct columns of `keys` [K, n], which are sorted."""
    steps = np.zeros(keys.shape[1], np.int64)
    steps[1:] = np.logical_or.reduce(keys[:, 1:] != keys[:, :-1], axis=0)
    return np.cumsum(steps)
