"""Kernel that leaves gangs where they are.

In a fleet at rest nearly every gang fits on the machines that it had before. These are settled
here, many at a time; a domain has to be chosen only for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import ClassColumns, Machines, PlacementLog
from bigfleet.engine.snapshot import NONE, Ints, Longs
from bigfleet.jit import kernel


class Gangs(NamedTuple):
    """G gangs of one cluster in the order in which they are served."""

    #: [G] int64, index of the need
    need: Longs
    #: [G] int64, row of `codes`
    key: Longs
    #: [K, F] int32, the domain of each flavour for K topology keys, or NONE
    codes: Ints
    #: [G + 1] int64, delimits each gang's part of `machine`
    start: Longs
    #: [O] int64, machines that the gangs had, in keep order
    machine: Longs


@kernel
def _own_domain(
    gangs: Gangs,
    gang: int,
    machines: Machines,
    classes: ClassColumns,
    row: int,
    priority: int,
    free: Longs,
) -> int:
    """The domain of all machines that the gang had and may still use; NONE if there is none, or
    more than one. Writes to `free` [O, R] what they have left, nothing for others.
    """
    found, first = NONE, gangs.start[gang]
    for place in range(gangs.start[gang + 1] - first):
        at = gangs.machine[first + place]
        flavour = machines.flavour[at]
        code = gangs.codes[gangs.key[gang], flavour]
        is_usable = classes.accepted[row, flavour] and machines.max_priority[at] >= priority
        if not is_usable or code == NONE:
            free[place] = 0
            continue
        if found != NONE and code != found:
            return NONE
        found = code
        free[place] = machines.free[at]
    return found


@kernel
def _take(free: Longs, place: int, sizes: Longs, pod_class: int, most: int) -> int:
    """Take as many pods of the class as fit into `free[place]`, at most `most`; returns how
    many.
    """
    pods = most
    for resource in range(sizes.shape[1]):
        size = sizes[pod_class, resource]
        if size > 0:
            pods = min(pods, free[place, resource] // size)
    for resource in range(sizes.shape[1]):
        free[place, resource] -= pods * sizes[pod_class, resource]
    return int(pods)


@kernel
def _fits(classes: ClassColumns, left: Longs, first: int, free: Longs, pods: Longs) -> bool:
    """Whether the pods left of the classes from `first` on fit into `free` [O, R], first fit.
    Writes to `pods` [Q, O] how many of each class each machine takes.
    """
    got = np.zeros(free.shape[0], np.int64)
    for place in range(pods.shape[0]):
        rest = left[first + place]
        for machine in range(free.shape[0]):
            most = min(rest, classes.most[first] - got[machine])
            some = _take(free, machine, classes.sizes, first + place, most)
            pods[place, machine] = some
            got[machine] += some
            rest -= some
        if rest > 0:
            return False
    return True


@kernel
def settle(
    gangs: Gangs,
    first: int,
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
    start: Longs,
    priority: int,
    domains: Longs,
    log: PlacementLog,
    length: int,
) -> tuple[int, int]:
    """Place the gangs from `first` on, up to one that does not fit on the machines that it had in a
    single domain.

    Returns the place of that one, G if there is none, and the log's new length. Updates the
    machines, `left` [C], the log, and `domains` [G], where those without pods to place have NONE.
    `start` [N + 1] delimits the needs' classes.
    """
    for gang in range(first, gangs.need.shape[0]):
        need = gangs.need[gang]
        begin, end = start[need], start[need + 1]
        domains[gang] = NONE
        if not left[begin:end].any():
            continue
        number, row = gangs.start[gang + 1] - gangs.start[gang], classes.flavour_fit[begin]
        free = np.empty((number, machines.free.shape[1]), np.int64)
        pods = np.zeros((end - begin, number), np.int64)
        domain = _own_domain(gangs, gang, machines, classes, row, priority, free)
        if domain == NONE or not _fits(classes, left, begin, free, pods):
            return gang, length
        domains[gang] = domain
        left[begin:end] = 0
        for place in range(end - begin):
            for machine in range(number):
                if pods[place, machine] > 0:
                    at = gangs.machine[gangs.start[gang] + machine]
                    machines.free[at] -= pods[place, machine] * classes.sizes[begin + place]
                    machines.has_pods[at] = True
                    log.machine[length], log.pod_class[length] = at, begin + place
                    log.pods[length] = pods[place, machine]
                    length += 1
    return gangs.need.shape[0], length
