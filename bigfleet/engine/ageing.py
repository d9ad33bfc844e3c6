"""What is handed to the next decision: who is short and for how long, and what is kept for whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfleet.engine.carry import Carry, Reservation, Shortage
from bigfleet.engine.decision import Shortfall
from bigfleet.engine.desk import Desk
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState


def shortfalls(desk: Desk, carry: Carry) -> tuple[Sequence[Shortfall], tuple[Shortage, ...]]:
    """What each need lacks, in the demand's order, and the same for the next decision."""
    before = {shortage.need: shortage for shortage in carry.shortages}
    found: list[Shortfall] = []
    shortages: list[Shortage] = []
    for index in sorted(index for index in desk.missing if desk.lacks(index)):
        key = desk.key(index)
        last = before.get(key, Shortage(key, 0, desk.now_seconds))
        shortage = Shortage(key, last.cycles + 1, last.since_seconds)
        shortages.append(shortage)
        deficit = _deficit(desk, index)
        found.append(Shortfall(index, deficit, shortage.cycles, shortage.since_seconds))
    return found, tuple(shortages)


def _deficit(desk: Desk, index: int) -> dict[str, int]:
    wish = desk.wishes.of(index)
    assert wish is not None, "a need that asks for nothing lacks nothing"
    missing = desk.missing[index].tolist()
    return {name: amount for name, amount in zip(wish.resources, missing, strict=True) if amount}


def reservations(desk: Desk) -> tuple[Reservation, ...]:
    """For whom machines are kept until they have all of theirs.

    A gang that has a domain for all of it, until all its machines are in service; another need,
    until no machine is drained for it any more.
    """
    kept = []
    for index in _waiting(desk):
        domain = ""
        if desk.demand.needs[index].profile.same_key is not None:
            if desk.lacks(index):
                continue
            domain = desk.homes[index]
        before = desk.reserved.get(index)
        goes_on = before is not None and before.domain == domain
        since = before.since_seconds if before and goes_on else desk.now_seconds
        kept.append(Reservation(desk.key(index), domain, since))
    return tuple(kept)


def _waiting(desk: Desk) -> list[int]:
    """Needs that hold a machine which does not serve them yet, in order."""
    fleet, claimed_by = desk.fleet, desk.supply.claimed_by
    rows = np.flatnonzero(claimed_by != NONE)
    holder = claimed_by[rows]
    at_work = (fleet.state[rows] == MachineState.CONFIGURED) & (
        fleet.cluster[rows] == desk.demand.cluster[holder]
    )
    is_gang = np.array([n.profile.same_key is not None for n in desk.demand.needs], np.bool_)
    drained = np.isin(fleet.state[rows], (int(MachineState.DRAINING), int(MachineState.CONFIGURED)))
    drained |= desk.supply.kept_for[rows] == holder
    waits = ~at_work & (drained | is_gang[holder])
    return [int(index) for index in np.unique(holder[waits])]
