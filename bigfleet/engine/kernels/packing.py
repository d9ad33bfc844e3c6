"""Kernel that packs pods onto machines, group by group.

Machines in the same state are interchangeable, so a whole group of them is scored once and takes
pods in one step. Pods go to the machine with the lowest rank (`scoring.rank_of`), of equal ones to
the first. So as long as there are pods, all machines of the lowest rank are filled until their rank
is higher; if there are too few pods for that, the first machines get them and the group is split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.machine_groups import (
    Groups,
    give,
    group_machines,
    least_requests,
    log_class,
    relevant_claims,
    split,
    write_back,
)
from bigfleet.engine.kernels.scoring import (
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
    fits,
    fitting,
    pop,
    push,
    rank_of,
    take,
    utilization,
)
from bigfleet.engine.snapshot import Longs
from bigfleet.jit import kernel, lean_kernel

# Large classes are placed in batches, so that the cost does not grow with the number of pods.
_MAX_BATCHES = 256


class _Tied(NamedTuple):
    """Groups of the same rank, up to M."""

    #: [M] int64
    group: Longs
    #: [M] int64, how many pods each machine takes until its rank is higher
    pods: Longs
    #: [M] int64, its rank then; -1 if it is full
    rank: Longs
    #: [M, R] int64, what it has left then
    after: Longs
    #: [M] int64, how many of its machines got pods, if there are too few for all
    filled: Longs
    #: [M] int64, heap of the groups' next machines
    heap: Longs


@lean_kernel
def _fill_one(
    capacity: Longs,
    at: int,
    free: Longs,
    place: int,
    sizes: Longs,
    pod_class: int,
    own: bool,
    is_scarce: bool,
    strategy: ScoringStrategy,
    pods: int,
    batch: int,
    level: int,
) -> tuple[int, int]:
    """Fill a machine like `at` from `free[place]`, which is updated, with at most `pods` pods,
    until its rank is above `level`. Returns how many it got, and its rank; -1 if it is full.
    """
    room, got, found = fitting(free, place, sizes, pod_class), 0, -1
    cpu, memory = free[place, 0], free[place, 1]
    while True:
        some = min(batch, pods - got, room - got)
        got += some
        if got == room:
            break
        found = rank_of(
            utilization(capacity[at, 0], cpu - (got + 1) * sizes[pod_class, 0]),
            utilization(capacity[at, 1], memory - (got + 1) * sizes[pod_class, 1]),
            own,
            True,
            is_scarce,
            strategy,
        )
        if found > level or got == pods:
            break
    take(free, place, sizes, pod_class, got)
    return got, -1 if got == room else found


@lean_kernel
def _count_filled(groups: Groups, tied: _Tied, number: int, pods: int) -> int:
    """Count in `tied.filled` how many machines of each of the `number` groups get all that they
    take, the first machines first. Returns the place of the group whose machine is next.
    """
    heap, filled = tied.heap, tied.filled
    for place in range(number):
        filled[place] = 0
        push(heap, place, groups.machine[groups.begin[tied.group[place]]] * number + place)
    waiting, last = number, heap[0] % number
    while pods >= tied.pods[last]:
        waiting = pop(heap, waiting)
        filled[last] += 1
        pods -= tied.pods[last]
        following = groups.begin[tied.group[last]] + filled[last]
        if following < groups.end[tied.group[last]]:
            waiting = push(heap, waiting, groups.machine[following] * number + last)
        last = heap[0] % number
    return int(last)


@lean_kernel
def _fill_first(
    groups: Groups, tied: _Tied, number: int, sizes: Longs, pod_class: int, pods: int
) -> None:
    """Give `pods` pods to the first machines of the `number` groups `tied`, too few for all."""
    last, rest, filled = _count_filled(groups, tied, number, pods), pods, tied.filled
    for place in range(number):
        rest -= filled[place] * tied.pods[place]
    for place in range(number):
        group, begin = tied.group[place], groups.begin[tied.group[place]]
        later = split(groups, group, begin + filled[place])
        if filled[place] > 0:
            give(groups, group, tied.after, place, tied.pods[place])
        if place == last and rest > 0:
            # Fewer than would raise its rank: this machine gets all of them.
            split(groups, later, groups.begin[later] + 1)
            for resource in range(sizes.shape[1]):
                tied.after[place, resource] = (
                    groups.free[later, resource] - rest * sizes[pod_class, resource]
                )
            give(groups, later, tied.after, place, rest)


@lean_kernel
def _queue_groups(
    groups: Groups,
    machines: Machines,
    classes: ClassColumns,
    pod_class: int,
    strategy: ScoringStrategy,
    only_own: bool,
    heap: Longs,
) -> int:
    """Push the rank of each group that can take a pod of the class; returns how many there are."""
    sizes, row, queued = classes.sizes, classes.flavour_fit[pod_class], 0
    need = classes.need[pod_class]
    for group in range(groups.number[0]):
        # First what most groups lack, and what lies side by side.
        if not fits(groups.free, group, sizes, pod_class):
            continue
        at = groups.machine[groups.begin[group]]
        flavour, own = machines.flavour[at], machines.last_claimed_by[at] == need
        if classes.accepted[row, flavour] and (own or not only_own):
            place = rank_of(
                utilization(machines.capacity[at, 0], groups.free[group, 0] - sizes[pod_class, 0]),
                utilization(machines.capacity[at, 1], groups.free[group, 1] - sizes[pod_class, 1]),
                own,
                groups.has_pods[group],
                classes.scarce[row, flavour],
                strategy,
            )
            queued = push(heap, queued, place * machines.flavour.shape[0] + group)
    return queued


@lean_kernel
def _place_class(
    groups: Groups,
    machines: Machines,
    classes: ClassColumns,
    pods: int,
    pod_class: int,
    strategy: ScoringStrategy,
    only_own: bool,
    heap: Longs,
    tied: _Tied,
) -> int:
    """Place `pods` pods of one class; returns how many have no place."""
    total, sizes, need = machines.flavour.shape[0], classes.sizes, classes.need[pod_class]
    row, batch = classes.flavour_fit[pod_class], max(1, pods // _MAX_BATCHES)
    waiting = _queue_groups(groups, machines, classes, pod_class, strategy, only_own, heap)
    while pods > 0 and waiting > 0:
        level, number, wanted = heap[0] // total, 0, 0
        while waiting > 0 and heap[0] // total == level:
            group = heap[0] % total
            waiting = pop(heap, waiting)
            at = groups.machine[groups.begin[group]]
            for resource in range(sizes.shape[1]):
                tied.after[number, resource] = groups.free[group, resource]
            tied.group[number] = group
            tied.pods[number], tied.rank[number] = _fill_one(
                machines.capacity,
                at,
                tied.after,
                number,
                sizes,
                pod_class,
                machines.last_claimed_by[at] == need,
                classes.scarce[row, machines.flavour[at]],
                strategy,
                pods,
                batch,
                level,
            )
            wanted += tied.pods[number] * (groups.end[group] - groups.begin[group])
            number += 1
        if wanted > pods:
            _fill_first(groups, tied, number, sizes, pod_class, pods)
            return 0
        pods -= wanted
        for place in range(number):
            group = tied.group[place]
            give(groups, group, tied.after, place, tied.pods[place])
            if tied.rank[place] >= 0:
                waiting = push(heap, waiting, tied.rank[place] * total + group)
    return pods


@kernel
def pack_groups(
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    only_own: bool,
    log: PlacementLog,
    length: int,
) -> tuple[Groups, int]:
    """As `pack`, but the machines stay as they are: returns the groups to `write_back`, and the
    log's new length.
    """
    claims, least = (
        relevant_claims(machines, classes, left, order), least_requests(classes, left, order)
    )  # fmt: skip
    groups = group_machines(machines, claims, priority, least)
    total, resources = machines.free.shape
    heap = np.empty(total + 1, np.int64)
    tied = _Tied(
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty((total, resources), np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
    )
    for pod_class in order:
        if left[pod_class] > 0:
            left[pod_class] = _place_class(
                groups,
                machines,
                classes,
                left[pod_class],
                pod_class,
                strategy,
                only_own,
                heap,
                tied,
            )
            length = log_class(groups, log, length, pod_class)
    return groups, length


@kernel
def pack(
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    only_own: bool,
    log: PlacementLog,
    length: int,
) -> int:
    """Place the pods `left` [C] of the classes `order`, one class after the other, on machines that
    pods of `priority` may use.

    Updates the machines, `left` and the log, which must have `log_capacity` to spare; returns the
    log's new length. With `only_own` each need gets only machines that it claimed in the last
    decision.
    """
    groups, end = pack_groups(
        machines, classes, left, order, priority, strategy, only_own, log, length
    )  # fmt: skip
    write_back(groups, machines)
    return end
