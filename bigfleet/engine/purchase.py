"""Kernels: which machines to acquire for pods that found no place.

A machine is judged by its cost per useful unit when it is filled: with the need's own pods, largest
first, then with other pending pods of its cluster. Among those within a tolerance of the best, the
one that serves most is taken; then the cheapest, then the one in the domain with fewest pods, then
the smallest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.allowances import MACHINES, MICROS, WITHHELD
from bigfleet.engine.columns import PODS_COLUMN
from bigfleet.engine.packing import ClassColumns, fill, fitting, open_to, take, worth
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs
from bigfleet.kernels import kernel

_SLOT_WORTH = 1e-3


class Offer(NamedTuple):
    """Machines that a need may acquire or take, in G groups of equal ones.

    `rows[starts[g]:starts[g + 1]]` are those of group g, in the order in which they are taken;
    before `first[g]` none is to be had any more. Those of one group have equal `capacity` [G, R],
    `costs` and `tier` [G], and stand in one `domain` [G]: a row of `codes` [D, K], which has the
    codes of K labels.
    """

    rows: Longs
    starts: Longs
    first: Longs
    capacity: Longs
    costs: Floats
    tier: Ints
    domain: Ints
    codes: Ints


class Stock(NamedTuple):
    """What is known of the fleet's machines: flavour, whether each is taken already, and for which
    need it is kept, with the priorities of all needs; to which cluster each belongs (`homes`), the
    `cluster` that chooses, the `prices` of flavours, and the `allowance` that is left to the
    cluster, which changes.
    """

    flavour: Ints
    unavailable: Flags
    kept_for: Ints
    priorities: Longs
    homes: Ints
    cluster: int
    prices: Longs
    allowance: Longs


class Pending(NamedTuple):
    """Classes [P] that lack places, of which the first `own` are those of the need that acquires,
    in descending order of size; what a pod of each is worth; how many of the need's pods each
    domain of the offer has; and how many `more` [P] pods of each are to be expected. These are no
    reason to take a machine, only to take a larger one.
    """

    classes: Longs
    own: int
    weights: Floats
    domain_pods: Longs
    more: Longs


class Bought(NamedTuple):
    """Room for B machines: their rows, groups, what they have free [B, R] after `pods` [B, P] of
    each pending class.
    """

    rows: Longs
    group: Longs
    free: Longs
    pods: Longs


def weights_of(sizes: Longs, left: Longs) -> Floats:
    """What a pod of each class is worth: its parts of all that is asked for of each resource. Pod
    slots are hardly ever what a machine is bought for.
    """
    total = (sizes * left[:, None].astype(np.float64)).sum(axis=0)
    asked = total > 0
    parts = sizes[:, asked] / total[asked]
    parts[:, asked[:PODS_COLUMN].sum() : asked[: PODS_COLUMN + 1].sum()] *= _SLOT_WORTH
    weights: Floats = parts.sum(axis=1)
    return weights


def room_for(machines: int, sizes: Longs, classes: int) -> Bought:
    """Room for so many machines and pending classes."""
    return Bought(
        rows=np.empty(machines, np.int64),
        group=np.empty(machines, np.int64),
        free=np.empty((machines, sizes.shape[1]), np.int64),
        pods=np.zeros((machines, classes), np.int64),
    )


@kernel
def _is_allowed(stock: Stock, row: int) -> bool:
    """Whether the cluster's ceiling leaves room for the machine; what it has does not count."""
    if stock.homes[row] == stock.cluster:
        return True
    price, left = stock.prices[stock.flavour[row]], stock.allowance
    if left[MACHINES] >= 1 and left[MICROS] >= price:
        return True
    left[WITHHELD] = 1
    return False


@kernel
def _charge(stock: Stock, row: int) -> None:
    if stock.homes[row] != stock.cluster:
        stock.allowance[MACHINES] -= 1
        stock.allowance[MICROS] -= stock.prices[stock.flavour[row]]


@kernel
def may_have(stock: Stock, row: int, need: int) -> bool:
    """Whether the need may have the machine: it is not taken, nor kept for somebody else of at
    least its priority, nor withheld by a ceiling.
    """
    keeper = stock.kept_for[row]
    if stock.unavailable[row]:
        return False
    if keeper not in (NONE, need) and stock.priorities[keeper] >= stock.priorities[need]:
        return False
    return _is_allowed(stock, row)


@kernel
def _heads(offer: Offer, eligible: Flags, stock: Stock, need: int) -> Longs:
    """For each group the place in `rows` of the first machine that the need may have, else -1."""
    groups = offer.starts.shape[0] - 1
    heads = np.full(groups, -1)
    for group in range(groups):
        stop = offer.starts[group + 1]
        if not eligible[group]:
            continue
        while offer.first[group] < stop and stock.unavailable[offer.rows[offer.first[group]]]:
            offer.first[group] += 1
        for place in range(offer.first[group], stop):
            if may_have(stock, offer.rows[place], need):
                heads[group] = place
                break
    return heads


