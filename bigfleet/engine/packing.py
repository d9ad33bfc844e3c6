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
from bigfleet.kernels import kernel

_STEPS = 256
# Worse than any deviation: a GPU machine for a pod that asks for none.
_SCARCE_STEPS = 1 << 12
# A class of very many pods is placed in lots, so that its cost does not grow with their number.
_LOTS = 256
NO_LIMIT = int(np.iinfo(np.int64).max)


class Machines(NamedTuple):
    """M machines of one cluster: what they have for pods in all and what is left [M, R], CPU and
    memory in the first columns; their flavours; the highest priority that may use each
    (`open_from`); whether each holds any pods; and the need that the last decision counted it for.
    """

    capacity: Longs
    free: Longs
    flavour: Ints
    open_from: Longs
    opened: Flags
    wanted_by: Ints


class Manner(NamedTuple):
    """How machines are chosen: the parts of CPU and memory in use are compared times these factors,
    and a machine that holds nothing yet deviates by so much more.
    """

    cpu: float
    memory: float
    unopened: float


SPREAD = Manner(1.0, 1.0, 0.0)
# What gathering may strand: so large a part of a machine's CPU or memory.
_GATHERED = 0.1


def gathering(cpu: float, memory: float) -> Manner:
    """Gather the pods of a cluster that asks for such parts of its machines' CPU and memory."""
    most = max(cpu, memory)
    return Manner(memory / most, cpu / most, _GATHERED) if most > 0 else Manner(1.0, 1.0, _GATHERED)


class ClassColumns(NamedTuple):
    """C classes of equal pods: their need, what one pod asks for [C, R], how many pods of their
    need a machine takes, and the row in `accepted` and `scarce` [A, F] that says which flavours
    their need accepts and which of these have scarce resources that it does not ask for.
    """

    need: Ints
    sizes: Longs
    most: Longs
    candidacy: Ints
    accepted: Flags
    scarce: Flags


class Log(NamedTuple):
    """Entries, each so many pods of a class on a machine; more room than entries."""

    machine: Ints
    klass: Ints
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
def rank(machines: Machines, classes: ClassColumns, at: int, klass: int, manner: Manner) -> int:
    """How late machine `at` comes for one more pod of a class, the least first.

    By the proportion of what is then in use. Machines that the last decision counted for the same
    need are as good as those that hold pods already, and come first among equals.
    """
    capacity, free, size = machines.capacity[at], machines.free[at], classes.sizes[klass]
    cpu = 1 - (free[0] - size[0]) / capacity[0] if capacity[0] > 0 else 0.0
    memory = 1 - (free[1] - size[1]) / capacity[1] if capacity[1] > 0 else 0.0
    own = machines.wanted_by[at] == classes.need[klass]
    extra = 0.0 if own or machines.opened[at] else manner.unopened
    deviation = abs(cpu * manner.cpu - memory * manner.memory)
    steps = int(np.floor((deviation + extra) * _STEPS))
    if classes.scarce[classes.candidacy[klass], machines.flavour[at]]:
        steps += _SCARCE_STEPS
    return 2 * steps + (0 if own else 1)


@kernel
def has_room(machines: Machines, classes: ClassColumns, at: int, klass: int, priority: int) -> bool:
    """Whether machine `at`, which the class accepts, may take its pods and has room for one."""
    if machines.open_from[at] < priority:
        return False
    for resource in range(classes.sizes.shape[1]):
        if machines.free[at, resource] < classes.sizes[klass, resource]:
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
    klass: int,
    priority: int,
    manner: Manner,
    heap: Longs,
    got: Longs,
) -> None:
    """Place what is left of one class on machines `accepting` it; `got` [M] says how many pods each
    machine has got.
    """
    number, waiting = machines.flavour.shape[0], 0
    for at in accepting:
        if has_room(machines, classes, at, klass, priority):
            place = rank(machines, classes, at, klass, manner)
            waiting = _push(heap, waiting, place * number + at)
    lot = max(1, left[klass] // _LOTS)
    size = classes.sizes[klass]
    while left[klass] > 0 and waiting > 0:
        at = heap[0] % number
        waiting = _pop(heap, waiting)
        room = fitting(machines.free[at], size)
        machines.opened[at] = True
        while True:
            pods = min(lot, left[klass], room)
            take(machines.free[at], size, pods)
            left[klass] -= pods
            got[at] += pods
            room -= pods
            if room == 0 or left[klass] == 0:
                break
            key = rank(machines, classes, at, klass, manner) * number + at
            if waiting > 0 and heap[0] < key:
                waiting = _push(heap, waiting, key)
                break


@kernel
def note(log: Log, length: int, klass: int, got: Longs) -> int:
    """Write what machines have `got` of a class into the log, and reset it; the new length."""
    for at in range(got.shape[0]):
        if got[at] > 0:
            log.machine[length], log.klass[length], log.pods[length] = at, klass, got[at]
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
    manner: Manner,
    log: Log,
    length: int,
) -> int:
    """Place what is `left` [C] of the classes `order`, one class after the other.

    Of candidacy a, `accepting[ends[a]:ends[a + 1]]` are the machines that it accepts. Only those
    that are open from `priority` take part. Machines, `left` and the log change; the
    log's new length is returned. It must have `room_for_log`.
    """
    heap = np.empty(machines.flavour.shape[0] + 1, np.int64)
    got = np.zeros(machines.flavour.shape[0], np.int64)
    for klass in order:
        if left[klass] > 0:
            row = classes.candidacy[klass]
            its = accepting[ends[row] : ends[row + 1]]
            _pack_class(machines, classes, its, left, klass, priority, manner, heap, got)
            length = note(log, length, klass, got)
    return length


@kernel
def room_for_log(left: Longs, order: Longs, machines: int) -> int:
    """The most entries that placing the classes `order` may add."""
    room = 0
    for klass in order:
        room += min(left[klass], machines)
    return room


@kernel
def open_to(classes: ClassColumns, pending: Longs, pods: Longs, klass: int) -> int:
    """How many more pods of a class a machine may take that has `pods` [P] of the classes `pending`
    [P], whatever room it has: the limit is on all pods of one need.
    """
    most = classes.most[klass]
    if most < NO_LIMIT:
        for place in range(pending.shape[0]):
            if classes.need[pending[place]] == classes.need[klass]:
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
        klass = pending[place]
        if left[klass] > 0 and classes.accepted[classes.candidacy[klass], flavour]:
            size = classes.sizes[klass]
            some = min(fitting(free, size), left[klass], open_to(classes, pending, pods, klass))
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
