"""Kernels that select machines to acquire for unplaced pods.

A machine is rated by its cost per unit of pods that it would hold: the need's own pods, largest
first, then other pending pods of the cluster. Among machines within a tolerance of the best rate,
the one that holds most wins; then the cheapest, then the one in the domain with fewest pods, then
the smallest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import PODS_COLUMN
from bigfleet.engine.kernels.scoring import (
    ClassColumns,
    fill,
    fits,
    fitting,
    pods_allowed,
    take,
    worth,
)
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs, Rows
from bigfleet.jit import kernel, lean_kernel

# The columns of a cluster's remaining budget: machines, micro-dollars an hour, and whether the
# ceiling withheld a machine.
MACHINES, MICROS, WITHHELD = range(3)
NO_CEILING = 2**62
_SLOT_WORTH = 1e-3


class CandidatePool(NamedTuple):
    """Machines that a need may acquire or preempt, in G groups of interchangeable ones.

    `rows[starts[g]:starts[g + 1]]` are the machines of group g, in the order in which they are
    used.
    """

    #: [n] int64, rows of the fleet, by group
    rows: Longs
    #: [G + 1] int64
    starts: Longs
    #: [G] int64, places in `rows` before which no machine of the group is left
    first: Longs
    #: [G, R] int64, allocatable for pods
    capacity: Longs
    #: [G] float64, effective dollars an hour
    costs: Floats
    #: [G] int32, candidate tier, the lowest first
    tier: Ints
    #: [G] int32, row of `codes`
    domain: Ints
    #: [D, K] int32, the codes of K labels
    codes: Ints


class FleetAvailability(NamedTuple):
    """Which machines of the fleet are free, as seen by one cluster."""

    #: [n] int32, index of the flavour
    flavour: Ints
    #: [n] bool, ordered in this decision, or backed off
    unavailable: Flags
    #: [n] int32, the cluster that must not order the machine now, or NONE
    backed_off_for: Ints
    #: [n] int32, another one, or NONE
    backed_off_for_too: Ints
    #: [n] int32, the need that the machine is reserved for, or NONE
    reserved_for: Ints
    #: [N] int64, priorities of the needs
    priorities: Longs
    #: [n] int32, the cluster that the machine is supply for, or NONE
    supply_clusters: Ints
    #: the cluster that selects
    cluster: int
    #: [F] int64, micro-dollars an hour
    prices: Longs
    #: [3] int64, by MACHINES, MICROS and WITHHELD; updated
    budget: Longs


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


class SelectionBuffer(NamedTuple):
    """B selected machines."""

    #: [B] int64, rows of the fleet
    rows: Longs
    #: [B] int64, group of the pool
    group: Longs
    #: [B, R] int64, what is left after `pods`
    free: Longs
    #: [B, P] int64, pods of each pending class
    pods: Longs


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


def weights_of(sizes: Longs, left: Longs) -> Floats:
    """The value of one pod of each class: its shares of the total requests, over all resources."""
    total = (sizes * left[:, None].astype(np.float64)).sum(axis=0)
    asked = total > 0
    parts = sizes[:, asked] / total[asked]
    # Pod slots are rarely why a machine is acquired.
    parts[:, asked[:PODS_COLUMN].sum() : asked[: PODS_COLUMN + 1].sum()] *= _SLOT_WORTH
    weights: Floats = parts.sum(axis=1)
    return weights


def selection_buffer(machines: int, sizes: Longs, classes: int) -> SelectionBuffer:
    """An empty buffer for this many machines and pending classes."""
    return SelectionBuffer(
        rows=np.empty(machines, np.int64),
        group=np.empty(machines, np.int64),
        free=np.empty((machines, sizes.shape[1]), np.int64),
        pods=np.zeros((machines, classes), np.int64),
    )


@kernel
def group_rows(rows: Rows, flavour: Ints, accepted: Flags, group_of: Ints) -> tuple[Longs, Longs]:
    """Those `rows` whose flavour is `accepted` [F], by the group of their flavour, in each in the
    order given; and where each group that has any begins, and the last one ends.
    """
    size = np.zeros(group_of.max() + 1 if len(group_of) else 0, np.int64)
    for row in rows:
        if accepted[flavour[row]]:
            size[group_of[flavour[row]]] += 1
    ends = np.cumsum(size)
    place = ends - size
    found = np.empty(size.sum(), np.int64)
    for row in rows:
        if accepted[flavour[row]]:
            group = group_of[flavour[row]]
            found[place[group]] = row
            place[group] += 1
    starts = np.zeros((size > 0).sum() + 1, np.int64)
    starts[1:] = ends[size > 0]
    return found, starts


@lean_kernel
def _is_allowed(availability: FleetAvailability, row: int) -> bool:
    """Whether the cluster's ceiling allows the machine; records when it does not."""
    # The cluster's own machines are charged already.
    if availability.supply_clusters[row] == availability.cluster:
        return True
    price, left = availability.prices[availability.flavour[row]], availability.budget
    if left[MACHINES] >= 1 and left[MICROS] >= price:
        return True
    left[WITHHELD] = 1
    return False


