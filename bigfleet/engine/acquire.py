"""Which machines without a cluster a need acquires: idle ones before speculative ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.allowances import WITHHELD
from bigfleet.engine.cost import TIERS
from bigfleet.engine.packing import NO_LIMIT
from bigfleet.engine.pods import Candidacy
from bigfleet.engine.purchase import (
    Bought,
    Offer,
    Pending,
    Stock,
    purchase,
    room_for,
    superfluous,
    weights_of,
)
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs, Rows
from bigfleet.engine.state import State
from bigfleet.model.machine import MachineState
from bigfleet.model.need import HOSTNAME_LABEL

ACQUIRABLE = (MachineState.IDLE, MachineState.SPECULATIVE)  # in this order
# A purchase is worked out in parts, so that it needs no arrays for all of it at once.
_MACHINES_AT_ONCE = 1024
# Beyond so many machines, what the last one makes superfluous is a small part of all.
_MACHINES_LOOKED_AT = 256


class Market:
    """The machines without a cluster, as needs see them; remembered for one decision."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._free = {each: self._free_rows(each) for each in ACQUIRABLE}
        self._offers: dict[tuple[MachineState, int, int, tuple[str, ...]], Offer] = {}

    def offers(self, index: int, keys: tuple[str, ...] = ()) -> list[Offer]:
        """What need `index` may acquire, idle machines and then speculative ones. Those with
        different values of the labels `keys` are in different domains.
        """
        state = self._state
        candidacy = state.candidacy(index)
        number = state.capacities.number(state.cluster_of(index))
        found = []
        for machines in ACQUIRABLE:
            key = machines, candidacy.number, number, keys
            if key not in self._offers:
                capacity_of = state.capacities.matrix(number)
                self._offers[key] = offer_of(
                    state, self._free[machines], candidacy, capacity_of, keys
                )
            found.append(self._offers[key])
        return found

    def _free_rows(self, machines: MachineState) -> Rows:
        """The higher reclamation penalty first: it is worth most to those who had it."""
        fleet = self._state.fleet
        rows = np.flatnonzero(fleet.state == machines)
        penalty = -fleet.reclamation_bucket[rows].astype(np.int64)
        return rows[np.lexsort((fleet.tie_break[rows], penalty))]


def offer_of(
    state: State,
    rows: Rows,
    candidacy: Candidacy,
    capacity_of: Longs,
    keys: tuple[str, ...] = (),
) -> Offer:
    """`rows`, which are in the order in which they are to be taken, as an offer to a need."""
    flavour = state.fleet.flavour
    rows = rows[candidacy.accepted[flavour[rows]]]
    flavours = np.unique(flavour[rows])
    columns = [state.columns.label(key).codes[flavours] for key in keys]
    codes, domain = _numbered(np.stack(columns, axis=1) if columns else flavours[:, None] * 0)
    # A finite price stands in for an infinite cost: within their tier, all are as bad otherwise.
    costs = np.where(np.isinf(candidacy.costs), state.columns.price, candidacy.costs)
    properties = (capacity_of[flavours], costs[flavours], candidacy.tier[flavours], domain)
    _, group = _numbered(np.column_stack(properties).astype(np.float64))
    of_flavour = np.full(len(state.columns), NONE, np.int64)
    of_flavour[flavours] = group
    groups = of_flavour[flavour[rows]]
    order = np.argsort(groups, kind="stable")
    number = int(group.max(initial=NONE)) + 1
    starts = np.searchsorted(groups[order], np.arange(number + 1)).astype(np.int64)
    first = np.empty(number, np.int64)
    first[group[::-1]] = np.arange(len(flavours))[::-1]
    like = flavours[first]
    return Offer(
        rows=rows[order].astype(np.int64),
        starts=starts,
        first=starts[:-1].copy(),
        capacity=capacity_of[like],
        costs=costs[like],
        tier=candidacy.tier[like],
        domain=domain[first],
        codes=codes,
    )


