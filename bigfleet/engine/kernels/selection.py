"""Kernels: which machines to acquire for pods that found no place.

A machine is judged by its cost per useful unit when it is filled: with the need's own pods, largest
first, then with other pending pods of its cluster. Among those within a tolerance of the best, the
one that serves most is taken; then the cheapest, then the one in the domain with fewest pods, then
the smallest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import PODS_COLUMN
from bigfleet.engine.kernels.packing import ClassColumns, fill, fitting, pods_allowed, take, worth
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs
from bigfleet.engine.state.ceiling_budgets import MACHINES, MICROS, WITHHELD
from bigfleet.jit import kernel

_SLOT_WORTH = 1e-3


class CandidatePool(NamedTuple):
    """Machines that a need may acquire or take, in G groups of equal ones.

    `rows[starts[g]:starts[g + 1]]` are those of group g, in the order in which they are taken;
    before `first[g]` none is to be had any more. Those of one group have equal `capacity` [G, R],
    `costs` and `tier` [G], and stand in one `domain` [G]: a row of `codes` [D, K], which has the
    codes of K labels.
    """

    rows: Longs
    starts: Longs
    first: Longs
    capacity: Longs
    costs: Floats
    tier: Ints
    domain: Ints
    codes: Ints


class FleetAvailability(NamedTuple):
    """What is known of the fleet's machines: flavour, whether each is taken already, and for which
    need it is kept, with the priorities of all needs; to which cluster each belongs
    (`supply_clusters`), the `cluster` that chooses, the `prices` of flavours, and the `budget` that
    is left to the cluster, which changes.
    """

    flavour: Ints
    unavailable: Flags
    reserved_for: Ints
    priorities: Longs
    supply_clusters: Ints
    cluster: int
    prices: Longs
    budget: Longs


class PendingPods(NamedTuple):
    """Classes [P] that lack places, of which the first `own` are those of the need that acquires,
    in descending order of size; what a pod of each is worth; how many of the need's pods each
    domain of the offer has; and how many `more` [P] pods of each are to be expected. These are no
    reason to take a machine, only to take a larger one.
    """

    classes: Longs
    own: int
    weights: Floats
    domain_pods: Longs
    more: Longs


class SelectionBuffer(NamedTuple):
    """Room for B machines: their rows, groups, what they have free [B, R] after `pods` [B, P] of
    each pending class.
    """

    rows: Longs
    group: Longs
    free: Longs
    pods: Longs


def weights_of(sizes: Longs, left: Longs) -> Floats:
    """What a pod of each class is worth: its parts of all that is asked for of each resource. Pod
    slots are hardly ever what a machine is bought for.
    """
    total = (sizes * left[:, None].astype(np.float64)).sum(axis=0)
    asked = total > 0
    parts = sizes[:, asked] / total[asked]
    parts[:, asked[:PODS_COLUMN].sum() : asked[: PODS_COLUMN + 1].sum()] *= _SLOT_WORTH
    weights: Floats = parts.sum(axis=1)
    return weights


def selection_buffer(machines: int, sizes: Longs, classes: int) -> SelectionBuffer:
    """Room for so many machines and pending classes."""
    return SelectionBuffer(
        rows=np.empty(machines, np.int64),
        group=np.empty(machines, np.int64),
        free=np.empty((machines, sizes.shape[1]), np.int64),
        pods=np.zeros((machines, classes), np.int64),
    )


@kernel
def _is_allowed(availability: FleetAvailability, row: int) -> bool:
    """Whether the cluster's ceiling leaves room for the machine; what it has does not count."""
    if availability.supply_clusters[row] == availability.cluster:
        return True
    price, left = availability.prices[availability.flavour[row]], availability.budget
    if left[MACHINES] >= 1 and left[MICROS] >= price:
        return True
    left[WITHHELD] = 1
    return False


@kernel
def _charge(availability: FleetAvailability, row: int) -> None:
    if availability.supply_clusters[row] != availability.cluster:
        availability.budget[MACHINES] -= 1
        availability.budget[MICROS] -= availability.prices[availability.flavour[row]]


@kernel
def may_have(availability: FleetAvailability, row: int, need: int) -> bool:
    """Whether the need may have the machine: it is not taken, nor kept for somebody else of at
    least its priority, nor withheld by a ceiling.
    """
    reserving_need = availability.reserved_for[row]
    if availability.unavailable[row]:
        return False
    if (
        reserving_need not in (NONE, need)
        and availability.priorities[reserving_need] >= availability.priorities[need]
    ):
        return False
    return _is_allowed(availability, row)


