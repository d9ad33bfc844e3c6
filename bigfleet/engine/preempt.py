"""Phase 2: who still lacks something takes what others can spare, then what others use less well.

It sees all claims of phase 1, in the order of needs. A plain need takes as much as there is; a gang
takes nothing unless it then is whole. Who loses a machine is served again in its turn.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.acquisition import Shopping
from bigfleet.engine.assign import domain_supply, reserved_domain, serve, settle, withdraw
from bigfleet.engine.desk import Desk, Taken
from bigfleet.engine.picking import Positions, take_and_fit, without_redundant
from bigfleet.engine.same_domain import DomainSupply, Home, choose_domain
from bigfleet.engine.snapshot import NONE, Flags
from bigfleet.engine.spreading import Candidates, pick_spread
from bigfleet.engine.supply import ACQUIRABLE
from bigfleet.engine.takeable import Offers, Takeable
from bigfleet.engine.wishes import Wish


def preempt(desk: Desk, ripe: Flags) -> None:
    """Take machines for all needs that lack something, in their order.

    `ripe` are the CONFIGURED machines that are to go in any case.
    """
    if any(desk.lacks(index) for index in desk.missing):
        _Round(desk, ripe).run()


class _Round:
    """`_stirred`: machines became free after a need had its turn, so that later ones look again."""

    def __init__(self, desk: Desk, ripe: Flags) -> None:
        self._desk = desk
        self._takeable = Takeable(desk, ripe)
        self._robbed: set[int] = set()
        self._stirred = desk.supply.stop_keeping()

    def run(self) -> None:
        """Losers are of lower priority, so their turn is still to come.

        What stranded pods asked for first is there: nobody is evicted for them a second time.
        """
        needs, passing = self._desk.demand.needs, self._desk.expired
        for index in range(len(needs)):
            if self._desk.lacks(index) and index not in passing and not needs[index].is_additional:
                wish = self._desk.wishes.of(index)
                assert wish is not None, "a need that asks for nothing lacks nothing"
                self._help(wish)

    def _help(self, wish: Wish) -> None:
        if self._stirred or wish.index in self._robbed:
            withdraw(self._desk, wish)
            serve(self._desk, wish)
        if not self._desk.lacks(wish.index):
            return
        offers = self._takeable.offers(wish)
        if wish.same_key is not None:
            self._complete(wish, offers)
        elif len(offers.rows):
            self._take(wish, offers)

    def _complete(self, wish: Wish, offers: Offers) -> None:
        """Make a gang whole in any domain where that is possible."""
        desk = self._desk
        supply = _with_offers(desk, wish, offers)
        home = choose_domain(supply, wish.want, reserved_domain(desk, wish))
        if home.whole:
            self._move(wish, home)
            inside = supply.domain[desk.fleet.flavour[offers.rows]] == home.domain
            if desk.lacks(wish.index):
                self._take(wish, offers.only(inside))
        elif desk.reserved.pop(wish.index, None) is not None:
            withdraw(desk, wish)
            serve(desk, wish)
            self._stirred = True

    def _move(self, wish: Wish, home: Home) -> None:
        before = self._desk.supply.held(wish.index)
        withdraw(self._desk, wish)
        settle(self._desk, wish, home)
        self._stirred |= bool((self._desk.supply.claimed_by[before] != wish.index).any())

    def _take(self, wish: Wish, offers: Offers) -> None:
        desk = self._desk
        picked = _picked(desk, wish, offers)
        rows = offers.rows[picked]
        losers = {int(loser) for loser in desk.supply.claimed_by[rows] if loser != NONE}
        desk.supply.claim(rows, wish.index)
        desk.taken[wish.index] = Taken(rows, offers.gentle[picked], offers.gap[picked])
        desk.recount(wish)
        for loser in sorted(losers):
            robbed = desk.wishes.of(loser)
            assert robbed is not None, "a need that asks for nothing holds nothing"
            desk.recount(robbed)
        self._robbed |= losers


def _with_offers(desk: Desk, wish: Wish, offers: Offers) -> DomainSupply:
    """All that a gang holds, could acquire and could take."""
    fleet, count = desk.fleet, desk.supply.by_flavour
    free, held = domain_supply(desk, wish), desk.supply.held(wish.index)
    acquired = np.isin(fleet.state[held], ACQUIRABLE)
    own = ~acquired & (fleet.wanted_by[held] == wish.index)
    return DomainSupply(
        domain=free.domain,
        units=free.units,
        acquirable=free.acquirable + count(held[acquired]),
        creditable=free.creditable + count(held[~acquired]),
        incumbent=free.incumbent + count(held[own]),
        spare=count(offers.rows[offers.gentle]),
        preemptable=count(offers.rows[~offers.gentle]),
    )


def _picked(desk: Desk, wish: Wish, offers: Offers) -> Positions:
    """Which of the offers to take: by rank, then by price, and none that the others make
    superfluous.
    """
    missing, rows = desk.missing[wish.index], offers.rows
    shopping = Shopping(wish, missing, wish.usable)
    flavours, rank = desk.fleet.flavour[rows], offers.rank.astype(np.float64)
    if wish.terms:
        candidates = Candidates(rows, offers.rank, np.zeros(len(rows)))
        return pick_spread(
            desk.fleet, desk.columns, shopping, candidates, desk.supply.held(wish.index)
        )
    order = np.lexsort((desk.fleet.tie_break[rows], shopping.price_ranks()[flavours], rank))
    flavours, rank = flavours[order], rank[order]
    taken = take_and_fit(flavours, wish.units, rank, missing)
    return order[without_redundant(taken, flavours, wish.units, rank, missing)]
