"""The table on which one decision is made: what came in, worked out, and what is decided so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.carry import Carry, Reservation
from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.picking import uncovered
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Longs, Rows, Settings
from bigfleet.engine.supply import Supply
from bigfleet.engine.wishes import Wish, Wishes
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey

_KEEPABLE = (MachineState.IDLE, MachineState.SPECULATIVE)


class Taken(NamedTuple):
    """Rows that a need takes from others: `gentle` ones nobody counts, or they drain already; the
    others are counted by a need whose priority is `gap` lower.
    """

    rows: Rows
    gentle: Flags
    gap: Longs


class Desk:
    """By need: `missing` [R] is what each lacks that was served by itself, `acquired` and `taken`
    are the rows that it ordered, `homes` the domains of gangs, `reserved` the reservations in
    force. Needs in `expired` acquire and take nothing, so that others can have what was kept for
    them.
    """

    def __init__(
        self, fleet: Fleet, demand: Demand, carry: Carry, settings: Settings, now_seconds: float
    ) -> None:
        self.fleet, self.demand, self.settings = fleet, demand, settings
        self.now_seconds = now_seconds
        self.columns = FlavourColumns(fleet.flavours)
        self.wishes = Wishes(demand, self.columns)
        self.priorities: Longs = np.array([n.profile.priority for n in demand.needs], np.int64)
        self.reserved: dict[int, Reservation] = {}
        self.expired: set[int] = set()
        self._take_up(carry)
        self.supply = Supply(fleet, self.columns, self._kept_for(), self.priorities, demand.cluster)
        self.acquired: dict[int, Rows] = {}
        self.taken: dict[int, Taken] = {}
        self.missing: dict[int, Longs] = {}
        self.homes: dict[int, str] = {}

    def key(self, index: int) -> NeedKey:
        """The identity of need `index`."""
        return key_of(self.fleet, self.demand, index)

    def lacks(self, index: int) -> bool:
        """Whether the need had its turn and still lacks something; never before it."""
        missing = self.missing.get(index)
        return missing is not None and bool(missing.any())

    def recount(self, wish: Wish) -> None:
        """Note anew what the need lacks, after machines came or went."""
        flavours = self.fleet.flavour[self.supply.held(wish.index)]
        self.missing[wish.index] = uncovered(wish.want, wish.units[flavours])

    def _take_up(self, carry: Carry) -> None:
        if not carry.reservations:
            return
        place = {self.key(index): index for index in range(len(self.demand.needs))}
        for reservation in carry.reservations:
            index = place.get(reservation.need, NONE)
            if index == NONE:
                continue
            age_seconds = self.now_seconds - reservation.since_seconds
            if age_seconds < self.settings.reservation_seconds:
                self.reserved[index] = reservation
            else:
                self.expired.add(index)

    def _kept_for(self) -> Ints:
        """For each row the need that it is drained or kept for, else NONE.

        What drains for a need does so however long it takes: let go, it would be missed at once,
        and another machine's pods would be evicted in its place.
        """
        fleet = self.fleet
        has_reservation = np.zeros(len(self.demand.needs) + 1, np.bool_)  # the last is for NONE
        has_reservation[[*self.reserved]] = True
        free = np.isin(fleet.state, [int(state) for state in _KEEPABLE])
        kept = fleet.state == MachineState.DRAINING
        kept |= free & has_reservation[fleet.wanted_by]
        return np.where(kept, fleet.wanted_by, np.int32(NONE))


def key_of(fleet: Fleet, demand: Demand, index: int) -> NeedKey:
    """The identity of need `index` among all clusters' needs."""
    return NeedKey(fleet.clusters[int(demand.cluster[index])], *demand.needs[index].key)