@kernel
def _heads(
    pool: CandidatePool, eligible: Flags, availability: FleetAvailability, need: int
) -> Longs:
    """For each group the place in `rows` of the first machine that the need may have, else -1."""
    groups = pool.starts.shape[0] - 1
    heads = np.full(groups, -1)
    for group in range(groups):
        stop = pool.starts[group + 1]
        if not eligible[group]:
            continue
        while pool.first[group] < stop and availability.unavailable[pool.rows[pool.first[group]]]:
            pool.first[group] += 1
        for place in range(pool.first[group], stop):
            if may_have(availability, pool.rows[place], need):
                heads[group] = place
                break
    return heads


@kernel
def _leading_class(
    pool: CandidatePool, heads: Longs, classes: ClassColumns, left: Longs, pending: PendingPods
) -> int:
    """The need's first class that some machine could hold; -1 for none."""
    for place in range(pending.own):
        pod_class = pending.classes[place]
        if left[pod_class] > 0:
            for group in range(heads.shape[0]):
                if (
                    heads[group] >= 0
                    and fitting(pool.capacity[group], classes.sizes[pod_class]) > 0
                ):
                    return int(pod_class)
    return -1


@kernel
def _choose(
    pool: CandidatePool,
    heads: Longs,
    availability: FleetAvailability,
    classes: ClassColumns,
    left: Longs,
    pending: PendingPods,
    tolerance: float,
) -> int:
    """The group whose first machine to take next; -1 for none."""
    lead = _leading_class(pool, heads, classes, left, pending)
    if lead < 0:
        return -1
    groups = heads.shape[0]
    use, rate = np.zeros(groups), np.full(groups, np.inf)
    pods = np.zeros(pending.classes.shape[0], np.int64)
    lowest = np.inf
    left[pending.classes] += pending.more
    for group in range(groups):
        if heads[group] >= 0 and fitting(pool.capacity[group], classes.sizes[lead]) > 0:
            flavour = availability.flavour[pool.rows[heads[group]]]
            fill(pool.capacity[group].copy(), flavour, classes, left, pending.classes, pods)
            use[group] = worth(pods, pending.weights)
            rate[group] = pool.costs[group] / use[group]
            lowest = min(lowest, rate[group])
    left[pending.classes] -= pending.more
    best = -1
    for group in range(groups):
        is_cheap = rate[group] < np.inf and rate[group] <= lowest * (1 + tolerance)
        if is_cheap and (best < 0 or _better(pool, pending, use, group, best)):
            best = group
    return best


@kernel
def _better(pool: CandidatePool, pending: PendingPods, use: Floats, one: int, other: int) -> bool:
    if use[one] != use[other]:
        return bool(use[one] > use[other])
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
    """Take machines of the `eligible` groups until the need's classes have places or none holds any
    of them, at most as many as `buffer` has room for. Returns how many; `left` changes.
    """
    count = 0
    while count < buffer.rows.shape[0]:
        heads = _heads(pool, eligible, availability, need)
        group = _choose(pool, heads, availability, classes, left, pending, tolerance)
        if group < 0:
            break
        row = pool.rows[heads[group]]
        buffer.free[count] = pool.capacity[group]
        pods = buffer.pods[count]
        fill(buffer.free[count], availability.flavour[row], classes, left, pending.classes, pods)
        for place in range(pods.shape[0]):
            left[pending.classes[place]] -= pods[place]
            if place < pending.own:
                pending.domain_pods[pool.domain[group]] += pods[place]
        availability.unavailable[row] = True
        _charge(availability, row)
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
    """Move all pods of one machine to the others, first fit; whether that can be done. If not,
    nothing has changed.
    """
    free, pods = buffer.free.copy(), buffer.pods.copy()
    for place in range(pending.shape[0]):
        pod_class = pending[place]
        size, rest = classes.sizes[pod_class], pods[one, place]
        for other in range(buffer.rows.shape[0]):
            if rest == 0:
                break
            flavour = availability.flavour[buffer.rows[other]]
            accepted = classes.accepted[classes.flavour_fit[pod_class], flavour]
            if other != one and not dropped[other] and accepted:
                room = pods_allowed(classes, pending, pods[other], pod_class)
                some = min(rest, room, fitting(free[other], size))
                rest -= some
                pods[other, place] += some
                take(free[other], size, some)
        if rest > 0:
            return False
        pods[one, place] = 0
    buffer.free[:], buffer.pods[:] = free, pods
    return True


@kernel
def redundant(
    order: Longs,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    buffer: SelectionBuffer,
) -> Flags:
    """Which of the machines the others make useless, looked at in `order`.

    A late, large machine can make an early, small one useless; keeping it would only have it given
    back as soon as it is there.
    """
    dropped = np.zeros(buffer.rows.shape[0], np.bool_)
    for one in order:
        if _relocate(one, availability, classes, pending, buffer, dropped):
            dropped[one] = True
    return dropped
