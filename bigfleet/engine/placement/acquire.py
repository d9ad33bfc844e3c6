"""Acquisition of machines that belong to no cluster, idle ones before speculative ones."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.placement.free_pools import FreePools
from bigfleet.engine.placement.growth import expected_pods, parts_by_machine
from bigfleet.engine.placement.selection import Selection, choose_machines
from bigfleet.engine.snapshot import Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.labels import HOSTNAME_LABEL


def acquire(state: CycleState, free_pools: FreePools, index: int, others: Longs) -> None:
    """Acquire machines for the unplaced pods of need `index`, and place them there.

    Remaining capacity is offered to the pending pods of `others`, classes of the same cluster, but
    not that of an additional need's machines.
    """
    keys = preferred_keys(state, index)
    pools = free_pools.pools(index, keys)
    expected = None
    if state.needs.additional[index]:
        # It is for one pod, or a few, whose cluster is full: more are about to come.
        expected = expected_pods(state, index, parts_by_machine(state, index))
    selection = choose_machines(state, index, others, pools, keys=keys, expected=expected)
    order(state, index, selection)
    state.acquired.setdefault(index, []).extend(selection.rows.tolist())


def preferred_keys(state: CycleState, index: int) -> tuple[str, ...]:
    """The topology key of the need's first soft spread term, if any."""
    preferred = (term.topology_key for term in state.flavour_fit(index).preferred)
    return tuple(key for key in preferred if key != HOSTNAME_LABEL)[:1]


def order(state: CycleState, index: int, selection: Selection) -> None:
    """Order the machines of `selection` for the need, and place their pods."""
    if not len(selection.rows):
        return
    begin = order_machines(state, index, selection.rows)
    at, place = np.nonzero(selection.pods)
    pod_class, pods = selection.classes[place], selection.pods[at, place]
    state.packing_of(index).record_placements(begin + at, pod_class, pods)
    np.subtract.at(state.left, pod_class, pods)


def order_machines(state: CycleState, index: int, rows: Rows) -> int:
    """Order machines for the need; returns the place of the first in its cluster's packing."""
    packing, priority, fleet = state.packing_of(index), int(state.priorities[index]), state.fleet
    begin = len(packing)
    if len(rows):
        packing.add(rows, fleet.flavour[rows], fleet.last_claimed_by[rows], priority, index)
        state.record_order(index, rows.astype(np.intp))
    return begin
