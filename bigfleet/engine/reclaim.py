"""Phase 3: machines nobody counts go back, the dearest first."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Settings
from bigfleet.engine.supply import Rows
from bigfleet.model.machine import MachineState


def excess(
    fleet: Fleet, demand: Demand, claimed_by: Ints, settings: Settings, now_seconds: float
) -> Rows:
    """CONFIGURED machines that no need has counted for the whole reclaim hold, in release order.

    Demand comes and goes pod by pod, and what is surplus in one cycle is often wanted in the next.
    Only in clusters that have reported: of the others nobody knows yet what they need.
    """
    reported = np.isin(fleet.cluster, np.array(sorted(demand.reported), np.int32))
    unclaimed = (fleet.state == MachineState.CONFIGURED) & (claimed_by == NONE)
    for_long = now_seconds - fleet.unused_since_seconds >= settings.reclaim_hold_seconds
    return _release_order(fleet, unclaimed & reported & for_long)


def releases(fleet: Fleet, claimed_by: Ints, settings: Settings, now_seconds: float) -> Rows:
    """Elastic machines to be given back to their seller, in release order: those idle and unwanted
    for longer than their hold, and failed ones. One that has been idle for an unknown time stays.
    """
    holds = [
        settings.idle_hold_seconds.get(flavour.capacity_type, np.inf)
        if flavour.capacity_type.elastic
        else np.inf
        for flavour in fleet.flavours
    ]
    elastic = np.array([f.capacity_type.elastic for f in fleet.flavours], np.bool_)
    overdue = now_seconds - fleet.unused_since_seconds > np.array(holds)[fleet.flavour]
    idle = (fleet.state == MachineState.IDLE) & (claimed_by == NONE) & overdue
    failed = (fleet.state == MachineState.FAILED) & elastic[fleet.flavour]
    return _release_order(fleet, idle | failed)


def _release_order(fleet: Fleet, wanted: Flags) -> Rows:
    """Dearest first, then the lower reclamation penalty, then tie_break."""
    rows = np.flatnonzero(wanted)
    price = np.array([flavour.price_per_hour for flavour in fleet.flavours])[fleet.flavour[rows]]
    return rows[np.lexsort((fleet.tie_break[rows], fleet.reclamation_bucket[rows], -price))]
