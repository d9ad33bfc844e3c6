"""Scores of machines for pods, and what kernels read of machines and pods.

A pod goes to the machine on which it leaves CPU and memory utilization best balanced: once either
is exhausted, the rest of the other is unusable. The first pass balances in the ratio of the
cluster's requests and prefers machines that hold pods, so that pods are consolidated. If some pods
stay unplaced, the caller packs again for equal utilization without that preference, which wastes
least. Scores are rounded to steps of 1/256, so that floating-point noise never breaks a tie.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import Flags, Floats, Ints, Longs
from bigfleet.jit import lean_kernel

_STEPS = 256
# Outweighs any imbalance: a GPU machine for a pod that requests no GPU.
_SCARCE_STEPS = 1 << 12
# All ranks have fewer bits: imbalance and the penalty for empty machines are at most 2.
RANK_BITS = 14
NO_LIMIT = int(np.iinfo(np.int64).max)


class Machines(NamedTuple):
    """M machines of one cluster."""

    #: [M, R] int64, allocatable for pods; CPU and memory are the first columns
    capacity: Longs
    #: [M, R] int64, what is left of `capacity`
    free: Longs
    #: [M] int32, index of the flavour
    flavour: Ints
    #: [M] int32, equal for machines with equal capacity that the same needs accept
    kind: Ints
    #: [M] int64, the highest priority that may use the machine
    max_priority: Longs
    #: [M] bool, the machine holds pods
    has_pods: Flags
    #: [M] int32, the need that claimed the machine in the last decision, or NONE
    last_claimed_by: Ints


class ScoringStrategy(NamedTuple):
    """Weights of a machine's imbalance: |CPU utilization x `cpu` - memory utilization x `memory`|,
    plus `empty_penalty` for a machine without pods.
    """

    cpu: float
    memory: float
    empty_penalty: float


BALANCED = ScoringStrategy(1.0, 1.0, 0.0)
# The fraction of a machine's CPU or memory that consolidation may leave unusable.
_EMPTY_PENALTY = 0.1


def consolidating(cpu: float, memory: float) -> ScoringStrategy:
    """The strategy for a cluster that requests these fractions of its machines' CPU and memory."""
    most = max(cpu, memory)
    return (
        ScoringStrategy(memory / most, cpu / most, _EMPTY_PENALTY)
        if most > 0
        else ScoringStrategy(1.0, 1.0, _EMPTY_PENALTY)
    )


class ClassColumns(NamedTuple):
    """C equivalence classes of pods."""

    #: [C] int32, index of the need
    need: Ints
    #: [C, R] int64, requests of one pod
    sizes: Longs
    #: [C] int64, how many pods of the class's need one machine takes
    most: Longs
    #: [C] int32, row of `accepted` and `scarce`
    flavour_fit: Ints
    #: [A, F] bool, the need accepts the flavour
    accepted: Flags
    #: [A, F] bool, the flavour has a scarce resource that the need does not request
    scarce: Flags


class PlacementLog(NamedTuple):
    """Append-only log of placements, allocated beyond its length."""

    #: [L] int32, index among the cluster's machines
    machine: Ints
    #: [L] int32, index of the class
    pod_class: Ints
    #: [L] int64, how many pods; 0 for a placement that was undone
    pods: Longs


