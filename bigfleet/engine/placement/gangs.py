"""Gangs: needs whose machines share one domain of a topology key. They fit on no one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bigfleet.engine.kernels.packing import fitting
from bigfleet.engine.kernels.selection import CandidatePool, FleetAvailability
from bigfleet.engine.placement.acquire import (
    EligiblePool,
    FreePools,
    choose_machines,
    in_tiers,
    order,
)
from bigfleet.engine.placement.gang_domains import (
    SOURCE_ACQUIRABLE,
    SOURCE_CLUSTER,
    SOURCE_OWN,
    DomainChoice,
    GangCandidates,
    choose_domain,
)
from bigfleet.engine.snapshot import NONE, Flags, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.jit import kernel
from bigfleet.model.machine import MachineState


def begin_gang(state: CycleState, free_pools: FreePools, index: int) -> bool:
    """Count the gang's pods in the domain that can hold all of them; False where there is none.

    What that domain lacks is acquired when it is the gang's turn. A gang that no domain can hold
    keeps the machines that it has in service: its pods run there.
    """
    choice = choose_domain(
        gang_candidates(state, free_pools, index),
        *pods_of(state, index),
        reserved_domain(state, index),
    )
    if choice.whole or choice.domain == NONE:
        place_gang(state, index, choice)
        state.drop_idle_reservation(index)
        return choice.whole
    label = state.columns.label(same_key(state, index))
    state.gang_domains[index] = label.values[choice.domain]
    place_in_gang_domain(state, index, in_service_only=True)
    return False


def serve_gang(state: CycleState, free_pools: FreePools, index: int) -> None:
    """Count and acquire for one gang, in whichever domain is best now.

    A gang that gathers in a reserved domain stays there also while machines are missing that are to
    be taken from others: what it has there must not go to waste, nor may it begin elsewhere. If its
    cluster's ceiling withholds something that it lacks, it acquires nothing.
    """
    unplace_gang(state, index)
    if index not in state.not_acquiring:
        state.at_ceiling.discard(index)
    kept = reserved_domain(state, index)
    choice = choose_domain(gang_candidates(state, free_pools, index), *pods_of(state, index), kept)
    place_gang(state, index, choice if choice.whole or kept == NONE else DomainChoice(kept, False))
    if state.lacks(index) and index not in state.not_acquiring:
        key = same_key(state, index)
        pools = in_tiers(free_pools.pools(index, (key,)))
        acquire_in_domain(state, index, [*pools])
        if state.lacks(index) and index in state.at_ceiling:
            state.not_acquiring.add(index)
            serve_gang(state, free_pools, index)
    state.drop_idle_reservation(index)


def place_gang(state: CycleState, index: int, choice: DomainChoice) -> None:
    """Count the gang's pods on its cluster's machines in one domain: first on those that were its
    own before.
    """
    if choice.domain != NONE:
        label = state.columns.label(same_key(state, index))
        state.gang_domains[index] = label.values[choice.domain]
        place_in_gang_domain(state, index)


def place_in_gang_domain(state: CycleState, index: int, *, in_service_only: bool = False) -> None:
    """Give places to what is left of the gang on its cluster's machines in its domain; if
    `in_service_only`, on those that were its own before and take pods.
    """
    label = state.columns.label(same_key(state, index))
    if index not in state.gang_domains:
        return
    packing = state.packing_of(index)
    inside = label.codes[packing.flavour] == label.values.index(state.gang_domains[index])
    there = _usable_machines(state, index) & inside
    own = state.fleet.last_claimed_by[packing.rows] == index
    if in_service_only:
        there &= own & (state.fleet.state[packing.rows] == MachineState.CONFIGURED)
    machines = [*np.flatnonzero(there & own).tolist(), *np.flatnonzero(there & ~own).tolist()]
    first_fit(state, index, machines)


def first_fit(state: CycleState, index: int, machines: Sequence[int]) -> None:
    """Give places to what is left of a need on the first of its cluster's `machines` with room."""
    packing, its, classes = state.packing_of(index), state.classes.of(index), state.classes
    got = Counter[int]()
    for machine, _, pods in packing.entries_of(its):
        got[machine] += pods
    for pod_class in range(its.start, its.stop):
        most = int(classes.most[pod_class])
        for machine in machines:
            room = fitting(packing.free[machine], classes.sizes[pod_class])
            pods = min(room, int(state.left[pod_class]), most - got[machine])
            if pods > 0:
                got[machine] += pods
                packing.record_placement(machine, pod_class, pods)
                state.left[pod_class] -= pods


