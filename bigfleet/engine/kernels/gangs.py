"""Kernel that leaves gangs where they are.

In a fleet at rest nearly every gang fits into the domain in which it has machines. These are
settled here, many at a time; a domain has to be chosen only for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import (
    ClassColumns,
    Machines,
    PlacementLog,
    fitting,
    take,
)
from bigfleet.engine.snapshot import NONE, Ints, Longs
from bigfleet.jit import kernel, lean_kernel

# Shares of a gang count in steps of this size when domains are compared.
GANG_SHARE_STEPS = 1 << 20


class Gangs(NamedTuple):
    """G gangs of one cluster in the order in which they are served."""

    #: [G] int64, index of the need
    need: Longs
    #: [G] int64, row of `codes`
    key: Longs
    #: [K, F] int32, the domain of each flavour for K topology keys, or NONE
    codes: Ints
    #: [K, M] int64, the cluster's machines by domain, in each in keep order
    by_domain: Longs
    #: [G + 1] int64, delimits each gang's part of `machine`
    start: Longs
    #: [O] int64, machines that the gangs had, in keep order
    machine: Longs


@lean_kernel
def _is_usable(
    machines: Machines, classes: ClassColumns, at: int, pod_class: int, priority: int
) -> bool:
    accepted = classes.accepted[classes.flavour_fit[pod_class], machines.flavour[at]]
    return bool(accepted and machines.max_priority[at] >= priority)


@lean_kernel
def _own_domain(
    gangs: Gangs, gang: int, machines: Machines, classes: ClassColumns, first: int, priority: int
) -> int:
    """The domain of all machines that the gang had and may still use; NONE if there is none, or
    more than one. `first` is its first class.
    """
    found = NONE
    for place in range(gangs.start[gang], gangs.start[gang + 1]):
        at = gangs.machine[place]
        code = gangs.codes[gangs.key[gang], machines.flavour[at]]
        if code == NONE or not _is_usable(machines, classes, at, first, priority):
            continue
        if found != NONE and code != found:
            return NONE
        found = code
    return found


@lean_kernel
def _place_before(gangs: Gangs, key: int, flavour: Ints, domain: int) -> int:
    """The place in `gangs.by_domain` of the first machine whose domain is at least `domain`."""
    low, high = 0, gangs.by_domain.shape[1]
    while low < high:
        middle = (low + high) >> 1
        if gangs.codes[key, flavour[gangs.by_domain[key, middle]]] < domain:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _machines_there(
    gangs: Gangs,
    gang: int,
    machines: Machines,
    classes: ClassColumns,
    first: int,
    priority: int,
    domain: int,
) -> tuple[Longs, int]:
    """The machines in `domain` that the gang may use, those that it had first; and how many of them
    it had.
    """
    key, need = gangs.key[gang], gangs.need[gang]
    start = _place_before(gangs, key, machines.flavour, domain)
    stop = _place_before(gangs, key, machines.flavour, domain + 1)
    found, number, own = np.empty(stop - start, np.int64), 0, 0
    for had in (True, False):
        for place in range(start, stop):
            at = gangs.by_domain[key, place]
            is_own = machines.last_claimed_by[at] == need
            if is_own == had and _is_usable(machines, classes, at, first, priority):
                found[number] = at
                number += 1
                own += had
    return found[:number], own


@kernel
def _fits(classes: ClassColumns, left: Longs, first: int, free: Longs, pods: Longs) -> bool:
    """Whether the pods left of the classes from `first` on fit into `free` [O, R], first fit.
    Writes to `pods` [Q, O] how many of each class each machine takes.
    """
    got = np.zeros(free.shape[0], np.int64)
    for place in range(pods.shape[0]):
        rest = left[first + place]
        for machine in range(free.shape[0]):
            if rest == 0:
                break
            room = fitting(free, machine, classes.sizes, first + place)
            some = min(rest, classes.most[first] - got[machine], room)
            take(free, machine, classes.sizes, first + place, some)
            pods[place, machine] = some
            got[machine] += some
            rest -= some
        if rest > 0:
            return False
    return True


@lean_kernel
def _has_own_share(classes: ClassColumns, left: Longs, first: int, pods: Longs, own: int) -> bool:
    """Whether the part of `pods` [Q, O] on the first `own` machines counts when domains are
    compared: then no other domain can be better.
    """
    share, resources = 0.0, classes.sizes.shape[1]
    for resource in range(resources):
        want, held = 0.0, 0.0
        for place in range(pods.shape[0]):
            size = float(classes.sizes[first + place, resource])
            want += left[first + place] * size
            for machine in range(own):
                held += pods[place, machine] * size
        if want > 0:
            share += held / want
    return bool(share * GANG_SHARE_STEPS > 1)


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
    """Place the gangs from `first` on, up to one that does not fit on its cluster's machines in the
    single domain in which it has some.

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
        domain = _own_domain(gangs, gang, machines, classes, begin, priority)
        if domain == NONE:
            return gang, length
        there, own = _machines_there(gangs, gang, machines, classes, begin, priority, domain)
        free = machines.free[there]
        pods = np.zeros((end - begin, there.shape[0]), np.int64)
        fits = _fits(classes, left, begin, free, pods)
        if not fits or not _has_own_share(classes, left, begin, pods, own):
            return gang, length
        domains[gang] = domain
        left[begin:end] = 0
        for place in range(end - begin):
            for machine in range(there.shape[0]):
                if pods[place, machine] > 0:
                    at = there[machine]
                    take(machines.free, at, classes.sizes, begin + place, pods[place, machine])
                    machines.has_pods[at] = True
                    log.machine[length], log.pod_class[length] = at, begin + place
                    log.pods[length] = pods[place, machine]
                    length += 1
    return gangs.need.shape[0], length
