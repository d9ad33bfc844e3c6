"""Gangs that fit on no single machine: their machines share one domain of a topology key."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bigfleet.engine.kernels.scoring import fitting
from bigfleet.engine.kernels.selection import CandidatePool, count_free
from bigfleet.engine.placement.acquire import (
    EligiblePool,
    FreePools,
    choose_machines,
    order,
)
from bigfleet.engine.placement.gang_domains import (
    SOURCE_ACQUIRABLE,
    SOURCE_CLUSTER,
    SOURCE_OWN,
    DomainChoice,
    GangCandidates,
    GangPods,
    choose_domain,
    domains_with_room,
)
from bigfleet.engine.snapshot import (
    IN_SERVICE,
    NONE,
    Flags,
    Ints,
    Longs,
    Rows,
    flags_of,
    in_states,
)
from bigfleet.engine.state.cycle_state import CycleState


def begin_gang(state: CycleState, free_pools: FreePools, index: int) -> bool:
    """Place the gang in the domain that can hold all of it; False if there is none.

    Machines that the domain lacks are acquired when it is the gang's turn. A gang that no domain
    can hold stays on its machines that are in service, because its pods run there, or will.
    """
    choice = _best_domain(state, free_pools, index)
    if choice.whole or choice.domain == NONE:
        place_gang(state, index, choice)
        state.drop_idle_reservation(index)
        return choice.whole
    label = state.columns.label(same_key(state, index))
    state.gang_domains[index] = label.values[choice.domain]
    place_in_gang_domain(state, index, in_service_only=True)
    return False


def serve_gang(state: CycleState, free_pools: FreePools, index: int) -> None:
    """Place a gang in the domain that is best now, and acquire the machines that it lacks there.

    A gang with a reserved domain stays there, even while it waits for preempted machines. If its
    cluster's ceiling withholds a machine that it needs, it acquires none at all.
    """
    unplace_gang(state, index)
    if index not in state.not_acquiring:
        state.at_ceiling.discard(index)
    kept = reserved_domain(state, index)
    choice = _best_domain(state, free_pools, index)
    place_gang(state, index, choice if choice.whole or kept == NONE else DomainChoice(kept, False))
    if state.lacks(index) and index not in state.not_acquiring:
        key = same_key(state, index)
        acquire_in_domain(state, index, free_pools.pools(index, (key,)))
        # A part of a gang is of no use: start over without acquiring.
        if state.lacks(index) and index in state.at_ceiling:
            state.not_acquiring.add(index)
            serve_gang(state, free_pools, index)
    state.drop_idle_reservation(index)


def _best_domain(state: CycleState, free_pools: FreePools, index: int) -> DomainChoice:
    """The best domain for the gang's unplaced pods."""
    pods, kept = pods_of(state, index), reserved_domain(state, index)
    # A domain in which its cluster's machines hold all of it is better than any in which they do
    # not, unless that one is reserved for it.
    mine = _machines_of_cluster(state, index)
    rooms = domains_with_room(mine, pods.sizes, pods.counts)
    if len(rooms):
        among = np.append(rooms, np.int32(kept))
        choice = choose_domain(gang_candidates(state, free_pools, index, mine, among), *pods, kept)
        if choice.here or (choice.whole and choice.domain == kept):
            return choice
    return choose_domain(gang_candidates(state, free_pools, index, mine), *pods, kept)


def place_gang(state: CycleState, index: int, choice: DomainChoice) -> None:
    """Place the gang's pods on its cluster's machines in the chosen domain, its own first."""
    if choice.domain != NONE:
        label = state.columns.label(same_key(state, index))
        state.gang_domains[index] = label.values[choice.domain]
        place_in_gang_domain(state, index)


def place_in_gang_domain(state: CycleState, index: int, *, in_service_only: bool = False) -> None:
    """Place the gang's unplaced pods on its cluster's machines in its domain; `in_service_only`
    leaves out all but its own machines that have joined its cluster or are about to.
    """
    if index not in state.gang_domains:
        return
    packing = state.packing_of(index)
    there = _usable_machines(state, index) & in_gang_domain(state, index, packing.flavour)
    own = state.fleet.last_claimed_by[packing.rows] == index
    if in_service_only:
        there &= own & in_states(state.fleet.state[packing.rows], IN_SERVICE)
    machines = [*np.flatnonzero(there & own).tolist(), *np.flatnonzero(there & ~own).tolist()]
    first_fit(state, index, machines)


