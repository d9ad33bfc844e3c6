"""Kernels that count the machines of a topology domain, and pack a gang into it."""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.kernels.candidate_pool import FleetAvailability, is_free
from bigfleet.engine.kernels.gang_request import (
    SOURCE_ACQUIRABLE,
    SOURCE_CLUSTER,
    SOURCE_OWN,
    SOURCE_PREEMPTIBLE,
    SOURCE_SURPLUS,
    GangPool,
    GangRequest,
    is_usable,
    steps,
)
from bigfleet.engine.kernels.scoring import ClassColumns, Machines, fitting, take
from bigfleet.engine.snapshot import Floats, Longs
from bigfleet.jit import lean_kernel

# What is compared of two domains, the lowest is best: whether a part of the gang has no place;
# whether another one is reserved for it; three shares of it; the capacity; the machines; the code.
INCOMPLETE, NOT_RESERVED, _ROOM, _MACHINES, CODE = 0, 1, 5, 6, 7


class GangDomain(NamedTuple):
    """A domain in which a gang might be."""

    code: int
    #: its cluster's machines there: places in `by_domain`
    start: int
    stop: int
    #: its groups
    first: int
    last: int


@lean_kernel
def _room(free: Longs, at: int, want: Floats) -> float:
    """The capacity of a machine in shares of the gang."""
    share = 0.0
    for resource in range(want.shape[0]):
        if want[resource] > 0:
            share += free[at, resource] / want[resource]
    return steps(share)


@lean_kernel
def code_at(request: GangRequest, machines: Machines, place: int) -> int:
    """The domain of the cluster's machine at a place in `by_domain`."""
    return int(request.codes[machines.flavour[request.by_domain[place]]])


@lean_kernel
def has_own(
    request: GangRequest, machines: Machines, classes: ClassColumns, start: int, stop: int
) -> bool:
    """Whether one of these machines is the gang's own, and it may still use it."""
    for place in range(start, stop):
        at = request.by_domain[place]
        if machines.last_claimed_by[at] == request.need and is_usable(
            machines, classes, at, request.first, request.priority
        ):
            return True
    return False


@lean_kernel
def clusters_part(request: GangRequest, machines: Machines, start: int) -> GangDomain:
    """The domain that begins at `start` in `by_domain`, with its cluster's machines alone."""
    return GangDomain(code_at(request, machines, start), start, request.end[start], 0, 0)


@lean_kernel
def domain_of(
    request: GangRequest, pool: GangPool, machines: Machines, code: int, start: int
) -> GangDomain:
    """The domain `code`; its cluster's machines there, if any, begin at `start`."""
    stop = start
    if start < request.by_domain.shape[0] and code_at(request, machines, start) == code:
        stop = request.end[start]
    return GangDomain(code, start, stop, pool.start[code], pool.start[code + 1])


@lean_kernel
def count(
    request: GangRequest, domain: GangDomain, pool: GangPool, availability: FleetAvailability
) -> int:
    """Count the machines of each group of a domain that are free for the gang; returns the sum."""
    number = 0
    for group in range(domain.first, domain.last):
        free = pool.free[group]
        for place in range(pool.special_begin[group], pool.special_begin[group + 1]):
            free += is_free(availability, pool.special[place], request.need)
        request.free[group - domain.first] = free
        number += free
    return int(number)


@lean_kernel
def could_hold(
    request: GangRequest,
    domain: GangDomain,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
) -> bool:
    """Whether the machines of a domain have as much capacity in total as the gang requests."""
    for resource in range(request.want.shape[0]):
        missing = request.want[resource]
        for group in range(domain.first, domain.last):
            missing -= request.free[group - domain.first] * pool.capacity[group, resource]
        for place in range(domain.start, domain.stop):
            if missing <= 0:
                break
            at = request.by_domain[place]
            if is_usable(machines, classes, at, request.first, request.priority):
                missing -= machines.free[at, resource]
        if missing > 0:
            return False
    return True