@lean_kernel
def _charge(availability: FleetAvailability, row: int) -> None:
    if availability.supply_clusters[row] != availability.cluster:
        availability.budget[MACHINES] -= 1
        availability.budget[MICROS] -= availability.prices[availability.flavour[row]]


@lean_kernel
def is_free(availability: FleetAvailability, row: int, need: int) -> bool:
    """Whether the machine is available to the cluster and not reserved for another need of at least
    the same priority.
    """
    if availability.unavailable[row] or availability.backed_off_for[row] == availability.cluster:
        return False
    if availability.backed_off_for_too[row] == availability.cluster:
        return False
    reserving_need = availability.reserved_for[row]
    if reserving_need in (NONE, need):
        return True
    return bool(availability.priorities[reserving_need] < availability.priorities[need])


@kernel
def count_free(
    pool: CandidatePool, eligible: Flags, availability: FleetAvailability, need: int
) -> Longs:
    """For each group [G], how many machines are free for the need and allowed by its cluster's
    ceiling, each by itself; 0 if the group is not eligible.
    """
    free = np.zeros(eligible.shape[0], np.int64)
    for group in np.flatnonzero(eligible):
        for place in range(pool.starts[group], pool.starts[group + 1]):
            row = pool.rows[place]
            free[group] += is_free(availability, row, need) and _is_allowed(availability, row)
    return free


@lean_kernel
def _head(pool: CandidatePool, group: int, availability: FleetAvailability, need: int) -> int:
    """The place in `rows` of the group's first machine that the need may acquire, or -1."""
    stop = pool.starts[group + 1]
    # Used machines stay used for this selection: do not walk past them again.
    while pool.first[group] < stop and availability.unavailable[pool.rows[pool.first[group]]]:
        pool.first[group] += 1
    for place in range(pool.first[group], stop):
        row = pool.rows[place]
        if is_free(availability, row, need) and _is_allowed(availability, row):
            return int(place)
    return NONE


@lean_kernel
def has_candidate(
    pool: CandidatePool,
    eligible: Flags,
    availability: FleetAvailability,
    need: int,
    classes: ClassColumns,
    left: Longs,
    own: Longs,
) -> bool:
    """Whether the next machine of any `eligible` group could hold a pod of the need, whose classes
    are `own`; records whether a ceiling withholds machines.
    """
    for group in range(eligible.shape[0]):
        if eligible[group] and _head(pool, group, availability, need) != NONE:
            for pod_class in own:
                if left[pod_class] > 0 and fits(pool.capacity, group, classes.sizes, pod_class):
                    return True
    return False


@kernel
def _new_candidates(
    pool: CandidatePool, eligible: Flags, availability: FleetAvailability, need: int, classes: int
) -> _Candidates:
    group = np.flatnonzero(eligible)
    number = group.shape[0]
    head = np.empty(number, np.int64)
    for at in range(number):
        head[at] = _head(pool, group[at], availability, need)
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
            head = _head(pool, candidates.group[at], availability, need)
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
        _charge(availability, row)
        _note_placed(candidates, left, pending, pods)
        buffer.rows[count], buffer.group[count] = row, group
        count += 1
    return count


@kernel
def _relocate(
    one: int,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    buffer: SelectionBuffer,
    dropped: Flags,
) -> bool:
    """Move all pods of one machine to the others, first fit; False, and nothing is moved, if they
    do not fit.
    """
    free, pods = buffer.free.copy(), buffer.pods.copy()
    if not _move(one, availability, classes, pending, buffer.rows, free, pods, dropped):
        return False
    buffer.free[:], buffer.pods[:] = free, pods
    return True


@lean_kernel
def _move(
    one: int,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    rows: Longs,
    free: Longs,
    pods: Longs,
    dropped: Flags,
) -> bool:
    """Move all pods of one machine to the others, in `free` [B, R] and `pods` [B, P]; False if they
    do not fit.
    """
    for place in range(pending.shape[0]):
        pod_class = pending[place]
        rest = pods[one, place]
        for other in range(rows.shape[0]):
            if rest == 0:
                break
            flavour = availability.flavour[rows[other]]
            accepted = classes.accepted[classes.flavour_fit[pod_class], flavour]
            if other != one and not dropped[other] and accepted:
                room = pods_allowed(classes, pending, pods[other], pod_class)
                some = min(rest, room, fitting(free, other, classes.sizes, pod_class))
                rest -= some
                pods[other, place] += some
                take(free, other, classes.sizes, pod_class, some)
        if rest > 0:
            return False
        pods[one, place] = 0
    return True


@kernel
def redundant(
    order: Longs,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    buffer: SelectionBuffer,
) -> Flags:
    """Which of the machines are redundant, tried in `order`: their pods fit on the others.

    A large machine selected late can make a small one selected early redundant; it would be
    reclaimed as soon as it joins.
    """
    dropped = np.zeros(buffer.rows.shape[0], np.bool_)
    for one in order:
        if _relocate(one, availability, classes, pending, buffer, dropped):
            dropped[one] = True
    return dropped
