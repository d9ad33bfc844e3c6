"""Gangs: needs whose machines share one domain of a topology key. They fit on no one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bigfleet.engine.acquire import Eligible, Market, choose_from, in_tiers, order
from bigfleet.engine.domains import ACQUIRABLE, CLUSTERS, OWN, Home, Prospects, choose_domain
from bigfleet.engine.packing import fitting
from bigfleet.engine.purchase import Offer, Stock
from bigfleet.engine.snapshot import NONE, Flags, Longs, Rows
from bigfleet.engine.state import State
from bigfleet.kernels import kernel
from bigfleet.model.machine import MachineState


def begin_gang(state: State, market: Market, index: int) -> bool:
    """Count the gang's pods in the domain that can hold all of them; False where there is none.

    What that domain lacks is acquired when it is the gang's turn. A gang that no domain can hold
    keeps the machines that it has in service: its pods run there.
    """
    home = choose_domain(
        prospects(state, market, index), *pods_of(state, index), reserved_domain(state, index)
    )
    if home.whole or home.domain == NONE:
        settle(state, index, home)
        state.forgo(index)
        return home.whole
    label = state.columns.label(same_key(state, index))
    state.homes[index] = label.values[home.domain]
    count_at_home(state, index, in_service_only=True)
    return False


def serve_gang(state: State, market: Market, index: int) -> None:
    """Count and acquire for one gang, in whichever domain is best now.

    A gang that gathers in a reserved domain stays there also while machines are missing that are to
    be taken from others: what it has there must not go to waste, nor may it begin elsewhere. If its
    cluster's ceiling withholds something that it lacks, it acquires nothing.
    """
    withdraw(state, index)
    if index not in state.expired:
        state.at_ceiling.discard(index)
    kept = reserved_domain(state, index)
    home = choose_domain(prospects(state, market, index), *pods_of(state, index), kept)
    settle(state, index, home if home.whole or kept == NONE else Home(kept, False))
    if state.lacks(index) and index not in state.expired:
        key = same_key(state, index)
        offers = in_tiers(market.offers(index, (key,)))
        acquire_inside(state, index, [*offers])
        if state.lacks(index) and index in state.at_ceiling:
            state.expired.add(index)
            serve_gang(state, market, index)
    state.forgo(index)


def settle(state: State, index: int, home: Home) -> None:
    """Count the gang's pods on its cluster's machines in one domain: first on those that were its
    own before.
    """
    if home.domain != NONE:
        label = state.columns.label(same_key(state, index))
        state.homes[index] = label.values[home.domain]
        count_at_home(state, index)


def count_at_home(state: State, index: int, *, in_service_only: bool = False) -> None:
    """Give places to what is left of the gang on its cluster's machines in its domain; if
    `in_service_only`, on those that were its own before and take pods.
    """
    label = state.columns.label(same_key(state, index))
    if index not in state.homes:
        return
    book = state.book_of(index)
    inside = label.codes[book.flavour] == label.values.index(state.homes[index])
    there = _counted(state, index) & inside
    own = state.fleet.wanted_by[book.rows] == index
    if in_service_only:
        there &= own & (state.fleet.state[book.rows] == MachineState.CONFIGURED)
    machines = [*np.flatnonzero(there & own).tolist(), *np.flatnonzero(there & ~own).tolist()]
    first_fit(state, index, machines)


def first_fit(state: State, index: int, machines: Sequence[int]) -> None:
    """Give places to what is left of a need on the first of its cluster's `machines` with room."""
    book, its, classes = state.book_of(index), state.classes.of(index), state.classes
    got = Counter[int]()
    for machine, _, pods in book.entries_of(its):
        got[machine] += pods
    for klass in range(its.start, its.stop):
        most = int(classes.most[klass])
        for machine in machines:
            room = fitting(book.free[machine], classes.sizes[klass])
            pods = min(room, int(state.left[klass]), most - got[machine])
            if pods > 0:
                got[machine] += pods
                book.put(machine, klass, pods)
                state.left[klass] -= pods


def acquire_inside(state: State, index: int, offers: Sequence[Eligible]) -> None:
    """Acquire machines in the gang's domain for what it lacks."""
    rows = take_inside(state, index, offers)
    state.acquired.setdefault(index, []).extend(rows.tolist())