@kernel
def _lead(offer: Offer, heads: Longs, classes: ClassColumns, left: Longs, pending: Pending) -> int:
    """The need's first class that some machine could hold; -1 for none."""
    for place in range(pending.own):
        klass = pending.classes[place]
        if left[klass] > 0:
            for group in range(heads.shape[0]):
                if heads[group] >= 0 and fitting(offer.capacity[group], classes.sizes[klass]) > 0:
                    return int(klass)
    return -1


@kernel
def _choose(
    offer: Offer,
    heads: Longs,
    stock: Stock,
    classes: ClassColumns,
    left: Longs,
    pending: Pending,
    tolerance: float,
) -> int:
    """The group whose first machine to take next; -1 for none."""
    lead = _lead(offer, heads, classes, left, pending)
    if lead < 0:
        return -1
    groups = heads.shape[0]
    use, rate = np.zeros(groups), np.full(groups, np.inf)
    pods = np.zeros(pending.classes.shape[0], np.int64)
    lowest = np.inf
    left[pending.classes] += pending.more
    for group in range(groups):
        if heads[group] >= 0 and fitting(offer.capacity[group], classes.sizes[lead]) > 0:
            flavour = stock.flavour[offer.rows[heads[group]]]
            fill(offer.capacity[group].copy(), flavour, classes, left, pending.classes, pods)
            use[group] = worth(pods, pending.weights)
            rate[group] = offer.costs[group] / use[group]
            lowest = min(lowest, rate[group])
    left[pending.classes] -= pending.more
    best = -1
    for group in range(groups):
        is_cheap = rate[group] < np.inf and rate[group] <= lowest * (1 + tolerance)
        if is_cheap and (best < 0 or _better(offer, pending, use, group, best)):
            best = group
    return best


@kernel
def _better(offer: Offer, pending: Pending, use: Floats, one: int, other: int) -> bool:
    if use[one] != use[other]:
        return bool(use[one] > use[other])
    if offer.costs[one] != offer.costs[other]:
        return bool(offer.costs[one] < offer.costs[other])
    mine, others = (
        pending.domain_pods[offer.domain[one]],
        pending.domain_pods[offer.domain[other]],
    )
    if mine != others:
        return bool(mine < others)
    return bool(offer.capacity[one].sum() < offer.capacity[other].sum())


@kernel
def purchase(
    offer: Offer,
    eligible: Flags,
    stock: Stock,
    need: int,
    classes: ClassColumns,
    left: Longs,
    pending: Pending,
    tolerance: float,
    bought: Bought,
) -> int:
    """Take machines of the `eligible` groups until the need's classes have places or none holds any
    of them, at most as many as `bought` has room for. Returns how many; `left` changes.
    """
    count = 0
    while count < bought.rows.shape[0]:
        heads = _heads(offer, eligible, stock, need)
        group = _choose(offer, heads, stock, classes, left, pending, tolerance)
        if group < 0:
            break
        row = offer.rows[heads[group]]
        bought.free[count] = offer.capacity[group]
        pods = bought.pods[count]
        fill(bought.free[count], stock.flavour[row], classes, left, pending.classes, pods)
        for place in range(pods.shape[0]):
            left[pending.classes[place]] -= pods[place]
            if place < pending.own:
                pending.domain_pods[offer.domain[group]] += pods[place]
        stock.unavailable[row] = True
        _charge(stock, row)
        bought.rows[count], bought.group[count] = row, group
        count += 1
    return count


@kernel
def _relocate(
    one: int, stock: Stock, classes: ClassColumns, pending: Longs, bought: Bought, dropped: Flags
) -> bool:
    """Move all pods of one machine to the others, first fit; whether that can be done. If not,
    nothing has changed.
    """
    free, pods = bought.free.copy(), bought.pods.copy()
    for place in range(pending.shape[0]):
        klass = pending[place]
        size, rest = classes.sizes[klass], pods[one, place]
        for other in range(bought.rows.shape[0]):
            if rest == 0:
                break
            flavour = stock.flavour[bought.rows[other]]
            accepted = classes.accepted[classes.candidacy[klass], flavour]
            if other != one and not dropped[other] and accepted:
                room = open_to(classes, pending, pods[other], klass)
                some = min(rest, room, fitting(free[other], size))
                rest -= some
                pods[other, place] += some
                take(free[other], size, some)
        if rest > 0:
            return False
        pods[one, place] = 0
    bought.free[:], bought.pods[:] = free, pods
    return True


@kernel
def superfluous(
    order: Longs, stock: Stock, classes: ClassColumns, pending: Longs, bought: Bought
) -> Flags:
    """Which of the machines the others make useless, looked at in `order`.

    A late, large machine can make an early, small one useless; keeping it would only have it given
    back as soon as it is there.
    """
    dropped = np.zeros(bought.rows.shape[0], np.bool_)
    for one in order:
        if _relocate(one, stock, classes, pending, bought, dropped):
            dropped[one] = True
    return dropped
