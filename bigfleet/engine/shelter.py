"""Which surplus machines stay because members of a gang may live on them.

The scheduler puts a gang's pods on any machine of its domain, not on those that are counted for it.
When such a machine is emptied, the gang's other pods hold its evicted members to the domain, and
they must find room there. So, in each domain where a cluster's gang is at home, a surplus machine
goes only while the surplus that stays, and what is to spare on the gang's own machines, has room
for all that may live on it. That keeps at most about one machine per domain, and only for a gang
that is there; with the gang gone, the whole domain goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from bigfleet.engine.desk import Desk
from bigfleet.engine.normalise import home_key
from bigfleet.engine.reclaim import release_order
from bigfleet.engine.snapshot import NONE, Flags, Longs, Rows
from bigfleet.engine.wishes import Wish
from bigfleet.model.machine import BOUND, MachineState


def sheltered(desk: Desk, spare: Flags, going: Flags) -> Flags:
    """Which of the machines `spare` must stay, of which those `going` would be reclaimed."""
    stay = np.zeros(len(desk.fleet), np.bool_)
    rows = release_order(desk.fleet, spare & going)
    if not len(rows):
        return stay
    # What is not due yet stays for now, so it counts as room for all the others.
    rows = np.concatenate((rows, release_order(desk.fleet, spare & ~going)))
    cluster = desk.fleet.cluster[rows]
    by_cluster = {int(number): rows[cluster == number] for number in np.unique(cluster)}
    for index, held in _gangs_at_home(desk, by_cluster.keys()):
        wish = desk.wishes.of(index)
        assert wish is not None, "a need that asks for nothing holds nothing"
        stay[_needed_room(desk, wish, held, by_cluster[wish.cluster])] = True
    return stay


def _gangs_at_home(desk: Desk, clusters: Collection[int]) -> Iterator[tuple[int, Rows]]:
    """Gangs of these clusters, folded or not, and the machines of their cluster that they hold."""
    fleet, claimed_by = desk.fleet, desk.supply.claimed_by
    in_service = np.isin(fleet.state, [int(state) for state in BOUND - {MachineState.DRAINING}])
    rows = np.flatnonzero(in_service & (claimed_by != NONE))
    rows = rows[np.argsort(claimed_by[rows], kind="stable")]
    holders = claimed_by[rows]
    for index in np.unique(holders).tolist():
        cluster = int(desk.demand.cluster[index])
        if cluster in clusters and home_key(desk.demand.needs[index]) is not None:
            start, stop = np.searchsorted(holders, (index, index + 1))
            held = rows[start:stop]
            yield index, held[fleet.cluster[held] == cluster]


def _needed_room(desk: Desk, wish: Wish, held: Rows, surplus: Rows) -> Rows:
    """Of `surplus`, which is in release order, what must stay for this gang."""
    flavour = desk.fleet.flavour
    codes = desk.columns.label(str(home_key(wish.need))).codes
    usable = surplus[wish.usable[flavour[surplus]]]
    total = wish.units[flavour[held]].sum(axis=0)
    stays = [np.empty(0, np.intp)]
    for domain in np.unique(codes[flavour[held]]).tolist():
        there = usable[codes[flavour[usable]] == domain]
        if domain != NONE and len(there):
            own = wish.units[flavour[held[codes[flavour[held]] == domain]]].sum(axis=0)
            room = wish.units[flavour[there]]
            stays.append(there[_must_stay(room, own, _share(wish.want, own, total))])
    return np.concatenate(stays)


def _share(want: Longs, own: Longs, total: Longs) -> Longs:
    """How much of `want` [R] lives in a domain that has `own` of the `total` machines, rounded up.

    In Python's numbers, because the products do not fit into 64 bits.
    """
    parts = zip(want.tolist(), own.tolist(), total.tolist(), strict=True)
    shares = [min(-(-w * o // t), o) if t else 0 for w, o, t in parts]
    return np.array(shares, np.int64)


def _must_stay(room: Longs, own: Longs, living: Longs) -> Flags:
    """For machines in release order with `room` [n, R]: is what may live on it more than what
    those after it and the gang's `own` machines have free?
    """
    after = room[::-1].cumsum(axis=0)[::-1] - room
    crowded = np.minimum(room, living) > after + (own - living)
    stays: Flags = np.logical_or.reduce(crowded, axis=1)
    return stays
