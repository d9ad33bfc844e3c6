"""Kernels that select machines to acquire for unplaced pods.

A machine is rated by its cost per unit of pods that it would hold: the need's own pods, largest
first, then other pending pods of the cluster. Among machines within a tolerance of the best rate,
the one that holds most wins; then the cheapest, then the one in the domain with fewest pods, then
the smallest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.candidate_pool import (
    MACHINES,
    MICROS,
    NO_CEILING,
    CandidatePool,
    FleetAvailability,
    SelectionBuffer,
    charge,
    head_of,
)
from bigfleet.engine.kernels.scoring import ClassColumns, fill, fits, worth
from bigfleet.engine.snapshot import NONE, Flags, Floats, Longs
from bigfleet.jit import kernel, lean_kernel


class PendingPods(NamedTuple):
    """The P classes with unplaced pods that machines are selected for."""

    #: [P] int64; the selecting need's classes come first, largest first
    classes: Longs
    #: how many of `classes` are the need's
    own: int
    #: [P] float64, value of one pod
    weights: Floats
    #: [D] int64, the need's pods in each domain of the pool; updated
    domain_pods: Longs
    #: [P] int64, pods expected beyond the pending ones: a reason for a larger machine, not for
    #: another one
    more: Longs


class _Candidates(NamedTuple):
    """The K eligible groups of a pool, and what the next machine of each would hold."""

    #: [K] int64, group of the pool
    group: Longs
    #: [K] int64, place of the next machine in the pool's rows; NONE if there is none
    head: Longs
    #: [K, P] int64, the pending and expected pods that it would hold
    pods: Longs
    #: [K] bool, `pods`, `use` and `rate` hold: nothing that they depend on has changed
    is_rated: Flags
    #: [K] float64, value of `pods`
    use: Floats
    #: [K] float64, cost per value
    rate: Floats
    #: [P] int64, at least as many pods of a class as any that is rated holds
    most: Longs
    #: [K] bool, holds the largest pending pod
    competes: Flags
    #: [1, R] int64, what a machine that is being rated has left
    free: Longs


@kernel
def _new_candidates(
    pool: CandidatePool, eligible: Flags, availability: FleetAvailability, need: int, classes: int
) -> _Candidates:
    group = np.flatnonzero(eligible)
    number = group.shape[0]
    head = np.empty(number, np.int64)
    for at in range(number):
        head[at] = head_of(pool, group[at], availability, need)
    return _Candidates(
        group,
        head,
        np.zeros((number, classes), np.int64),
        np.zeros(number, np.bool_),
        np.zeros(number),
        np.zeros(number),
        np.zeros(classes, np.int64),
        np.zeros(number, np.bool_),
        np.empty((1, pool.capacity.shape[1]), np.int64),
    )


@lean_kernel
def _update_heads(
    candidates: _Candidates,
    pool: CandidatePool,
    availability: FleetAvailability,
    need: int,
    used: int,
) -> None:
    """Find the heads again after the head of candidate `used` was used."""
    # A ceiling that runs out may withhold the machines of any group.
    unlimited = NO_CEILING >> 1
    budget = availability.budget
    is_limited = budget[MACHINES] < unlimited or budget[MICROS] < unlimited
    for at in range(candidates.group.shape[0]):
        if candidates.head[at] != NONE and (at == used or is_limited):
            before = availability.flavour[pool.rows[candidates.head[at]]]
            head = head_of(pool, candidates.group[at], availability, need)
            candidates.head[at] = head
            # Others' pods may be accepted by one flavour of a group and not by another.
            if head == NONE or availability.flavour[pool.rows[head]] != before:
                candidates.is_rated[at] = False


@lean_kernel
def _note_placed(candidates: _Candidates, left: Longs, pending: PendingPods, pods: Longs) -> None:
    """Drop the rates that no longer hold after `pods` [P] were placed: those of machines that
    would hold more than is left.
    """
    for place in range(pods.shape[0]):
        rest = left[pending.classes[place]] + pending.more[place]
        if pods[place] > 0 and rest < candidates.most[place]:
            most = 0
            for at in range(candidates.group.shape[0]):
                if candidates.pods[at, place] > rest:
                    candidates.is_rated[at] = False
                if candidates.is_rated[at]:
                    most = max(most, candidates.pods[at, place])
            candidates.most[place] = most


@lean_kernel
def _rate(
    candidates: _Candidates,
    at: int,
    pool: CandidatePool,
    availability: FleetAvailability,
    classes: ClassColumns,
    left: Longs,
    pending: PendingPods,
) -> None:
    """Rate the head of a candidate, as if the expected pods were pending, too."""
    group, pods = candidates.group[at], candidates.pods[at]
    flavour = availability.flavour[pool.rows[candidates.head[at]]]
    for resource in range(pool.capacity.shape[1]):
        candidates.free[0, resource] = pool.capacity[group, resource]
    for place in range(pods.shape[0]):
        left[pending.classes[place]] += pending.more[place]
    fill(candidates.free, 0, flavour, classes, left, pending.classes, pods)
    for place in range(pods.shape[0]):
        left[pending.classes[place]] -= pending.more[place]
    candidates.use[at] = worth(pods, pending.weights)
    candidates.rate[at] = pool.costs[group] / candidates.use[at]
    candidates.is_rated[at] = True
    for place in range(pods.shape[0]):
        candidates.most[place] = max(candidates.most[place], pods[place])


@lean_kernel
def _leading_class(
    candidates: _Candidates,
    pool: CandidatePool,
    classes: ClassColumns,
    left: Longs,
    pending: PendingPods,
) -> int:
    """The need's largest pending class that some candidate could hold; NONE for none."""
    for place in range(pending.own):
        pod_class = pending.classes[place]
        if left[pod_class] > 0:
            for at in range(candidates.group.shape[0]):
                group = candidates.group[at]
                if candidates.head[at] != NONE and fits(
                    pool.capacity, group, classes.sizes, pod_class
                ):
                    return int(pod_class)
    return NONE


