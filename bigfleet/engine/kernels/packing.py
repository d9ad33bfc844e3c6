"""Kernels: which machines hold how many pods of which size.

A class goes to the machine whose CPU and memory it leaves used in the best proportion: of what one
of them is used up, the other is stranded. While there is room, that is the proportion in which the
cluster's pods ask for them, and machines that hold nothing yet come a little later, so that pods
gather on few machines. Where that way some pods find no place, the caller packs again for equal
parts, onto all machines alike, which strands least. Deviations are counted in steps of 1/256, so
that rounding noise decides nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import Flags, Floats, Ints, Longs
from bigfleet.jit import kernel

_STEPS = 256
# Worse than any deviation: a GPU machine for a pod that asks for none.
_SCARCE_STEPS = 1 << 12
# A class of very many pods is placed in lots, so that its cost does not grow with their number.
_MAX_BATCHES = 256
NO_LIMIT = int(np.iinfo(np.int64).max)


class Machines(NamedTuple):
    """M machines of one cluster: what they have for pods in all and what is left [M, R], CPU and
    memory in the first columns; their flavours; the highest priority that may use each
    (`max_priority`); whether each holds any pods; and the need that the last decision counted it
    for.
    """

    capacity: Longs
    free: Longs
    flavour: Ints
    max_priority: Longs
    has_pods: Flags
    last_claimed_by: Ints


class ScoringStrategy(NamedTuple):
    """How machines are chosen: the parts of CPU and memory in use are compared times these factors,
    and a machine that holds nothing yet deviates by so much more.
    """

    cpu: float
    memory: float
    empty_penalty: float


BALANCED = ScoringStrategy(1.0, 1.0, 0.0)
# What gathering may strand: so large a part of a machine's CPU or memory.
_EMPTY_PENALTY = 0.1


def consolidating(cpu: float, memory: float) -> ScoringStrategy:
    """Gather the pods of a cluster that asks for such parts of its machines' CPU and memory."""
    most = max(cpu, memory)
    return (
        ScoringStrategy(memory / most, cpu / most, _EMPTY_PENALTY)
        if most > 0
        else ScoringStrategy(1.0, 1.0, _EMPTY_PENALTY)
    )


class ClassColumns(NamedTuple):
    """C classes of equal pods: their need, what one pod asks for [C, R], how many pods of their
    need a machine takes, and the row in `accepted` and `scarce` [A, F] that says which flavours
    their need accepts and which of these have scarce resources that it does not ask for.
    """

    need: Ints
    sizes: Longs
    most: Longs
    flavour_fit: Ints
    accepted: Flags
    scarce: Flags


class PlacementLog(NamedTuple):
    """Entries, each so many pods of a class on a machine; more room than entries."""

    machine: Ints
    pod_class: Ints
    pods: Longs