def first_fit(state: CycleState, index: int, machines: Sequence[int]) -> None:
    """Place a need's unplaced pods on its cluster's `machines`, first fit."""
    packing, its, classes = state.packing_of(index), state.classes.of(index), state.classes
    got = Counter[int]()
    for machine, _, pods in packing.entries_of(its):
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


def unplace_gang(state: CycleState, index: int) -> None:
    """Undo a gang's placements and acquisitions."""
    state.packing_of(index).clear_need(state.classes.of(index))
    state.give_back(index, state.acquired.pop(index, []))
    state.gang_domains.pop(index, None)


def same_key(state: CycleState, index: int) -> str:
    """The topology key of a gang's domain."""
    return str(state.flavour_fit(index).profile.same_key)


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


def _machines_of_cluster(state: CycleState, index: int) -> GangCandidates:
    """The machines of its cluster that a gang might use, those that it had first."""
    packing = state.packing_of(index)
    codes = state.columns.label(same_key(state, index)).codes
    at = np.flatnonzero(_usable_machines(state, index))
    own = state.fleet.last_claimed_by[packing.rows[at]] == index
    at = np.concatenate((at[own], at[~own]))
    source = np.full(len(at), SOURCE_CLUSTER, np.uint8)
    source[: int(own.sum())] = SOURCE_OWN
    return GangCandidates(codes[packing.flavour[at]], source, packing.free[at], np.ones_like(at))


def gang_candidates(
    state: CycleState,
    free_pools: FreePools,
    index: int,
    mine: GangCandidates | None = None,
    among: Ints | None = None,
    further: Sequence[tuple[EligiblePool, int]] = (),
) -> GangCandidates:
    """The machines that a gang might use: `mine`, which are its cluster's, those that it may
    acquire, and the `further` pools with their source; only those in the domains `among`, if given.
    """
    parts = [_machines_of_cluster(state, index) if mine is None else mine]
    inside = None
    if among is not None:
        names = state.columns.label(same_key(state, index)).values
        inside = flags_of([code for code in among.tolist() if code != NONE], len(names))
        parts = [_only(parts[0], inside[parts[0].domain])]
    pools = list(further)
    if index not in state.not_acquiring:
        found = free_pools.pools(index, (same_key(state, index),))
        pools = [*((each, SOURCE_ACQUIRABLE) for each in found), *pools]
    pods, availability = int(state.left[state.classes.of(index)].sum()), state.availability(index)
    for (pool, eligible), source in pools:
        there = np.ones(len(pool.codes), np.bool_) if inside is None else inside[pool.codes[:, 0]]
        free = count_free(pool, eligible, there, availability, index, False)
        parts.append(_as_equivalence_classes(pool, source, free, pods))
    return GangCandidates(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _only(candidates: GangCandidates, which: Flags) -> GangCandidates:
    return GangCandidates(
        candidates.domain[which],
        candidates.source[which],
        candidates.free[which],
        candidates.number[which],
    )


def _as_equivalence_classes(
    pool: CandidatePool, source: int, free: Longs, pods: int
) -> GangCandidates:
    """The `free` [G] machines of each group as entries, at most one for each of the gang's `pods`;
    the first entry of a group stands for the rest.
    """
    some = np.flatnonzero(free)
    number = np.minimum(free[some], pods)
    group = np.repeat(some, number)
    stands_for = np.ones(len(group), np.int64)
    stands_for[np.cumsum(number) - number] += free[some] - number
    return GangCandidates(
        pool.codes[pool.domain[group], 0],
        np.full(len(group), source, np.uint8),
        pool.capacity[group],
        stands_for,
    )


def _usable_machines(state: CycleState, index: int) -> Flags:
    """Which machines of its cluster a gang may use."""
    packing = state.packing_of(index)
    accepted = state.flavour_fit(index).accepted[packing.flavour]
    return accepted & packing.present(int(state.priorities[index]))


def pods_of(state: CycleState, index: int) -> GangPods:
    """The gang's unplaced pods."""
    its = state.classes.of(index)
    left = state.left[its]
    most = int(state.classes.most[its.start])
    return GangPods(state.classes.sizes[its][left > 0], left[left > 0], most)
