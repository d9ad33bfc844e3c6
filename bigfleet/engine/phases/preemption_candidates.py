"""Which machines a need may have once somebody else's pods have left them.

In this order: machines that drain already and that nobody waits for; excess machines; machines that
drain for needs of lower priority; machines of needs of lower priority; of these last those whose
interruption is PINNED. Those that do not drain yet are CONFIGURED, in another cluster that has
reported and whose operator can be told. (Its own cluster's machines a need counts anyway: there the
scheduler decides between pods.) A machine is of the highest priority that has pods on it.

An excess machine is anybody's once it is to be given back in any case; before, it is as much
protected as it was by the need that it served last. One that its operator has said must not go is
nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bigfleet.engine.phases.victims import grace_periods, scores
from bigfleet.engine.placement.acquire import EligiblePool, pool_of
from bigfleet.engine.snapshot import NONE, Bytes, Flags, Floats, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState

DRAINING, SURPLUS, COMING, VICTIM, PINNED = range(5)
_BELOW_ALL_PRIORITIES = np.iinfo(np.int64).min


class Candidates(NamedTuple):
    """Machines that one need may take: `rank` is the order in which they come into question (equals
    share one), `non_disruptive` those that nobody counts, or that drain already, `gap` how much
    lower their priority is.
    """

    rows: Rows
    rank: Longs
    non_disruptive: Flags
    gap: Longs

    def only(self, which: Flags) -> Candidates:
        """Some of them."""
        return Candidates(
            self.rows[which], self.rank[which], self.non_disruptive[which], self.gap[which]
        )


class PreemptionCandidates:
    """All machines that some need may take, after phase 1."""

    def __init__(self, state: CycleState, reclaimable: Flags) -> None:
        """`reclaimable` are the CONFIGURED machines that are to go in any case."""
        fleet = state.fleet
        self._state, self._reclaimable = state, reclaimable
        open_ = np.isin(fleet.cluster, sorted(state.demand.reported - state.demand.unreachable))
        drains = fleet.state == MachineState.DRAINING
        works = (fleet.state == MachineState.CONFIGURED) & open_
        self._rows = np.flatnonzero(drains | works)
        self._drains = drains[self._rows]
        self._stale = True

    def refresh(self) -> None:
        """Pods have found other places since."""
        self._stale = True

    def of(self, index: int) -> Candidates:
        """What need `index` may take."""
        if self._stale:
            self._recompute()
        at = self._open_to(index)
        if not len(at):
            nothing = np.empty(0, np.intp)
            return Candidates(nothing, nothing, nothing > 0, nothing)
        return self._ranked(index, at)

    def _recompute(self) -> None:
        state, rows = self._state, self._rows
        reserving_need = state.reserved_for[rows]
        kept = self._drains & (reserving_need != NONE)
        self._holder = np.where(kept, reserving_need, state.claims()[rows])
        held = np.append(state.priorities, 0)[self._holder]
        self._priority = np.where(self._holder == NONE, state.fleet.priority[rows], held)
        free = (self._holder == NONE) & (self._drains | self._reclaimable[rows])
        self._priority[free] = _BELOW_ALL_PRIORITIES
        self._interruption = self._buckets("interruption_bucket")
        self._reclamation = self._buckets("reclamation_bucket")
        self._tier = self._tiers()
        self._stale = False

    def _tiers(self) -> Bytes:
        tier = np.where(self._holder == NONE, SURPLUS, VICTIM)
        tier[(self._interruption == penalty.PINNED) & (self._holder != NONE)] = PINNED
        tier[self._drains] = np.where(self._holder[self._drains] == NONE, DRAINING, COMING)
        return tier.astype(np.uint8)

    def _buckets(self, name: str) -> Longs:
        """The penalty of each machine's holder, else the one that it last had."""
        needs = [getattr(need.profile, name) for need in self._state.demand.needs]
        last = getattr(self._state.fleet, name)[self._rows]
        held = np.array([*needs, penalty.ZERO], np.int64)[self._holder]
        return np.where(self._holder == NONE, last, held).astype(np.int64)

    def _open_to(self, index: int) -> Rows:
        """Positions of what the need may take and nobody has taken since."""
        state, fleet = self._state, self._state.fleet
        priority, flavour_fit = int(state.priorities[index]), state.flavour_fit(index)
        surplus = self._tier == SURPLUS
        promised = surplus & (fleet.last_claimed_by[self._rows] == index)
        open_ = (self._priority < priority) | promised
        # Pods run there, whatever is counted, and nobody knows whom they belong to.
        open_ &= ~(surplus & np.isposinf(fleet.disruption_cost[self._rows]))
        if flavour_fit.profile.same_key is not None:
            open_ |= self._incomplete_gangs_yield(priority)
        if flavour_fit.profile.never_preempts:
            open_ &= self._tier < COMING
        rows, cluster = self._rows, state.cluster_of(index)
        own = np.where(self._drains, self._comes_to(index), fleet.cluster[rows] == cluster)
        open_ &= flavour_fit.accepted[fleet.flavour[rows]] & ~own & ~state.unavailable[rows]
        at = np.flatnonzero(open_)
        incoming = self._tier[at] == COMING
        return at[~incoming | self._drains_in_time(priority, at)] if incoming.any() else at

    def _comes_to(self, index: int) -> Flags:
        """Machines that drain for the need, or for its cluster and nobody whom it outranks: these
        it has counted already.
        """
        state, rows = self._state, self._rows
        reserving_need = state.reserved_for[rows]
        outranked = np.append(state.priorities, np.iinfo(np.int64).max)[reserving_need]
        open_ = outranked >= state.priorities[index]
        comes: Flags = open_ & (state.supply_clusters[rows] == state.cluster_of(index))
        return comes

    def _drains_in_time(self, priority: int, at: Rows) -> Flags:
        """Whether machines that drain for lower needs do so as fast as this one may demand.

        One that is more urgent by a whole band of grace must not wait for pods that were given
        ten minutes.
        """
        served = self._state.fleet.priority[self._rows[at]]
        given = grace_periods(np.maximum(self._priority[at] - served, 0))
        demanded = grace_periods(np.maximum(priority - served, 0))
        in_time: Flags = given <= demanded
        return in_time

    def _incomplete_gangs_yield(self, priority: int) -> Flags:
        """Machines of this priority held by gangs that are not whole: one that then is whole may
        have them, or two could block each other for ever.
        """
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
        served = np.where(tier == SURPLUS, fleet.priority[rows], self._priority[at])
        served[tier == DRAINING] = priority  # nobody has to leave any more
        gap = np.maximum(priority - served, 0)
        score = np.where(tier >= VICTIM, self._scores(at, gap), np.where(tier == COMING, gap, 0.0))
        new = fleet.last_claimed_by[rows] != index
        flavour_tier = state.flavour_fit(index).tier[fleet.flavour[rows]]
        keys = np.stack((-score, new, flavour_tier, tier))
        order = np.lexsort((fleet.tie_break[rows], *keys))
        return Candidates(rows[order], _ranks(keys[:, order]), tier[order] < VICTIM, gap[order])

    def _scores(self, at: Rows, gap: Longs) -> Floats:
        weights = self._state.settings.victim_weights
        return scores(gap, self._interruption[at], self._reclamation[at], weights)


def in_ranks(
    state: CycleState, index: int, candidates: Candidates, keys: tuple[str, ...] = ()
) -> Iterator[EligiblePool]:
    """The candidates as offers to the need, those of one rank together."""
    capacity_of = state.capacities.of(state.cluster_of(index))
    borders = np.flatnonzero(np.diff(candidates.rank)) + 1
    for rows in np.split(candidates.rows, borders):
        pool = pool_of(state, rows, state.flavour_fit(index), capacity_of, keys)
        yield pool, np.ones(len(pool.costs), np.bool_)


def _ranks(keys: Floats) -> Longs:
    """Number equal columns of `keys` [K, n], which are in order already."""
    steps = np.zeros(keys.shape[1], np.int64)
    steps[1:] = np.logical_or.reduce(keys[:, 1:] != keys[:, :-1], axis=0)
    return np.cumsum(steps)
