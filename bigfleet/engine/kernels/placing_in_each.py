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
)
from bigfleet.engine.snapshot import Floats, Longs
from bigfleet.jit import kernel


@kernel
def _empty_log(entries: int) -> PlacementLog:
    return PlacementLog(
        np.empty(entries, np.int32), np.empty(entries, np.int32), np.empty(entries, np.int64)
    )


@kernel
def _copy_log(source: PlacementLog, entries: int, log: PlacementLog, length: int) -> PlacementLog:
    """Append the first entries of `source` to `log`, of which `length` is used; returns the log, or
    a longer one if they do not fit.
    """
    end = length + entries
    if end > log.pods.shape[0]:
        longer = _empty_log(2 * end)
        longer.machine[:length] = log.machine[:length]
        longer.pod_class[:length] = log.pod_class[:length]
        longer.pods[:length] = log.pods[:length]
        log = longer
    log.machine[length:end] = source.machine[:entries]
    log.pod_class[length:end] = source.pod_class[:entries]
    log.pods[length:end] = source.pods[:entries]
    return log


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
) -> tuple[PlacementLog, Longs]:
    """Place the pods of Q of P clusters as `place` does; `clusters` [Q] are their positions.

    `start` [P + 1] delimits each cluster's machines, `order_start` [Q + 1] the classes of each of
    the Q; `strategies` are [P, 3]. Returns a log of all placements, and where those of each of the
    Q begin and end [Q + 1].
    """
    most, pods = 0, 0
    for number in range(clusters.shape[0]):
        its = order[order_start[number] : order_start[number + 1]]
        machines_of = start[clusters[number] + 1] - start[clusters[number]]
        most = max(most, PASSES * log_capacity(left, its, machines_of))
        pods += its.shape[0]
    # What one cluster needs at most is seldom used, and one after the other uses the same.
    some, log = _empty_log(most), _empty_log(2 * pods)
    log_start = np.zeros(clusters.shape[0] + 1, np.int64)
    for number in range(clusters.shape[0]):
        at, length = clusters[number], log_start[number]
        begin, end, found = start[at], start[at + 1], 0
        its = order[order_start[number] : order_start[number + 1]]
        if begin < end and left[its].any():
            found = place(
                Machines(
                    machines.capacity[begin:end],
                    machines.free[begin:end],
                    machines.flavour[begin:end],
                    machines.kind[begin:end],
                    machines.max_priority[begin:end],
                    machines.has_pods[begin:end],
                    machines.last_claimed_by[begin:end],
                ),
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
            log = _copy_log(some, found, log, length)
        log_start[number + 1] = length + found
    return log, log_start