@kernel
def fitting(free: Longs, size: Longs) -> int:
    """How many pods of `size` [R] go into `free` [R]."""
    most = NO_LIMIT
    for at in range(size.shape[0]):
        if size[at] > 0:
            most = min(most, free[at] // size[at])
    return most


@kernel
def take(free: Longs, size: Longs, pods: int) -> None:
    """Take what `pods` of `size` ask for from `free`; a negative number gives it back."""
    for at in range(size.shape[0]):
        free[at] -= pods * size[at]


@kernel
def rank(
    machines: Machines, classes: ClassColumns, at: int, pod_class: int, strategy: ScoringStrategy
) -> int:
    """How late machine `at` comes for one more pod of a class, the least first.

    By the proportion of what is then in use. Machines that the last decision counted for the same
    need are as good as those that hold pods already, and come first among equals.
    """
    capacity, free, size = machines.capacity[at], machines.free[at], classes.sizes[pod_class]
    cpu = 1 - (free[0] - size[0]) / capacity[0] if capacity[0] > 0 else 0.0
    memory = 1 - (free[1] - size[1]) / capacity[1] if capacity[1] > 0 else 0.0
    own = machines.last_claimed_by[at] == classes.need[pod_class]
    extra = 0.0 if own or machines.has_pods[at] else strategy.empty_penalty
    deviation = abs(cpu * strategy.cpu - memory * strategy.memory)
    steps = int(np.floor((deviation + extra) * _STEPS))
    if classes.scarce[classes.flavour_fit[pod_class], machines.flavour[at]]:
        steps += _SCARCE_STEPS
    return 2 * steps + (0 if own else 1)


@kernel
def has_room(
    machines: Machines, classes: ClassColumns, at: int, pod_class: int, priority: int
) -> bool:
    """Whether machine `at`, which the class accepts, may take its pods and has room for one."""
    if machines.max_priority[at] < priority:
        return False
    for resource in range(classes.sizes.shape[1]):
        if machines.free[at, resource] < classes.sizes[pod_class, resource]:
            return False
    return True


@kernel
def _push(heap: Longs, length: int, key: int) -> int:
    at = length
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= key:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = key
    return length + 1


@kernel
def _pop(heap: Longs, length: int) -> int:
    """Remove the least key, which is at the front; the new length."""
    length -= 1
    key = heap[length]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= length:
            break
        if child + 1 < length and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key
    return length


@kernel
def _pack_class(
    machines: Machines,
    classes: ClassColumns,
    accepting: Longs,
    left: Longs,
    pod_class: int,
    priority: int,
    strategy: ScoringStrategy,
    heap: Longs,
    got: Longs,
) -> None:
    """Place what is left of one class on machines `accepting` it; `got` [M] says how many pods each
    machine has got.
    """
    number, waiting = machines.flavour.shape[0], 0
    for at in accepting:
        if has_room(machines, classes, at, pod_class, priority):
            place = rank(machines, classes, at, pod_class, strategy)
            waiting = _push(heap, waiting, place * number + at)
    batch = max(1, left[pod_class] // _MAX_BATCHES)
    size = classes.sizes[pod_class]
    while left[pod_class] > 0 and waiting > 0:
        at = heap[0] % number
        waiting = _pop(heap, waiting)
        room = fitting(machines.free[at], size)
        machines.has_pods[at] = True
        while True:
            pods = min(batch, left[pod_class], room)
            take(machines.free[at], size, pods)
            left[pod_class] -= pods
            got[at] += pods
            room -= pods
            if room == 0 or left[pod_class] == 0:
                break
            key = rank(machines, classes, at, pod_class, strategy) * number + at
            if waiting > 0 and heap[0] < key:
                waiting = _push(heap, waiting, key)
                break


@kernel
def append_placements(log: PlacementLog, length: int, pod_class: int, got: Longs) -> int:
    """Write what machines have `got` of a class into the log, and reset it; the new length."""
    for at in range(got.shape[0]):
        if got[at] > 0:
            log.machine[length], log.pod_class[length], log.pods[length] = at, pod_class, got[at]
            length += 1
            got[at] = 0
    return length


@kernel
def pack(
    machines: Machines,
    classes: ClassColumns,
    accepting: Longs,
    ends: Longs,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    log: PlacementLog,
    length: int,
) -> int:
    """Place what is `left` [C] of the classes `order`, one class after the other.

    Of candidacy a, `accepting[ends[a]:ends[a + 1]]` are the machines that it accepts. Only those
    that are open from `priority` take part. Machines, `left` and the log change; the
    log's new length is returned. It must have `log_capacity`.
    """
    heap = np.empty(machines.flavour.shape[0] + 1, np.int64)
    got = np.zeros(machines.flavour.shape[0], np.int64)
    for pod_class in order:
        if left[pod_class] > 0:
            row = classes.flavour_fit[pod_class]
            its = accepting[ends[row] : ends[row + 1]]
            _pack_class(machines, classes, its, left, pod_class, priority, strategy, heap, got)
            length = append_placements(log, length, pod_class, got)
    return length


@kernel
def log_capacity(left: Longs, order: Longs, machines: int) -> int:
    """The most entries that placing the classes `order` may add."""
    room = 0
    for pod_class in order:
        room += min(left[pod_class], machines)
    return room


@kernel
def pods_allowed(classes: ClassColumns, pending: Longs, pods: Longs, pod_class: int) -> int:
    """How many more pods of a class a machine may take that has `pods` [P] of the classes `pending`
    [P], whatever room it has: the limit is on all pods of one need.
    """
    most = classes.most[pod_class]
    if most < NO_LIMIT:
        for place in range(pending.shape[0]):
            if classes.need[pending[place]] == classes.need[pod_class]:
                most -= pods[place]
    return int(most)


@kernel
def fill(
    free: Longs, flavour: int, classes: ClassColumns, left: Longs, pending: Longs, pods: Longs
) -> None:
    """How many pods of each `pending` class [P] one machine of `flavour` takes, in that order.

    `pods` [P] is written; `free` [R] changes.
    """
    pods[:] = 0
    for place in range(pending.shape[0]):
        pod_class = pending[place]
        if left[pod_class] > 0 and classes.accepted[classes.flavour_fit[pod_class], flavour]:
            size = classes.sizes[pod_class]
            some = min(
                fitting(free, size),
                left[pod_class],
                pods_allowed(classes, pending, pods, pod_class),
            )
            if some > 0:
                pods[place] = some
                take(free, size, some)


@kernel
def worth(pods: Longs, weights: Floats) -> float:
    """The sum of what `pods` [P] are worth by their `weights` [P]."""
    total = 0.0
    for place in range(pods.shape[0]):
        total += pods[place] * weights[place]
    return total
