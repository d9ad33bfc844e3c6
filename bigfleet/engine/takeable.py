"""Which machines a need may have once somebody else's pods have left them.

In this order: machines that drain already and that nobody waits for; excess machines; machines that
drain for needs of lower priority; machines of needs of lower priority; of these last those whose
interruption is PINNED. Those that do not drain yet are CONFIGURED, in another cluster that has
reported and whose operator can be told. (Its own cluster's machines a need counts anyway: there the
scheduler decides between pods.)

An excess machine is anybody's once its hold is over and no gang may miss it; before, it is as much
protected as it was by the need that it served.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.desk import Desk
from bigfleet.engine.snapshot import NONE, Bytes, Flags, Floats, Ints, Longs, Rows
from bigfleet.engine.victims import graces, scores
from bigfleet.engine.wishes import Wish
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState

DRAINING, EXCESS, COMING, VICTIM, PINNED = range(5)
_ANYBODYS = np.iinfo(np.int64).min


class Offers(NamedTuple):
    """Machines that one need may take: `rank` is the order in which they come into question
    (equals share one), `gentle` those that nobody counts, or that drain already, `gap` how much
    lower their priority is.
    """

    rows: Rows
    rank: Longs
    gentle: Flags
    gap: Longs

    def only(self, which: Flags) -> Offers:
        """Some of them."""
        return Offers(self.rows[which], self.rank[which], self.gentle[which], self.gap[which])


class Takeable:
    """All machines that some need may take, after phase 1."""

    def __init__(self, desk: Desk, ripe: Flags) -> None:
        """`ripe` are the CONFIGURED machines that are to go in any case."""
        fleet, supply = desk.fleet, desk.supply
        self._desk = desk
        open_ = np.isin(fleet.cluster, sorted(desk.demand.reported - desk.demand.unreachable))
        drains = fleet.state == MachineState.DRAINING
        works = (fleet.state == MachineState.CONFIGURED) & open_
        rows = np.flatnonzero(drains | works)
        holder = supply.claimed_by[rows]
        priority = _priorities(desk, rows, holder, ripe)
        order = np.lexsort((fleet.tie_break[rows], priority))
        self._rows, self._holder, self._priority = rows[order], holder[order], priority[order]
        self._interruption = self._buckets("interruption_bucket")
        self._reclamation = self._buckets("reclamation_bucket")
        self._tier = self._tiers()
        self._promised = self._promises()

    def offers(self, wish: Wish) -> Offers:
        """What the need may take."""
        at = self._open_to(wish)
        if not len(at):
            nothing = np.empty(0, np.intp)
            return Offers(nothing, nothing, nothing > 0, nothing)
        return self._ranked(wish, at)

    def _tiers(self) -> Bytes:
        desk = self._desk
        tier = np.where(self._holder == NONE, EXCESS, VICTIM)
        tier[self._interruption == penalty.PINNED] = PINNED
        tier[self._holder == NONE] = EXCESS
        drains = desk.fleet.state[self._rows] == MachineState.DRAINING
        tier[drains] = np.where(self._holder[drains] == NONE, DRAINING, COMING)
        return tier.astype(np.uint8)

    def _buckets(self, name: str) -> Longs:
        """The penalty of each machine's holder, else the one that it last had."""
        needs = [getattr(need.profile, name) for need in self._desk.demand.needs]
        last = getattr(self._desk.fleet, name)[self._rows]
        held = np.array([*needs, penalty.ZERO], np.int64)[self._holder]
        return np.where(self._holder == NONE, last, held).astype(np.int64)

    def _promises(self) -> dict[int, Rows]:
        """By need, the positions of excess machines that it was promised already."""
        wanted_by = self._desk.fleet.wanted_by[self._rows]
        at = np.flatnonzero((self._tier == EXCESS) & (wanted_by != NONE))
        return {int(need): at[wanted_by[at] == need] for need in np.unique(wanted_by[at])}

    def _open_to(self, wish: Wish) -> Rows:
        """Positions of what the need may take and nobody has taken since."""
        desk, fleet = self._desk, self._desk.fleet
        priority = wish.need.profile.priority
        lower, same = (int(at) for at in np.searchsorted(self._priority, (priority, priority + 1)))
        at = np.arange(lower)
        if wish.same_key is not None:
            at = np.concatenate((at, self._giving_way(lower, same)))
        promised = self._promised.get(wish.index, at[:0])
        at = np.concatenate((at, promised[promised >= lower]))
        rows = self._rows[at]
        drains = fleet.state[rows] == MachineState.DRAINING
        own = np.where(
            drains, desk.supply.kept_for[rows] == wish.index, fleet.cluster[rows] == wish.cluster
        )
        untouched = desk.supply.claimed_by[rows] == self._holder[at]
        open_: Rows = at[wish.usable[fleet.flavour[rows]] & ~own & untouched]
        coming = self._tier[open_] == COMING
        return open_[~coming | self._drains_in_time(wish, open_)] if coming.any() else open_

    def _drains_in_time(self, wish: Wish, at: Rows) -> Flags:
        """Whether machines that drain for lower needs do so as fast as this one may demand.

        One that is more urgent by a whole band of grace must not wait for pods that were given
        ten minutes.
        """
        served = self._desk.fleet.priority[self._rows[at]]
        given = graces(np.maximum(self._priority[at] - served, 0))
        demanded = graces(np.maximum(wish.need.profile.priority - served, 0))
        in_time: Flags = given <= demanded
        return in_time

    def _giving_way(self, start: int, stop: int) -> Rows:
        """Positions from `start` to `stop` of machines held by gangs that are not whole: one that
        then is whole may have them, or two could block each other for ever.
        """
        desk = self._desk
        holders = self._holder[start:stop]
        broken = [
            int(need)
            for need in np.unique(holders[holders != NONE])
            if desk.demand.needs[need].profile.same_key is not None and desk.lacks(int(need))
        ]
        return start + np.flatnonzero(np.isin(holders, broken))

    def _ranked(self, wish: Wish, at: Rows) -> Offers:
        fleet, tier = self._desk.fleet, self._tier[at]
        rows = self._rows[at]
        served = np.where(tier == EXCESS, fleet.priority[rows], self._priority[at])
        served[tier == DRAINING] = wish.need.profile.priority  # nobody has to leave any more
        gap = np.maximum(wish.need.profile.priority - served, 0)
        score = np.where(tier >= VICTIM, self._scores(at, gap), np.where(tier == COMING, gap, 0.0))
        new = fleet.wanted_by[rows] != wish.index
        reluctance = wish.reluctance[fleet.flavour[rows]]
        keys = np.stack((-score, new, reluctance, tier))
        order = np.lexsort((fleet.tie_break[rows], *keys))
        rank = _ranks(keys[:, order])
        return Offers(rows[order], rank, tier[order] < VICTIM, gap[order])

    def _scores(self, at: Rows, gap: Longs) -> Floats:
        weights = self._desk.settings.victim_weights
        return scores(gap, self._interruption[at], self._reclamation[at], weights)


def _priorities(desk: Desk, rows: Rows, holder: Ints, ripe: Flags) -> Longs:
    """From which priority on (exclusively) a machine may be taken."""
    held = np.append(desk.priorities, 0)[holder]
    priority = np.where(holder == NONE, desk.fleet.priority[rows], held)
    drains = desk.fleet.state[rows] == MachineState.DRAINING
    priority[(holder == NONE) & (drains | ripe[rows])] = _ANYBODYS
    return priority


def _ranks(keys: Floats) -> Longs:
    """Number equal columns of `keys` [K, n], which are in order already."""
    steps = np.zeros(keys.shape[1], np.int64)
    steps[1:] = np.logical_or.reduce(keys[:, 1:] != keys[:, :-1], axis=0)
    return np.cumsum(steps)
