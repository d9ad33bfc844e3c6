"""What a gang requests and which machines it might get, for kernels that choose its domain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import ClassColumns, Machines
from bigfleet.engine.snapshot import Bytes, Flags, Floats, Ints, Longs, Rows
from bigfleet.jit import kernel, lean_kernel

# Where a machine comes from: it served the gang before; it is the cluster's; it can be acquired; it
# is surplus or drains already; its pods must be evicted.
SOURCE_OWN, SOURCE_CLUSTER, SOURCE_ACQUIRABLE, SOURCE_SURPLUS, SOURCE_PREEMPTIBLE = range(5)
# Shares of a gang count in integral steps of this size when domains are compared, so that
# floating-point noise never breaks a tie.
STEPS = 1 << 20
# How many numbers are compared of two domains.
KEYS = 8


class GangPool(NamedTuple):
    """Machines beyond its cluster's that a gang might get: E groups of interchangeable ones, by
    domain.
    """

    #: [D + 1] int64, the first group of each domain, and the end of the last
    start: Longs
    #: [E + 1] int64, place in `rows` of the first machine of each group, and the end of the last
    begin: Longs
    #: [n] int64, rows of the fleet
    rows: Rows
    #: [E, R] int64, allocatable for pods
    capacity: Longs
    #: [E] uint8, SOURCE_*
    source: Bytes
    #: [E] int64, the domain of each group
    domain: Longs
    #: [E] int64, how many machines of each group are free for any need; updated
    free: Longs
    #: [D] int64, how many machines of each domain are free for any need or for some; updated
    there: Longs
    #: [E + 1] int64, place in `special` of the first machine of each group, and the end of the last
    special_begin: Longs
    #: rows of machines that are free for some needs and not for others
    special: Rows
    #: the largest number of groups in a domain, and of machines
    most: int
    largest: int


class GangRequest(NamedTuple):
    """The unplaced pods of a gang, and what its cluster has."""

    need: int
    #: code of the domain reserved for it, or NONE
    kept: int
    priority: int
    #: its classes, from the first to before the last
    first: int
    last: int
    #: how many pods it lacks
    pods: int
    #: in steps, over all resources: all of the gang, and the smallest of its pods
    whole: float
    smallest: float
    #: [Q] float64, the share of the gang that one pod of each class is, over all resources
    weights: Floats
    #: [R] float64, what it requests in total
    want: Floats
    #: [F] int32, the domain of each flavour, or NONE
    codes: Ints
    #: [M] int64, its cluster's machines by domain, in each in keep order
    by_domain: Longs
    #: [M] int64, for each of them the place after the last one in its domain
    end: Longs
    #: [8] float64, of the best domain so far
    best: Floats
    #: [8] float64, of the domain that is looked at
    keys: Floats
    #: [G] int64, how many machines of each group of that domain are free
    free: Longs
    #: [X, R] int64, what the machines of that domain have free, in the order in which the gang uses
    #: them; [X] uint8, SOURCE_*; and [X] int64, pods that they have got
    room: Longs
    source: Bytes
    got: Longs
    #: [5] float64, the share of the gang by source
    served: Floats


@kernel
def recount(pool: GangPool, groups: Longs, unavailable: Flags, special: Flags) -> None:
    """Count again the free machines of these groups. Of the fleet's [n], those `unavailable` are
    not free, and `special` ones not for all needs.
    """
    for group in groups:
        free = 0
        for place in range(pool.begin[group], pool.begin[group + 1]):
            row = pool.rows[place]
            free += not (special[row] or unavailable[row])
        pool.there[pool.domain[group]] += free - pool.free[group]
        pool.free[group] = free


@lean_kernel
def is_usable(
    machines: Machines, classes: ClassColumns, at: int, pod_class: int, priority: int
) -> bool:
    """Whether a need of this priority may place pods of the class on the machine."""
    accepted = classes.accepted[classes.flavour_fit[pod_class], machines.flavour[at]]
    return bool(accepted and machines.max_priority[at] >= priority)


@kernel
def request_of(
    need: int,
    kept: int,
    priority: int,
    first: int,
    last: int,
    codes: Ints,
    by_domain: Longs,
    end: Longs,
    classes: ClassColumns,
    left: Longs,
    pool: GangPool,
) -> GangRequest:
    """The request of a gang whose unplaced pods are `left` [C]."""
    resources = classes.sizes.shape[1]
    want, weights, pods = np.zeros(resources), np.zeros(last - first), 0
    for pod_class in range(first, last):
        pods += left[pod_class]
        for resource in range(resources):
            want[resource] += float(left[pod_class] * classes.sizes[pod_class, resource])
    for pod_class in range(first, last):
        for resource in range(resources):
            if want[resource] > 0:
                weights[pod_class - first] += classes.sizes[pod_class, resource] / want[resource]
    whole, smallest = 0.0, np.inf
    for pod_class in range(first, last):
        whole += left[pod_class] * weights[pod_class - first]
        if left[pod_class] > 0:
            smallest = min(smallest, weights[pod_class - first] * STEPS)
    # Of each group as many machines as it has pods; these may be more than there are machines.
    most = by_domain.shape[0] + min(pool.largest, pool.most * min(pods, pool.largest))
    return GangRequest(
        need, kept, priority, first, last, pods, steps(whole), smallest, weights, want, codes,
        by_domain, end, np.full(KEYS, np.inf), np.empty(KEYS), np.empty(pool.most, np.int64),
        np.empty((most, resources), np.int64), np.empty(most, np.uint8), np.empty(most, np.int64),
        np.empty(SOURCE_PREEMPTIBLE + 1),
    )  # fmt: skip


@lean_kernel
def steps(share: float) -> float:
    """A share of a gang in integral steps."""
    return float(np.rint(share * STEPS))
