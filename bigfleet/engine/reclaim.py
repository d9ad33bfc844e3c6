"""Phase 3: machines nobody counts go back, the dearest first."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.desk import Desk
from bigfleet.engine.snapshot import NONE, Flags, Fleet, Rows
from bigfleet.model.machine import MachineState


def surplus(desk: Desk) -> Flags:
    """CONFIGURED machines that no need counts, where that is known and somebody can be told."""
    fleet, demand = desk.fleet, desk.demand
    open_ = np.isin(fleet.cluster, sorted(demand.reported - demand.unreachable))
    unclaimed = desk.supply.claimed_by == NONE
    found: Flags = (fleet.state == MachineState.CONFIGURED) & open_ & unclaimed
    return found


def held_long_enough(desk: Desk) -> Flags:
    """Machines whose reclaim hold is over.

    Demand comes and goes pod by pod, and what is surplus in one cycle is often wanted in the next.
    """
    unused_seconds = desk.now_seconds - desk.fleet.unused_since_seconds
    over: Flags = unused_seconds >= desk.settings.reclaim_hold_seconds
    return over


def left_behind(desk: Desk, spare: Flags) -> Flags:
    """Which of the machines `spare` a gang was served by before it became whole elsewhere.

    Its members there hold the others to the old domain, which has no room for them: until they are
    evicted, too, the gang hangs between two domains while its need counts as met.
    """
    fleet = desk.fleet
    left = np.zeros(len(fleet), np.bool_)
    rows = np.flatnonzero(spare & (fleet.wanted_by != NONE))
    for index in np.unique(fleet.wanted_by[rows]).tolist():
        if index in desk.homes and _at_work(desk, index):
            label = desk.columns.label(str(desk.demand.needs[index].profile.same_key))
            its = rows[fleet.wanted_by[rows] == index]
            here = label.codes[fleet.flavour[its]] == label.values.index(desk.homes[index])
            left[its[~here]] = True
    return left


def _at_work(desk: Desk, index: int) -> bool:
    """Whether the need lacks nothing and all its machines can take pods."""
    states = desk.fleet.state[desk.supply.held(index)]
    return not desk.lacks(index) and bool((states == MachineState.CONFIGURED).all())


def releases(desk: Desk) -> Rows:
    """Elastic machines to be given back to their seller, in release order: those idle and unwanted
    for longer than their hold, and failed ones. One that has been idle for an unknown time stays.
    """
    fleet = desk.fleet
    holds = [
        desk.settings.idle_hold_seconds.get(flavour.capacity_type, np.inf)
        if flavour.capacity_type.elastic
        else np.inf
        for flavour in fleet.flavours
    ]
    elastic = np.array([f.capacity_type.elastic for f in fleet.flavours], np.bool_)
    overdue = desk.now_seconds - fleet.unused_since_seconds > np.array(holds)[fleet.flavour]
    idle = (fleet.state == MachineState.IDLE) & (desk.supply.claimed_by == NONE) & overdue
    failed = (fleet.state == MachineState.FAILED) & elastic[fleet.flavour]
    return release_order(fleet, idle | failed)


def release_order(fleet: Fleet, wanted: Flags) -> Rows:
    """Dearest first, then the lower reclamation penalty, then tie_break."""
    rows = np.flatnonzero(wanted)
    price = np.array([flavour.price_per_hour for flavour in fleet.flavours])[fleet.flavour[rows]]
    return rows[np.lexsort((fleet.tie_break[rows], fleet.reclamation_bucket[rows], -price))]