def _numbered(rows: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """The distinct `rows` in ascending order, and for each its number among them."""
    distinct, numbers = np.unique(rows, axis=0, return_inverse=True)
    return distinct, numbers.reshape(-1).astype(np.int32)


# An offer, and which of its groups come into question.
Eligible = tuple[Offer, Flags]


@dataclass(frozen=True)
class Basket:
    """Machines `rows` [B] that were chosen for a need: from which of the offers each is, how many
    pods it takes of each of the `classes` [P] that were waiting (`pods` [B, P]), and its cost.
    """

    rows: Longs
    source: Ints
    pods: Longs
    costs: Floats
    classes: Longs = field(default_factory=lambda: np.empty(0, np.int64))


def acquire(state: State, market: Market, index: int, others: Longs) -> None:
    """Acquire machines for what need `index` has no places for, and count its pods on them.

    What its machines have left goes to `others`, classes of its cluster that wait as well.
    """
    keys = preferred_keys(state, index)
    offers = in_tiers(market.offers(index, keys))
    basket = choose_from(state, index, others, offers, keys=keys)
    order(state, index, basket)
    state.acquired.setdefault(index, []).extend(basket.rows.tolist())


def preferred_keys(state: State, index: int) -> tuple[str, ...]:
    """The first topology key over which the need would like to spread, if any."""
    preferred = (term.topology_key for term in state.candidacy(index).preferred)
    return tuple(key for key in preferred if key != HOSTNAME_LABEL)[:1]


def in_tiers(offers: Iterable[Offer]) -> Iterator[Eligible]:
    """Offers by tier, and in each tier in the order given."""
    offers = list(offers)
    for tier in range(TIERS):
        for offer in offers:
            eligible = offer.tier == tier
            if eligible.any():
                yield offer, eligible


def choose_from(
    state: State,
    index: int,
    others: Longs,
    offers: Iterable[Eligible],
    *,
    keys: tuple[str, ...] = (),
    pods_at_most: int = NO_LIMIT,
    machines_at_most: int = NO_LIMIT,
) -> Basket:
    """Choose machines from `offers`, one offer after the other, until so many pods of the need have
    places. Those chosen are no longer available; `state.left` is what it was. Of machines that are
    as good, those come first in whose domain of the labels `keys` the need has fewer pods.
    """
    left, stock = state.left.copy(), state.stock(index)
    classes = _pending(state, index, others, left, pods_at_most)
    own = int((state.classes.need[classes] == index).sum())
    more = _expected(state, classes) if machines_at_most == NO_LIMIT else np.zeros_like(classes)
    weights = weights_of(state.classes.sizes[classes], left[classes])
    parts: list[Basket] = []
    used: list[Offer] = []
    for number, eligible in enumerate(offers):
        if not left[classes[:own]].any() or (parts and machines_at_most < NO_LIMIT):
            break
        offer = eligible[0]
        used.append(offer)
        pending = Pending(classes, own, weights, _pods_by_domain(state, index, offer, keys), more)
        for bought, count in _purchases(
            state, stock, index, eligible, left, pending, machines_at_most
        ):
            costs = offer.costs[bought.group[:count]]
            source = np.full(count, number, np.int32)
            parts.append(Basket(bought.rows[:count], source, bought.pods[:count], costs))
    if stock.allowance[WITHHELD] and left[classes[:own]].any():
        state.at_ceiling.add(index)
    basket = _without_superfluous(state, stock, classes, parts)
    for offer in used:
        offer.first[:] = offer.starts[:-1]  # what was chosen in vain is there again
    return basket


def _purchases(
    state: State,
    stock: Stock,
    index: int,
    eligible: Eligible,
    left: Longs,
    pending: Pending,
    machines_at_most: int,
) -> Iterator[tuple[Bought, int]]:
    """What is chosen from one offer, with how many machines that is."""
    offer, groups = eligible
    columns = state.classes.columns
    tolerance = state.settings.price_tolerance
    count = _MACHINES_AT_ONCE
    while count == _MACHINES_AT_ONCE:
        most = min(_MACHINES_AT_ONCE, machines_at_most)
        bought = room_for(most, columns.sizes, len(pending.classes))
        count = purchase(offer, groups, stock, index, columns, left, pending, tolerance, bought)
        if count:
            yield bought, count


def _expected(state: State, classes: Longs) -> Longs:
    """How many more pods of each class are to be expected."""
    growth: Longs = np.floor(state.classes.count[classes] * state.settings.growth + 1e-9).astype(
        np.int64
    )
    return growth


def _pending(state: State, index: int, others: Longs, left: Longs, pods_at_most: int) -> Longs:
    """The classes to choose machines for: the need's, of which no more than so many pods are left
    in `left`, and those of `others` that lack places.
    """
    its = state.classes.of(index)
    own = np.arange(its.start, its.stop, dtype=np.int64)
    left[own] = np.diff(np.minimum(left[own].cumsum(), pods_at_most), prepend=0)
    further = others[(left[others] > 0) & (state.classes.need[others] != index)]
    return np.concatenate((own[left[own] > 0], further))


def order(state: State, index: int, basket: Basket, *, counted: bool = True) -> None:
    """Give the machines of `basket` to the need's cluster, with the pods that they take unless
    those are `counted` otherwise.
    """
    rows = basket.rows
    if not len(rows):
        return
    book, priority = state.book_of(index), int(state.priorities[index])
    begin = len(book)
    fleet = state.fleet
    book.add(rows, fleet.flavour[rows], fleet.wanted_by[rows], priority, index)
    for at, place in zip(*np.nonzero(basket.pods), strict=True) if counted else ():
        klass, pods = int(basket.classes[place]), int(basket.pods[at, place])
        book.put(begin + int(at), klass, pods)
        state.left[klass] -= pods
    state.unavailable[rows] = True
    state.ordered_by[rows] = index
    state.allowances.order(state.cluster_of(index), rows)


def _pods_by_domain(state: State, index: int, offer: Offer, keys: tuple[str, ...]) -> Longs:
    """How many pods of the need are counted in each domain of the offer already."""
    pods = np.zeros(len(offer.codes), np.int64)
    if not keys:
        return pods
    book = state.book_of(index)
    codes = np.stack([state.columns.label(key).codes for key in keys], axis=1)
    for machine, _, number in book.entries_of(state.classes.of(index)):
        pods[(offer.codes == codes[book.flavour[machine]]).all(axis=1)] += number
    return pods


def _without_superfluous(state: State, stock: Stock, classes: Longs, parts: list[Basket]) -> Basket:
    none = Basket(
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        np.empty((0, len(classes)), np.int64),
        np.empty(0),
    )
    parts = parts or [none]
    rows, source = (np.concatenate([getattr(p, n) for p in parts]) for n in ("rows", "source"))
    pods, costs = (np.concatenate([getattr(p, n) for p in parts]) for n in ("pods", "costs"))
    kept = np.ones(len(rows), np.bool_)
    if 1 < len(rows) <= _MACHINES_LOOKED_AT:
        columns = state.classes.columns
        cluster = int(state.demand.cluster[columns.need[classes[0]]])
        capacity = state.capacities.of(cluster)[stock.flavour[rows]]
        free = capacity - pods @ columns.sizes[classes]
        # From the last source to the first, in each the dearest first, of equals the last chosen.
        looked_at = np.lexsort((-np.arange(len(rows)), -costs, -source)).astype(np.int64)
        bought = Bought(rows, np.zeros(len(rows), np.int64), free, pods)
        kept = ~superfluous(looked_at, stock, columns, classes, bought)
        state.unavailable[rows[~kept]] = False
    return Basket(rows[kept], source[kept], pods[kept], costs[kept], classes)
