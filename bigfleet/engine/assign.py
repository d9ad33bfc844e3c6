"""Phase 1: every need, in order, first counts what its cluster has, then acquires the rest."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.acquisition import Shopping, acquire
from bigfleet.engine.contented import Contented
from bigfleet.engine.desk import Desk
from bigfleet.engine.picking import take_until_covered, uncovered
from bigfleet.engine.same_domain import DomainSupply, Home, choose_domain
from bigfleet.engine.snapshot import NONE, Flags, Rows
from bigfleet.engine.spreading import acquire_spread
from bigfleet.engine.wishes import Wish


def assign(desk: Desk) -> None:
    """Serve all needs in their order."""
    for index in Contented(desk).turns():
        wish = desk.wishes.of(index)
        if wish is not None:
            serve(desk, wish)


def serve(desk: Desk, wish: Wish) -> None:
    """Credit and acquire for one need.

    A gang that gathers in a reserved domain stays there also while machines are missing that are
    to be taken from others: what it has there must not go to waste, nor may it begin elsewhere.
    """
    if wish.same_key is None:
        _serve_within(desk, wish, wish.usable, spares=bool(wish.terms))
        return
    kept = reserved_domain(desk, wish)
    home = choose_domain(domain_supply(desk, wish), wish.want, kept)
    settle(desk, wish, home if home.whole or kept == NONE else Home(kept, False))


def settle(desk: Desk, wish: Wish, home: Home) -> None:
    """Serve a gang in its domain. While it cannot be whole there, it spares its neighbours."""
    label = desk.columns.label(str(wish.same_key))
    if home.domain != NONE:
        desk.homes[wish.index] = label.values[home.domain]
    inside = wish.usable & (label.codes == home.domain) & (label.codes != NONE)
    _serve_within(desk, wish, inside, spares=not home.whole)


def _serve_within(desk: Desk, wish: Wish, usable: Flags, *, spares: bool) -> None:
    """Credit and acquire machines of `usable` flavours; note what the need lacks then.

    A need that `spares` its neighbours leaves alone what other needs of its cluster want: a spread
    that its skew lets acquire nothing, and a gang that cannot be whole, would take machines from
    needs that are served, and these would acquire again, or evict somebody, for nothing.
    """
    flavour = desk.fleet.flavour
    creditable = _creditable_rows(desk, wish, usable, spares=spares)
    credited = creditable[take_until_covered(flavour[creditable], wish.units, wish.want)]
    desk.supply.claim(credited, wish.index)
    missing = uncovered(wish.want, wish.units[flavour[credited]])
    if missing.any() and wish.index not in desk.expired and not _awaits_others(desk, wish):
        rows = _acquirable_rows(desk, Shopping(wish, missing, usable), credited)
        desk.supply.claim(rows, wish.index)
        desk.acquired[wish.index] = rows
        missing = uncovered(missing, wish.units[flavour[rows]])
    desk.missing[wish.index] = missing


def withdraw(desk: Desk, wish: Wish) -> None:
    """Undo `serve` for one need."""
    desk.supply.disclaim(wish.index)
    desk.acquired.pop(wish.index, None)
    desk.homes.pop(wish.index, None)


def reserved_domain(desk: Desk, wish: Wish) -> int:
    """The code of the domain that is reserved for a gang, or NONE."""
    reservation = desk.reserved.get(wish.index)
    names = desk.columns.label(str(wish.same_key)).values
    if reservation is None or reservation.domain not in names:
        return NONE
    return names.index(reservation.domain)


def domain_supply(desk: Desk, wish: Wish) -> DomainSupply:
    """What a gang can have without taking it from anybody."""
    supply, fleet = desk.supply, desk.fleet
    creditable = supply.creditable(wish, wish.usable)
    own = creditable[fleet.wanted_by[creditable] == wish.index]
    nothing = np.zeros(len(desk.columns), np.int64)
    passing = wish.index in desk.expired
    return DomainSupply(
        domain=desk.columns.label(str(wish.same_key)).codes,
        units=wish.units,
        acquirable=nothing if passing else supply.acquirable_by_flavour(wish, wish.usable),
        creditable=supply.by_flavour(creditable),
        incumbent=supply.by_flavour(own),
        spare=nothing,
        preemptable=nothing,
    )


def _creditable_rows(desk: Desk, wish: Wish, usable: Flags, *, spares: bool) -> Rows:
    """What already counts for the need, in keep order."""
    rows = desk.supply.creditable(wish, usable)
    wanted_by = desk.fleet.wanted_by[rows]
    if wish.need.is_additional:
        own: Rows = rows[wanted_by == wish.index]
        return own
    if not spares:
        return rows
    free: Rows = rows[(wanted_by == wish.index) | (wanted_by == NONE)]
    return free


def _awaits_others(desk: Desk, wish: Wish) -> bool:
    """Whether stranded pods may yet find room on a machine that their cluster is about to get."""
    return wish.need.is_additional and desk.supply.is_coming(wish)


def _acquirable_rows(desk: Desk, shopping: Shopping, held: Rows) -> Rows:
    if shopping.wish.terms:
        return acquire_spread(desk.fleet, desk.columns, desk.supply, shopping, held)
    return acquire(desk.fleet, desk.supply, shopping)
