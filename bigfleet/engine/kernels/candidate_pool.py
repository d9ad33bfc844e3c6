"""Pools of machines that a need may acquire or preempt, and which of them are free for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import ClassColumns, fits
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs, Rows
from bigfleet.jit import kernel, lean_kernel

# The columns of a cluster's remaining budget: machines, micro-dollars an hour, and whether the
# ceiling withheld a machine.
MACHINES, MICROS, WITHHELD = range(3)
NO_CEILING = 2**62


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
def is_allowed(availability: FleetAvailability, row: int) -> bool:
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
def charge(availability: FleetAvailability, row: int) -> None:
    """Take the price of a machine that is not the cluster's yet from what its ceiling leaves."""
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
            free[group] += is_free(availability, row, need) and is_allowed(availability, row)
    return free


@lean_kernel
def head_of(pool: CandidatePool, group: int, availability: FleetAvailability, need: int) -> int:
    """The place in `rows` of the group's first machine that the need may acquire, or -1."""
    stop = pool.starts[group + 1]
    # Used machines stay used for this selection: do not walk past them again.
    while pool.first[group] < stop and availability.unavailable[pool.rows[pool.first[group]]]:
        pool.first[group] += 1
    for place in range(pool.first[group], stop):
        row = pool.rows[place]
        if is_free(availability, row, need) and is_allowed(availability, row):
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
        if eligible[group] and head_of(pool, group, availability, need) != NONE:
            for pod_class in own:
                if left[pod_class] > 0 and fits(pool.capacity, group, classes.sizes, pod_class):
                    return True
    return False