@lean_kernel
def fitting(free: Longs, at: int, sizes: Longs, pod_class: int) -> int:
    """How many pods of `sizes[pod_class]` fit into `free[at]`."""
    most = NO_LIMIT
    for resource in range(sizes.shape[1]):
        size = sizes[pod_class, resource]
        if size > 0:
            most = min(most, free[at, resource] // size)
    return most


@lean_kernel
def fits(free: Longs, at: int, sizes: Longs, pod_class: int) -> bool:
    """Whether a pod of `sizes[pod_class]` fits into `free[at]`."""
    for resource in range(sizes.shape[1]):
        if free[at, resource] < sizes[pod_class, resource]:
            return False
    return True


@lean_kernel
def take(free: Longs, at: int, sizes: Longs, pod_class: int, pods: int) -> None:
    """Subtract the requests of `pods` pods of `sizes[pod_class]` from `free[at]`."""
    for resource in range(sizes.shape[1]):
        free[at, resource] -= pods * sizes[pod_class, resource]


@lean_kernel
def utilization(capacity: int, free: int) -> float:
    """The used share of a resource; 0 if the machine has none of it."""
    return 1 - free / capacity if capacity > 0 else 0.0


@lean_kernel
def rank_of(
    cpu: float, memory: float, own: bool, has_pods: bool, is_scarce: bool, strategy: ScoringStrategy
) -> int:
    """The score of a machine, the lowest is best, that one more pod would use to these shares of
    its `cpu` and `memory`.

    `own` machines are those that the pod's need claimed in the last decision; `is_scarce` is a
    machine with a resource that others need more.
    """
    # The need's own machines count as machines with pods, and win ties: pods stay where they are.
    extra = 0.0 if own or has_pods else strategy.empty_penalty
    deviation = abs(cpu * strategy.cpu - memory * strategy.memory)
    steps = int(np.floor((deviation + extra) * _STEPS))
    if is_scarce:
        steps += _SCARCE_STEPS
    return 2 * steps + (0 if own else 1)


@lean_kernel
def rank(
    machines: Machines, classes: ClassColumns, at: int, pod_class: int, strategy: ScoringStrategy
) -> int:
    """The score of machine `at` for one more pod of a class; the lowest is best."""
    sizes = classes.sizes
    return rank_of(
        utilization(machines.capacity[at, 0], machines.free[at, 0] - sizes[pod_class, 0]),
        utilization(machines.capacity[at, 1], machines.free[at, 1] - sizes[pod_class, 1]),
        machines.last_claimed_by[at] == classes.need[pod_class],
        machines.has_pods[at],
        classes.scarce[classes.flavour_fit[pod_class], machines.flavour[at]],
        strategy,
    )


@lean_kernel
def has_room(
    machines: Machines, classes: ClassColumns, at: int, pod_class: int, priority: int
) -> bool:
    """Whether machine `at`, which the class accepts, may take a pod of `priority` and has room."""
    # Acquired for a lower priority after this one had its turn, or removed.
    return bool(
        machines.max_priority[at] >= priority and fits(machines.free, at, classes.sizes, pod_class)
    )


@lean_kernel
def push(heap: Longs, length: int, key: int) -> int:
    """Add `key` to a heap; returns its new length."""
    return push_at(heap, 0, length, key)


@lean_kernel
def push_at(heaps: Longs, begin: int, length: int, key: int) -> int:
    """Add `key` to the heap that begins at `heaps[begin]`; returns its new length."""
    at = length
    while at > 0:
        parent = (at - 1) >> 1
        if heaps[begin + parent] <= key:
            break
        heaps[begin + at] = heaps[begin + parent]
        at = parent
    heaps[begin + at] = key
    return length + 1


@lean_kernel
def pop(heap: Longs, length: int) -> int:
    """Remove the smallest key, which is at the front; returns the new length."""
    return pop_at(heap, 0, length)


@lean_kernel
def pop_at(heaps: Longs, begin: int, length: int) -> int:
    """Remove the smallest key of the heap that begins at `heaps[begin]`; returns the new length."""
    sift(heaps, begin, length - 1, heaps[begin + length - 1])
    return length - 1


@lean_kernel
def sift(heaps: Longs, begin: int, length: int, key: int) -> None:
    """Replace the smallest key of the heap that begins at `heaps[begin]` by `key`."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= length:
            break
        if child + 1 < length and heaps[begin + child + 1] < heaps[begin + child]:
            child += 1
        if heaps[begin + child] >= key:
            break
        heaps[begin + at] = heaps[begin + child]
        at = child
    heaps[begin + at] = key


@lean_kernel
def append_placements(log: PlacementLog, length: int, pod_class: int, got: Longs) -> int:
    """Append the pods that machines `got` of a class to the log, and reset `got`; returns the new
    length.
    """
    for at in range(got.shape[0]):
        if got[at] > 0:
            log.machine[length], log.pod_class[length], log.pods[length] = at, pod_class, got[at]
            length += 1
            got[at] = 0
    return length


@lean_kernel
def log_capacity(left: Longs, order: Longs, machines: int) -> int:
    """The upper bound of entries that placing the classes `order` adds."""
    room = 0
    for pod_class in order:
        room += min(left[pod_class], machines)
    return room


@lean_kernel
def pods_allowed(classes: ClassColumns, pending: Longs, pods: Longs, pod_class: int) -> int:
    """How many more pods of a class a machine with `pods` [P] of the classes `pending` [P] may
    take, its free capacity aside.
    """
    most = classes.most[pod_class]
    if most < NO_LIMIT:
        # Anti-affinity binds all sizes of a need together.
        for place in range(pending.shape[0]):
            if classes.need[pending[place]] == classes.need[pod_class]:
                most -= pods[place]
    return int(most)


@lean_kernel
def fill(
    free: Longs,
    at: int,
    flavour: int,
    classes: ClassColumns,
    left: Longs,
    pending: Longs,
    pods: Longs,
) -> None:
    """Fill one machine of `flavour` with the `pending` classes [P], in that order.

    Writes to `pods` [P] how many of each it takes, and updates `free[at]`.
    """
    pods[:] = 0
    for place in range(pending.shape[0]):
        pod_class = pending[place]
        if left[pod_class] > 0 and classes.accepted[classes.flavour_fit[pod_class], flavour]:
            some = min(
                fitting(free, at, classes.sizes, pod_class),
                left[pod_class],
                pods_allowed(classes, pending, pods, pod_class),
            )
            if some > 0:
                pods[place] = some
                take(free, at, classes.sizes, pod_class, some)


@lean_kernel
def worth(pods: Longs, weights: Floats) -> float:
    """The sum of `pods` [P] times their `weights` [P]."""
    total = 0.0
    for place in range(pods.shape[0]):
        total += pods[place] * weights[place]
    return total
