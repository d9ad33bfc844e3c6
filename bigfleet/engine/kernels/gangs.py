"""Kernel that places gangs in the domains that can hold them, many at a time."""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.kernels.candidate_pool import FleetAvailability
from bigfleet.engine.kernels.gang_domains import choose, own_domain
from bigfleet.engine.kernels.gang_request import GangPool, GangRequest, is_usable, request_of
from bigfleet.engine.kernels.scoring import ClassColumns, Machines, PlacementLog, fitting, take
from bigfleet.engine.snapshot import NONE, Ints, Longs
from bigfleet.jit import kernel, lean_kernel


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
    #: [K, M] int64, for each of them the place after the last one in its domain
    end: Longs


@lean_kernel
def _first_in(request: GangRequest, domain: int, flavour: Ints) -> int:
    """The place in `by_domain` of the first machine whose domain is at least `domain`."""
    low, high = 0, request.by_domain.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if request.codes[flavour[request.by_domain[middle]]] < domain:
            low = middle + 1
        else:
            high = middle
    return low


@lean_kernel
def _place(
    request: GangRequest,
    domain: int,
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
    log: PlacementLog,
    length: int,
) -> int:
    """Place the gang on its cluster's machines in a domain, its own first, as far as they hold it;
    returns the log's new length.
    """
    start = _first_in(request, domain, machines.flavour)
    stop = _first_in(request, domain + 1, machines.flavour)
    most = classes.most[request.first]
    for place in range(start, stop):
        request.got[place] = 0
    for pod_class in range(request.first, request.last):
        for own in (True, False):
            for place in range(start, stop):
                at = request.by_domain[place]
                if (machines.last_claimed_by[at] == request.need) != own or not is_usable(
                    machines, classes, at, request.first, request.priority
                ):
                    continue
                room = fitting(machines.free, at, classes.sizes, pod_class)
                pods = min(left[pod_class], most - request.got[place], room)
                if pods > 0:
                    request.got[place] += pods
                    left[pod_class] -= pods
                    _record(machines, classes, at, pod_class, pods, log, length)
                    length += 1
    return length


@lean_kernel
def _record(
    machines: Machines,
    classes: ClassColumns,
    at: int,
    pod_class: int,
    pods: int,
    log: PlacementLog,
    length: int,
) -> None:
    take(machines.free, at, classes.sizes, pod_class, pods)
    machines.has_pods[at] = True
    log.machine[length], log.pod_class[length], log.pods[length] = at, pod_class, pods


@kernel
def settle(
    gangs: Gangs,
    first: int,
    last: int,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
    start: Longs,
    priority: int,
    domains: Longs,
    log: PlacementLog,
    length: int,
) -> tuple[int, int]:
    """Choose the domains of the gangs from `first` to `last`, and place what their cluster's
    machines there hold, up to a gang that no domain can hold; if the pool has no domains, up to one
    whose choice depends on what it might acquire.

    Returns the place of that one, `last` if there is none, and the log's new length. Updates the
    machines, `left` [C], the log, and `domains` [G], where those without pods to place, or without
    any domain, have NONE. `start` [N + 1] delimits the needs' classes.
    """
    for gang in range(first, last):
        need, key = gangs.need[gang], gangs.key[gang]
        begin, end = start[need], start[need + 1]
        domains[gang] = NONE
        if not left[begin:end].any():
            continue
        request = request_of(
            need, NONE, priority, begin, end, gangs.codes[key], gangs.by_domain[key],
            gangs.end[key], classes, left, pool,
        )  # fmt: skip
        domains[gang] = own_domain(request, pool, machines, classes, left)
        if domains[gang] == NONE:
            if pool.start.shape[0] == 1:
                return gang, length
            domains[gang], whole = choose(request, pool, machines, classes, availability, left)
            if not whole:
                return gang, length
        length = _place(request, domains[gang], machines, classes, left, log, length)
    return last, length
