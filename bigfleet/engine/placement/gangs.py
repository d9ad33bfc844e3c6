"""Gangs that fit on no single machine: their machines share one domain of a topology key."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np

from bigfleet.engine.kernels.candidate_pool import is_free
from bigfleet.engine.kernels.scoring import fitting
from bigfleet.engine.placement.acquire import order, order_machines
from bigfleet.engine.placement.free_pools import EligiblePool, FreePools
from bigfleet.engine.placement.gang_pools import (
    DomainChoice,
    choose_domain,
    same_key,
    usable_machines,
)
from bigfleet.engine.placement.selection import choose_machines
from bigfleet.engine.snapshot import (
    IN_SERVICE,
    NONE,
    Flags,
    Ints,
    Rows,
    in_states,
)
from bigfleet.engine.state.cycle_state import CycleState


def begin_gang(state: CycleState, free_pools: FreePools, index: int) -> bool:
    """Place the gang in the domain that can hold all of it; False if there is none.

    Machines that the domain lacks are acquired when it is the gang's turn. A gang that no domain
    can hold stays on its machines that are in service, because its pods run there, or will.
    """
    choice = choose_domain(state, free_pools, index, reserved_domain(state, index))
    place_gang(state, index, choice, in_service_only=not choice.whole)
    _drop_idle_reservation(state, index)
    return choice.whole


def serve_gang(state: CycleState, free_pools: FreePools, index: int) -> None:
    """Place a gang in the domain that is best now, and acquire the machines that it lacks there.

    A gang with a reserved domain stays there, even while it waits for preempted machines. If its
    cluster's ceiling withholds a machine that it needs, it acquires none at all.
    """
    unplace_gang(state, index)
    if index not in state.not_acquiring:
        state.at_ceiling.discard(index)
    kept = reserved_domain(state, index)
    choice = choose_domain(state, free_pools, index, kept)
    place_gang(state, index, choice if choice.whole or kept == NONE else DomainChoice(kept, False))
    if state.lacks(index) and index not in state.not_acquiring:
        key = same_key(state, index)
        pools = free_pools.pools(index, (key,))
        acquire_in_domain(state, index, pools)
        # A part of a gang is of no use: start over without acquiring.
        if state.lacks(index) and index in state.at_ceiling:
            state.not_acquiring.add(index)
            serve_gang(state, free_pools, index)
        elif state.lacks(index) and choice.whole:
            take_first_fit(state, index, choice, pools)
    _drop_idle_reservation(state, index)


def _drop_idle_reservation(state: CycleState, index: int) -> None:
    """Release the free machines reserved for a gang whose pods are all placed without them.

    The gang may have used machines on their way to another need, which would acquire as many again.
    """
    if index in state.reserved and not state.lacks(index):
        rows = state.idle_reserved
        rows = rows[(state.reserved_for[rows] == index) & ~state.unavailable[rows]]
        state.reserved_for[rows] = NONE


def place_gang(
    state: CycleState, index: int, choice: DomainChoice, *, in_service_only: bool = False
) -> None:
    """Place the gang's pods on its cluster's machines in the chosen domain, its own first; see
    `place_in_gang_domain`.
    """
    if choice.domain != NONE:
        label = state.columns.label(same_key(state, index))
        state.gang_domains[index] = label.values[choice.domain]
        place_in_gang_domain(state, index, in_service_only=in_service_only)


def place_in_gang_domain(state: CycleState, index: int, *, in_service_only: bool = False) -> None:
    """Place the gang's unplaced pods on its cluster's machines in its domain; `in_service_only`
    leaves out all but its own machines that have joined its cluster or are about to.
    """
    if index not in state.gang_domains:
        return
    packing = state.packing_of(index)
    there = usable_machines(state, index) & in_gang_domain(state, index, packing.flavour)
    own = state.fleet.last_claimed_by[packing.rows] == index
    if in_service_only:
        there &= own & in_states(state.fleet.state[packing.rows], IN_SERVICE)
    machines = [*np.flatnonzero(there & own).tolist(), *np.flatnonzero(there & ~own).tolist()]
    first_fit(state, index, machines)


def first_fit(state: CycleState, index: int, machines: Sequence[int]) -> None:
    """Place a need's unplaced pods on its cluster's `machines`, first fit."""
    packing, its, classes = state.packing_of(index), state.classes.of(index), state.classes
    got = Counter[int]()
    if (state.left[its] < classes.count[its]).any():
        for machine, _, pods in packing.placements.one_by_one(its):
            got[machine] += pods
    for pod_class in range(its.start, its.stop):
        most = int(classes.most[pod_class])
        for machine in machines:
            room = fitting(packing.free, machine, classes.sizes, pod_class)
            pods = min(room, int(state.left[pod_class]), most - got[machine])
            if pods > 0:
                got[machine] += pods
                packing.record_placement(machine, pod_class, pods)
                state.left[pod_class] -= pods


def acquire_in_domain(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> None:
    """Acquire the machines that the gang lacks in its domain."""
    rows = preempt_in_domain(state, index, pools)
    state.acquired.setdefault(index, []).extend(rows.tolist())


def preempt_in_domain(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> Rows:
    """Choose machines of `pools` in the gang's domain, and order them; returns their rows."""
    if index not in state.gang_domains:
        return np.empty(0, np.intp)
    code = _domain_code(state, index)
    inside = [(pool, eligible & (pool.codes[pool.domain, 0] == code)) for pool, eligible in pools]
    selection = choose_machines(state, index, np.empty(0, np.int64), inside)
    order(state, index, selection)
    return selection.rows.astype(np.intp)