def acquire_in_domain(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> None:
    """Acquire machines in the gang's domain for what it lacks."""
    rows = preempt_in_domain(state, index, pools)
    state.acquired.setdefault(index, []).extend(rows.tolist())


def preempt_in_domain(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> Rows:
    """Choose machines of `pools` that are in the gang's domain, and give them to it."""
    name = state.gang_domains.get(index)
    label = state.columns.label(same_key(state, index))
    if name is None:
        return np.empty(0, np.intp)
    code = label.values.index(name)
    inside = [(pool, eligible & (pool.codes[pool.domain, 0] == code)) for pool, eligible in pools]
    selection = choose_machines(state, index, np.empty(0, np.int64), inside)
    order(state, index, selection)
    return selection.rows.astype(np.intp)


def unplace_gang(state: CycleState, index: int) -> None:
    """Undo what was counted and acquired for a gang."""
    state.packing_of(index).clear_need(state.classes.of(index))
    state.give_back(index, state.acquired.pop(index, []))
    state.gang_domains.pop(index, None)


def same_key(state: CycleState, index: int) -> str:
    """The topology key of a gang's domain."""
    return str(state.flavour_fit(index).profile.same_key)


def reserved_domain(state: CycleState, index: int) -> int:
    """The code of the domain that is reserved for a gang, or NONE."""
    reservation = state.reserved.get(index)
    names = state.columns.label(same_key(state, index)).values
    if reservation is None or reservation.domain not in names:
        return NONE
    return names.index(reservation.domain)


def gang_candidates(
    state: CycleState,
    free_pools: FreePools,
    index: int,
    further: Sequence[tuple[EligiblePool, int]] = (),
) -> GangCandidates:
    """What a gang can have: its cluster's machines, those that it can acquire unless it lets others
    go first, and `further` offers with their source.
    """
    packing = state.packing_of(index)
    codes = state.columns.label(same_key(state, index)).codes
    mine = np.flatnonzero(_usable_machines(state, index))
    own = state.fleet.last_claimed_by[packing.rows[mine]] == index
    mine = np.concatenate((mine[own], mine[~own]))
    first = int(own.sum())
    parts = [
        GangCandidates(
            codes[packing.flavour[at]],
            np.full(len(at), source, np.uint8),
            packing.free[at],
            at * 0 + 1,
        )
        for at, source in ((mine[:first], SOURCE_OWN), (mine[first:], SOURCE_CLUSTER))
    ]
    pools = list(further)
    if index not in state.not_acquiring:
        found = in_tiers(free_pools.pools(index, (same_key(state, index),)))
        pools = [*((each, SOURCE_ACQUIRABLE) for each in found), *pools]
    pods = int(state.left[state.classes.of(index)].sum())
    for (pool, eligible), source in pools:
        free = _free(pool, eligible, state.availability(index), index)
        parts.append(_as_equivalence_classes(pool, source, free, pods))
    return GangCandidates(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@kernel
def _free(
    pool: CandidatePool, eligible: Flags, availability: FleetAvailability, index: int
) -> Longs:
    """How many machines of each eligible group of the offer need `index` may still have."""
    free = np.zeros(eligible.shape[0], np.int64)
    for group in range(eligible.shape[0]):
        if not eligible[group]:
            continue
        for at in range(pool.starts[group], pool.starts[group + 1]):
            row = pool.rows[at]
            reserving_need = availability.reserved_for[row]
            kept = reserving_need != NONE and reserving_need != index
            if availability.unavailable[row]:
                continue
            if not kept or availability.priorities[reserving_need] < availability.priorities[index]:
                free[group] += 1
    return free


def _as_equivalence_classes(
    pool: CandidatePool, source: int, free: Longs, pods: int
) -> GangCandidates:
    """So many equal machines of each group, of which a gang of `pods` could use no more than it
    has pods: the first of a group stands for those beyond.
    """
    number = np.minimum(free, pods)
    group = np.repeat(np.arange(len(free)), number)
    stands_for = np.ones(len(group), np.int64)
    some = number > 0
    stands_for[(np.cumsum(number) - number)[some]] += (free - number)[some]
    return GangCandidates(
        pool.codes[pool.domain[group], 0],
        np.full(len(group), source, np.uint8),
        pool.capacity[group],
        stands_for,
    )


def _usable_machines(state: CycleState, index: int) -> Flags:
    """The machines of its cluster that a gang may use."""
    packing = state.packing_of(index)
    accepted = state.flavour_fit(index).accepted[packing.flavour]
    return accepted & packing.present(int(state.priorities[index]))


def pods_of(state: CycleState, index: int) -> tuple[Longs, Longs, int]:
    """Sizes and numbers of the gang's pods without a place, and how many a machine takes."""
    its = state.classes.of(index)
    left = state.left[its]
    return state.classes.sizes[its][left > 0], left[left > 0], int(state.classes.most[its.start])