def take_inside(state: State, index: int, offers: Sequence[Eligible]) -> Rows:
    """Choose machines of `offers` that are in the gang's domain, and give them to it."""
    name = state.homes.get(index)
    label = state.columns.label(same_key(state, index))
    if name is None:
        return np.empty(0, np.intp)
    code = label.values.index(name)
    inside = [
        (offer, eligible & (offer.codes[offer.domain, 0] == code)) for offer, eligible in offers
    ]
    basket = choose_from(state, index, np.empty(0, np.int64), inside)
    order(state, index, basket)
    return basket.rows.astype(np.intp)


def withdraw(state: State, index: int) -> None:
    """Undo what was counted and acquired for a gang."""
    state.book_of(index).clear_need(state.classes.of(index))
    state.give_back(index, state.acquired.pop(index, []))
    state.homes.pop(index, None)


def same_key(state: State, index: int) -> str:
    """The topology key of a gang's domain."""
    return str(state.candidacy(index).profile.same_key)


def reserved_domain(state: State, index: int) -> int:
    """The code of the domain that is reserved for a gang, or NONE."""
    reservation = state.reserved.get(index)
    names = state.columns.label(same_key(state, index)).values
    if reservation is None or reservation.domain not in names:
        return NONE
    return names.index(reservation.domain)


def prospects(
    state: State, market: Market, index: int, further: Sequence[tuple[Eligible, int]] = ()
) -> Prospects:
    """What a gang can have: its cluster's machines, those that it can acquire unless it lets others
    go first, and `further` offers with their source.
    """
    book = state.book_of(index)
    codes = state.columns.label(same_key(state, index)).codes
    mine = np.flatnonzero(_counted(state, index))
    own = state.fleet.wanted_by[book.rows[mine]] == index
    mine = np.concatenate((mine[own], mine[~own]))
    first = int(own.sum())
    parts = [
        Prospects(
            codes[book.flavour[at]], np.full(len(at), way, np.uint8), book.free[at], at * 0 + 1
        )
        for at, way in ((mine[:first], OWN), (mine[first:], CLUSTERS))
    ]
    offers = list(further)
    if index not in state.expired:
        found = in_tiers(market.offers(index, (same_key(state, index),)))
        offers = [*((each, ACQUIRABLE) for each in found), *offers]
    pods = int(state.left[state.classes.of(index)].sum())
    for (offer, eligible), way in offers:
        free = _free(offer, eligible, state.stock(index), index)
        parts.append(_alike(offer, way, free, pods))
    return Prospects(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@kernel
def _free(offer: Offer, eligible: Flags, stock: Stock, index: int) -> Longs:
    """How many machines of each eligible group of the offer need `index` may still have."""
    free = np.zeros(eligible.shape[0], np.int64)
    for group in range(eligible.shape[0]):
        if not eligible[group]:
            continue
        for at in range(offer.starts[group], offer.starts[group + 1]):
            row = offer.rows[at]
            keeper = stock.kept_for[row]
            kept = keeper != NONE and keeper != index
            if stock.unavailable[row]:
                continue
            if not kept or stock.priorities[keeper] < stock.priorities[index]:
                free[group] += 1
    return free


def _alike(offer: Offer, way: int, free: Longs, pods: int) -> Prospects:
    """So many equal machines of each group, of which a gang of `pods` could use no more than it
    has pods: the first of a group stands for those beyond.
    """
    number = np.minimum(free, pods)
    group = np.repeat(np.arange(len(free)), number)
    stands_for = np.ones(len(group), np.int64)
    some = number > 0
    stands_for[(np.cumsum(number) - number)[some]] += (free - number)[some]
    return Prospects(
        offer.codes[offer.domain[group], 0],
        np.full(len(group), way, np.uint8),
        offer.capacity[group],
        stands_for,
    )


def _counted(state: State, index: int) -> Flags:
    """The machines of its cluster that a gang may use."""
    book = state.book_of(index)
    accepted = state.candidacy(index).accepted[book.flavour]
    return accepted & book.present(int(state.priorities[index]))


def pods_of(state: State, index: int) -> tuple[Longs, Longs, int]:
    """Sizes and numbers of the gang's pods without a place, and how many a machine takes."""
    its = state.classes.of(index)
    left = state.left[its]
    return state.classes.sizes[its][left > 0], left[left > 0], int(state.classes.most[its.start])