def take_first_fit(
    state: CycleState, index: int, choice: DomainChoice, pools: Sequence[EligiblePool]
) -> Rows:
    """Start over and order machines of `pools` as `choose_domain` packs them, first fit: those
    worth most for some of the gang's pods left no room for others.

    None are ordered unless that completes the gang within its cluster's ceiling. Free machines are
    recorded as acquired; the rows of the others are returned.
    """
    unplace_gang(state, index)
    place_gang(state, index, choice)
    packing, rows = state.packing_of(index), _free_in_domain(state, index, pools)
    begin = order_machines(state, index, rows)
    first_fit(state, index, range(begin, len(packing)))
    used = packing.has_pods[begin : len(packing)].copy()
    state.give_back(index, rows[~used].tolist())
    if state.lacks(index) or (state.budgets.remaining(state.cluster_of(index)) < 0).any():
        state.give_back(index, rows[used].tolist())
        return np.empty(0, np.intp)
    acquirable = state.fleet.acquirable[rows]
    state.acquired.setdefault(index, []).extend(rows[used & acquirable].tolist())
    return rows[used & ~acquirable]


def _free_in_domain(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> Rows:
    """The machines of `pools` in the gang's domain that are free for it, of each group at most one
    for each unplaced pod.
    """
    code, availability = _domain_code(state, index), state.availability(index)
    pods = int(state.left[state.classes.of(index)].sum())
    rows: list[int] = []
    for pool, eligible in pools:
        inside = eligible & (pool.codes[pool.domain, 0] == code)
        for group in np.flatnonzero(inside).tolist():
            members = pool.rows[pool.starts[group] : pool.starts[group + 1]].tolist()
            free = (row for row in members if is_free(availability, row, index))
            rows += islice(free, pods)
    return np.array(rows, np.intp)


def unplace_gang(state: CycleState, index: int) -> None:
    """Undo a gang's placements and acquisitions."""
    state.packing_of(index).clear_need(state.classes.of(index))
    state.give_back(index, state.acquired.pop(index, []))
    state.gang_domains.pop(index, None)


def in_gang_domain(state: CycleState, index: int, flavour: Ints) -> Flags:
    """Which machines of these flavours are in the domain of a gang that has one."""
    codes = state.columns.label(same_key(state, index)).codes
    inside: Flags = codes[flavour] == _domain_code(state, index)
    return inside


def _domain_code(state: CycleState, index: int) -> int:
    values = state.columns.label(same_key(state, index)).values
    return bisect_left(values, state.gang_domains[index])


def reserved_domain(state: CycleState, index: int) -> int:
    """The code of the domain that is reserved for a gang, or NONE."""
    reservation = state.reserved.get(index)
    names = state.columns.label(same_key(state, index)).values
    if reservation is None:
        return NONE
    at = bisect_left(names, reservation.domain)
    return at if names[at : at + 1] == (reservation.domain,) else NONE
