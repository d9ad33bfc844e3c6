"""The machines that a gang might use, and its pods, as columns for the choice of its domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfleet.engine.kernels.selection import CandidatePool, count_free
from bigfleet.engine.placement.acquire import EligiblePool, FreePools
from bigfleet.engine.placement.gang_domains import (
    SOURCE_ACQUIRABLE,
    SOURCE_CLUSTER,
    SOURCE_OWN,
    GangCandidates,
    GangPods,
)
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, flags_of
from bigfleet.engine.state.cycle_state import CycleState


def same_key(state: CycleState, index: int) -> str:
    """The topology key of a gang's domain."""
    return str(state.flavour_fit(index).profile.same_key)


def pods_of(state: CycleState, index: int) -> GangPods:
    """The gang's unplaced pods."""
    its = state.classes.of(index)
    left = state.left[its]
    most = int(state.classes.most[its.start])
    return GangPods(state.classes.sizes[its][left > 0], left[left > 0], most)


def machines_of_cluster(state: CycleState, index: int) -> GangCandidates:
    """The machines of its cluster that a gang might use, those that it had first."""
    packing = state.packing_of(index)
    codes = state.columns.label(same_key(state, index)).codes
    at = np.flatnonzero(usable_machines(state, index))
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
    parts = [machines_of_cluster(state, index) if mine is None else mine]
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


def usable_machines(state: CycleState, index: int) -> Flags:
    """Which machines of its cluster a gang may use."""
    packing = state.packing_of(index)
    accepted = state.flavour_fit(index).accepted[packing.flavour]
    return accepted & packing.present(int(state.priorities[index]))