@lean_kernel
def survey(
    request: GangRequest,
    domain: GangDomain,
    number: int,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
) -> bool:
    """Enter in `keys` what follows from the machines of a domain, of which `number` are beyond its
    cluster's; False if there are none.
    """
    keys, room = request.keys, 0.0
    for place in range(domain.start, domain.stop):
        at = request.by_domain[place]
        if is_usable(machines, classes, at, request.first, request.priority):
            number += 1
            room += _room(machines.free, at, request.want)
    for group in range(domain.first, domain.last):
        free = request.free[group - domain.first]
        if free > 0:
            room += _room(pool.capacity, group, request.want) * free
    keys[INCOMPLETE], keys[NOT_RESERVED] = 0, domain.code != request.kept
    keys[_ROOM], keys[_MACHINES], keys[CODE] = room, -number, domain.code
    return number > 0


@lean_kernel
def pack(
    request: GangRequest,
    domain: GangDomain,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
) -> bool:
    """Pack the gang into a domain, first fit, largest pods first: onto its own machines, those of
    its cluster, then the others. Enters in `keys` how it is served; returns whether all of it is.
    """
    number, unplaced = _line_up(request, domain, pool, machines, classes), 0
    most, served = classes.most[request.first], request.served
    for source in range(served.shape[0]):
        served[source] = 0.0
    for pod_class in range(request.first, request.last):
        rest = left[pod_class]
        for at in range(number):
            if rest == 0:
                break
            room = fitting(request.room, at, classes.sizes, pod_class)
            pods = min(rest, most - request.got[at], room)
            if pods > 0:
                rest -= pods
                request.got[at] += pods
                served[request.source[at]] += pods * request.weights[pod_class - request.first]
                take(request.room, at, classes.sizes, pod_class, pods)
        unplaced += rest
    _enter(request, unplaced == 0)
    return bool(unplaced == 0)


@lean_kernel
def _enter(request: GangRequest, whole: bool) -> None:
    """Enter in `keys` how the gang is served."""
    keys, served = request.keys, request.served
    own, clusters = served[SOURCE_OWN], served[SOURCE_OWN] + served[SOURCE_CLUSTER]
    non_disruptive = clusters + served[SOURCE_ACQUIRABLE] + served[SOURCE_SURPLUS]
    if whole:
        keys[2], keys[3], keys[4] = -steps(non_disruptive), -steps(clusters), -steps(own)
        return
    keys[INCOMPLETE] = 1
    keys[1], keys[3] = -steps(own), -steps(clusters)
    keys[2] = -steps(non_disruptive + served[SOURCE_PREEMPTIBLE])
    keys[4], keys[_ROOM] = 0, 0


@lean_kernel
def _line_up(
    request: GangRequest,
    domain: GangDomain,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
) -> int:
    """Write to the request what the machines of a domain have free: of each group no more machines
    than the gang has pods. Returns how many there are.
    """
    number, resources = 0, request.want.shape[0]
    for wanted in (SOURCE_OWN, SOURCE_CLUSTER):
        for place in range(domain.start, domain.stop):
            at = request.by_domain[place]
            is_own = machines.last_claimed_by[at] == request.need
            if is_own == (wanted == SOURCE_OWN) and is_usable(
                machines, classes, at, request.first, request.priority
            ):
                for resource in range(resources):
                    request.room[number, resource] = machines.free[at, resource]
                request.source[number], request.got[number] = wanted, 0
                number += 1
    for group in range(domain.first, domain.last):
        for _ in range(min(request.free[group - domain.first], request.pods)):
            for resource in range(resources):
                request.room[number, resource] = pool.capacity[group, resource]
            request.source[number], request.got[number] = pool.source[group], 0
            number += 1
    return number


@lean_kernel
def most_served(
    request: GangRequest,
    domain: GangDomain,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
) -> float:
    """At least as much as the machines of a domain serve of the gang, in steps."""
    share = 0.0
    for resource in range(request.want.shape[0]):
        want, there = request.want[resource], 0.0
        for group in range(domain.first, domain.last):
            there += request.free[group - domain.first] * pool.capacity[group, resource]
        for place in range(domain.start, domain.stop):
            at = request.by_domain[place]
            if is_usable(machines, classes, at, request.first, request.priority):
                there += max(0, machines.free[at, resource])
        if want > 0:
            share += min(1.0, there / want)
    return steps(share) + 1
