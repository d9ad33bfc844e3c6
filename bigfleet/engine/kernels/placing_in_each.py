"""Kernel that places the pods of one priority of many clusters, one cluster after the other."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.placing import PASSES, place
from bigfleet.engine.kernels.scoring import (
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
    log_capacity,
    take,
)
from bigfleet.engine.snapshot import Floats, Longs
from bigfleet.jit import kernel, lean_kernel


@kernel
def _empty_log(entries: int) -> PlacementLog:
    return PlacementLog(
        np.empty(entries, np.int32), np.empty(entries, np.int32), np.empty(entries, np.int64)
    )


@lean_kernel
def _copy_log(source: PlacementLog, entries: int, log: PlacementLog, length: int) -> None:
    """Append the first entries of `source` to `log`, of which `length` is used."""
    for entry in range(entries):
        log.machine[length + entry] = source.machine[entry]
        log.pod_class[length + entry] = source.pod_class[entry]
        log.pods[length + entry] = source.pods[entry]


@kernel
def _with_room(log: PlacementLog, length: int, entries: int) -> PlacementLog:
    """The log, of which `length` is used, or a longer one with room for so many more entries."""
    if length + entries <= log.pods.shape[0]:
        return log
    longer = _empty_log(2 * (length + entries))
    _copy_log(log, length, longer, 0)
    return longer


@lean_kernel
def _place_as_before(
    before: PlacementLog,
    begin: int,
    end: int,
    machines: Machines,
    first: int,
    sizes: Longs,
    left: Longs,
    order: Longs,
    log: PlacementLog,
    length: int,
) -> None:
    """Place again what `before` has from `begin` to `end`, on the machines from `first` on; its
    classes are places in `order`.
    """
    for entry in range(begin, end):
        machine, pod_class = before.machine[entry], order[before.pod_class[entry]]
        pods = before.pods[entry]
        take(machines.free, first + machine, sizes, pod_class, pods)
        machines.has_pods[first + machine] = True
        left[pod_class] -= pods
        log.machine[length], log.pod_class[length], log.pods[length] = machine, pod_class, pods
        length += 1


@kernel
def _some(machines: Machines, begin: int, end: int) -> Machines:
    """The machines from `begin` to `end`, as views."""
    return Machines(
        machines.capacity[begin:end],
        machines.free[begin:end],
        machines.flavour[begin:end],
        machines.kind[begin:end],
        machines.max_priority[begin:end],
        machines.has_pods[begin:end],
        machines.last_claimed_by[begin:end],
    )


@kernel
def place_in_each(
    clusters: Longs,
    machines: Machines,
    start: Longs,
    classes: ClassColumns,
    priorities: Longs,
    share: Floats,
    left: Longs,
    order: Longs,
    order_start: Longs,
    priority: int,
    strategies: Floats,
    known: Longs,
    before: PlacementLog,
    before_start: Longs,
) -> tuple[PlacementLog, Longs]:
    """Place the pods of Q of P clusters as `place` does; `clusters` [Q] are their positions.

    `start` [P + 1] delimits each cluster's machines, `order_start` [Q + 1] the classes of each of
    the Q; `strategies` are [P, 3]. What is placed in those that are `known` [Q] is not computed:
    their part of `before`, which `before_start` [B + 1] delimits, is placed again; -1 stands for
    others. Returns a log of all placements, and where those of each of the Q begin and end [Q + 1].
    """
    most = 0
    for number in range(clusters.shape[0]):
        if known[number] < 0:
            its = order[order_start[number] : order_start[number + 1]]
            machines_of = start[clusters[number] + 1] - start[clusters[number]]
            most = max(most, PASSES * log_capacity(left, its, machines_of))
    # What one cluster needs at most is seldom used, and one after the other uses the same.
    some, log = _empty_log(most), _empty_log(2 * order.shape[0])
    log_start = np.zeros(clusters.shape[0] + 1, np.int64)
    for number in range(clusters.shape[0]):
        at, length = clusters[number], log_start[number]
        begin, end, found = start[at], start[at + 1], 0
        its = order[order_start[number] : order_start[number + 1]]
        if known[number] >= 0:
            first, last = before_start[known[number]], before_start[known[number] + 1]
            found = last - first
            log = _with_room(log, length, found)
            _place_as_before(
                before, first, last, machines, begin, classes.sizes, left, its, log, length
            )
        elif begin < end and left[its].any():
            found = place(
                _some(machines, begin, end),
                classes,
                priorities,
                share,
                left,
                its,
                priority,
                ScoringStrategy(strategies[at, 0], strategies[at, 1], strategies[at, 2]),
                some,
                0,
            )
            log = _with_room(log, length, found)
            _copy_log(some, found, log, length)
        log_start[number + 1] = length + found
    return log, log_start
