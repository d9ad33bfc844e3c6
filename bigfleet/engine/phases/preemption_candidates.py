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

from bigfleet.engine.kernels.candidates import CandidateColumns, open_candidates
from bigfleet.engine.phases.victims import grace_periods, scores
from bigfleet.engine.placement.free_pools import EligiblePool, pool_of
from bigfleet.engine.snapshot import NONE, Bytes, Flags, Floats, Ints, Longs, Rows, flags_of
from bigfleet.engine.state.claims import served
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
        self._leaves = drains[rows] | reclaimable[rows]
        #: the need that each machine drains for, or NONE: no need takes that from another
        reserved_for = np.where(drains[rows], state.reserved_for[rows], np.int32(NONE))
        number = len(rows)
        self._table = CandidateColumns(
            row=rows,
            flavour=fleet.flavour[rows],
            cluster=fleet.cluster[rows],
            supply_cluster=state.supply_clusters[rows],
            last_claimed_by=fleet.last_claimed_by[rows],
            drains=drains[rows],
            reserved_for=reserved_for,
            must_stay=np.isposinf(fleet.disruption_cost[rows]),
            holder=reserved_for.copy(),
            priority=np.empty(number, np.int64),
            tier=np.empty(number, np.uint8),
        )
        self._interruption = np.empty(number, np.uint8)
        self._reclamation = np.empty(number, np.uint8)
        #: positions by cluster that the machines are supply for, and that cluster
        self._by_cluster = np.argsort(self._table.supply_cluster, kind="stable")
        self._sorted_clusters = self._table.supply_cluster[self._by_cluster]
        #: the lowest priority of any candidate
        self._lowest = 0
        #: the needs that last claimed surplus machines
        self._promised: set[int] = set()
        #: clusters whose placements have changed; None for all, at the beginning
        self._dirty: set[int] | None = None

    def refresh(self, clusters: Iterable[int]) -> None:
        """Recompute the candidates of these clusters before the next use: placements changed."""
        if self._dirty is not None:
            self._dirty.update(clusters)

    def of(self, index: int) -> Candidates:
        """The machines that need `index` may take."""
        if self._dirty is None:
            self._recompute(np.arange(len(self._rows)), served(self._state))
        elif self._dirty:
            self._recompute(self._supply_of(self._dirty), served(self._state, self._dirty))
        self._dirty = set()
        at = self._open_to(index)
        if not len(at):
            nothing = np.empty(0, np.intp)
            return Candidates(nothing, nothing, nothing > 0, nothing)
        return self._ranked(index, at)

    def _supply_of(self, clusters: Iterable[int]) -> Rows:
        """Positions of the machines that are supply for these clusters."""
        # Of the columns' type, so that the search does not convert all of them.
        chosen, among = np.array(sorted(clusters), np.int32), self._sorted_clusters
        begins, ends = (np.searchsorted(among, chosen, side) for side in ("left", "right"))
        return np.concatenate(
            [self._by_cluster[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        )

    def _recompute(self, at: Rows, served: Ints) -> None:
        """Recompute the candidates in these positions; `served` [n] is of their clusters."""
        state, rows, table = self._state, self._rows[at], self._table
        reserving_need = table.reserved_for[at]
        holder = np.where(reserving_need != NONE, reserving_need, served[rows])
        held = holder != NONE
        priority = np.where(
            held, np.append(state.priorities, 0)[holder], state.fleet.priority[rows]
        )
        # These leave their cluster in any case.
        priority[~held & self._leaves[at]] = _BELOW_ALL_PRIORITIES
        table.holder[at], table.priority[at] = holder, priority
        self._interruption[at] = self._buckets("interruption_bucket", rows, holder)
        self._reclamation[at] = self._buckets("reclamation_bucket", rows, holder)
        table.tier[at] = self._tiers(at)
        self._lowest = int(table.priority.min(initial=np.iinfo(np.int64).max))
        is_surplus = table.tier == CandidateTier.SURPLUS
        self._promised = {*table.last_claimed_by[is_surplus].tolist()} - {NONE}

    def _tiers(self, at: Rows) -> Bytes:
        held, drains = self._table.holder[at] != NONE, self._table.drains[at]
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
        state, priority = self._state, int(self._state.priorities[index])
        flavour_fit = state.flavour_fit(index)
        is_gang = flavour_fit.profile.same_key is not None
        # Most needs that are short have the lowest priority.
        if priority < self._lowest + (not is_gang) and index not in self._promised:
            return np.empty(0, np.intp)
        at = open_candidates(
            self._table,
            index,
            state.cluster_of(index),
            priority,
            state.priorities,
            flavour_fit.accepted,
            self._incomplete_gangs() if is_gang else np.zeros(0, np.bool_),
            state.unavailable,
            int(CandidateTier.COMING if flavour_fit.profile.never_preempts else len(CandidateTier)),
        )
        incoming = self._table.tier[at] == CandidateTier.COMING
        return at[~incoming | self._drains_in_time(priority, at)] if incoming.any() else at

    def _drains_in_time(self, priority: int, at: Rows) -> Flags:
        """Which machines that drain for needs of lower priority do so within the grace period that
        this priority may demand.
        """
        # An urgent need must not wait for pods that were given ten minutes.
        served = self._state.fleet.priority[self._rows[at]]
        given = grace_periods(np.maximum(self._table.priority[at] - served, 0))
        demanded = grace_periods(np.maximum(priority - served, 0))
        in_time: Flags = given <= demanded
        return in_time

    def _incomplete_gangs(self) -> Flags:
        """Which needs [N] are gangs that lack something: they yield to a gang of their priority
        that is complete with their machines.
        """
        # Otherwise two gangs that each hold a part of a domain would deadlock.
        incomplete: Flags = self._state.needs.gang & self._state.lacking(0, len(self._state.needs))
        return incomplete

    def _ranked(self, index: int, at: Rows) -> Candidates:
        state, fleet, tier = self._state, self._state.fleet, self._table.tier[at]
        rows, priority = self._rows[at], int(state.priorities[index])
        is_victim, is_coming = tier >= CandidateTier.VICTIM, tier == CandidateTier.COMING
        is_surplus = tier == CandidateTier.SURPLUS
        served = np.where(is_surplus, fleet.priority[rows], self._table.priority[at])
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