@lean_kernel
def _choose(
    candidates: _Candidates,
    pool: CandidatePool,
    availability: FleetAvailability,
    classes: ClassColumns,
    left: Longs,
    pending: PendingPods,
    tolerance: float,
) -> int:
    """The candidate to take the next machine from; NONE for none."""
    # Only machines that hold the largest pending pod compete, or small ones would always win.
    lead = _leading_class(candidates, pool, classes, left, pending)
    if lead == NONE:
        return NONE
    number = candidates.group.shape[0]
    competes, lowest = candidates.competes, np.inf
    for at in range(number):
        group, competes[at] = candidates.group[at], False
        if candidates.head[at] != NONE and fits(pool.capacity, group, classes.sizes, lead):
            if not candidates.is_rated[at]:
                _rate(candidates, at, pool, availability, classes, left, pending)
            competes[at] = candidates.rate[at] < np.inf
            lowest = min(lowest, candidates.rate[at])
    best = NONE
    for at in range(number):
        is_cheap = competes[at] and candidates.rate[at] <= lowest * (1 + tolerance)
        if is_cheap and (best == NONE or _better(candidates, pool, pending, at, best)):
            best = at
    return best


@lean_kernel
def _better(
    candidates: _Candidates, pool: CandidatePool, pending: PendingPods, at: int, best: int
) -> bool:
    if candidates.use[at] != candidates.use[best]:
        return bool(candidates.use[at] > candidates.use[best])
    one, other = candidates.group[at], candidates.group[best]
    if pool.costs[one] != pool.costs[other]:
        return bool(pool.costs[one] < pool.costs[other])
    mine, others = (
        pending.domain_pods[pool.domain[one]],
        pending.domain_pods[pool.domain[other]],
    )
    if mine != others:
        return bool(mine < others)
    return bool(pool.capacity[one].sum() < pool.capacity[other].sum())


@kernel
def select_machines(
    pool: CandidatePool,
    eligible: Flags,
    availability: FleetAvailability,
    need: int,
    classes: ClassColumns,
    left: Longs,
    pending: PendingPods,
    tolerance: float,
    buffer: SelectionBuffer,
) -> int:
    """Select machines of the `eligible` groups until the need's pods are placed, no candidate holds
    any of them, or `buffer` is full. Returns how many; updates `left`.
    """
    number = pending.classes.shape[0]
    candidates = _new_candidates(pool, eligible, availability, need, number)
    return _select(candidates, pool, availability, need, classes, left, pending, tolerance, buffer)


@lean_kernel
def _select(
    candidates: _Candidates,
    pool: CandidatePool,
    availability: FleetAvailability,
    need: int,
    classes: ClassColumns,
    left: Longs,
    pending: PendingPods,
    tolerance: float,
    buffer: SelectionBuffer,
) -> int:
    """Select machines of the candidates; see `select_machines`."""
    count, at = 0, NONE
    while count < buffer.rows.shape[0]:
        if at != NONE:
            _update_heads(candidates, pool, availability, need, at)
        at = _choose(candidates, pool, availability, classes, left, pending, tolerance)
        if at == NONE:
            break
        group, row = candidates.group[at], pool.rows[candidates.head[at]]
        pods = buffer.pods[count]
        for resource in range(pool.capacity.shape[1]):
            buffer.free[count, resource] = pool.capacity[group, resource]
        flavour = availability.flavour[row]
        fill(buffer.free, count, flavour, classes, left, pending.classes, pods)
        for place in range(pods.shape[0]):
            left[pending.classes[place]] -= pods[place]
            if place < pending.own:
                pending.domain_pods[pool.domain[group]] += pods[place]
        availability.unavailable[row] = True
        charge(availability, row)
        _note_placed(candidates, left, pending, pods)
        buffer.rows[count], buffer.group[count] = row, group
        count += 1
    return count
