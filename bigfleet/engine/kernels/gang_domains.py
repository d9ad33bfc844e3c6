"""Kernels that choose the topology domain that a gang's machines share.

Domains that can hold the whole gang come first. Among them, in this order: the domain reserved for
the gang; the one where most of it fits without evictions; the one where most of it fits on its
cluster's machines, then on its own (a healthy gang stays where it is); the tightest fit. If no
domain can hold the whole gang: the one where most of it fits on its own machines, then the one
where most of it fits, then the one where most of it fits on its cluster's machines. Ties go to the
domain with more machines, then to the smaller name.

To pack a gang into a domain is dear, so a domain is packed only if it could be the best. Those of
the cluster's machines come first: where these hold the whole gang, no domain in which they do not
is better.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.candidate_pool import FleetAvailability
from bigfleet.engine.kernels.gang_packing import (
    CODE,
    INCOMPLETE,
    NOT_RESERVED,
    GangDomain,
    clusters_part,
    code_at,
    could_hold,
    count,
    domain_of,
    has_own,
    most_served,
    pack,
    survey,
)
from bigfleet.engine.kernels.gang_request import KEYS, GangPool, GangRequest
from bigfleet.engine.kernels.scoring import ClassColumns, Machines
from bigfleet.engine.snapshot import NONE, Longs
from bigfleet.jit import kernel, lean_kernel


@lean_kernel
def _is_better(request: GangRequest) -> bool:
    """Whether the domain that is looked at is better than the best so far."""
    for key in range(KEYS):
        if request.keys[key] != request.best[key]:
            return bool(request.keys[key] < request.best[key])
    return False


@lean_kernel
def _keep(request: GangRequest) -> None:
    """Make the domain that is looked at the best so far."""
    for key in range(KEYS):
        request.best[key] = request.keys[key]


@lean_kernel
def _could_be_better(request: GangRequest, on_clusters: bool, on_own: bool) -> bool:
    """Whether the domain that is looked at would be better than the best so far if all of the gang
    had a place there, also on its cluster's machines and its own if there are any.
    """
    request.keys[2] = -request.whole
    request.keys[3] = -request.whole if on_clusters else 0.0
    request.keys[4] = -request.whole if on_own else 0.0
    return _is_better(request)


@lean_kernel
def _consider(
    request: GangRequest,
    domain: GangDomain,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
) -> None:
    """Make a domain the best so far if all of the gang has a place there and it is better."""
    number = count(request, domain, pool, availability)
    if not could_hold(request, domain, pool, machines, classes):
        return
    if not survey(request, domain, number, pool, machines, classes):
        return
    own_there = has_own(request, machines, classes, domain.start, domain.stop)
    if not _could_be_better(request, domain.stop > domain.start, own_there):
        return
    if pack(request, domain, pool, machines, classes, left) and _is_better(request):
        _keep(request)


@lean_kernel
def _consider_clusters(
    request: GangRequest,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
) -> None:
    """Consider the domains in which its cluster's machines might hold the whole gang."""
    start = 0
    while start < request.by_domain.shape[0]:
        part = clusters_part(request, machines, start)
        if part.code != NONE and could_hold(request, part, pool, machines, classes):
            domain = domain_of(request, pool, machines, part.code, start)
            _consider(request, domain, pool, machines, classes, availability, left)
        start = part.stop


@lean_kernel
def _consider_part(
    request: GangRequest,
    domain: GangDomain,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
) -> None:
    """Make a domain that cannot hold all of the gang the best so far if it is better."""
    others = count(request, domain, pool, availability)
    # What it serves on machines of its own counts first.
    if not has_own(request, machines, classes, domain.start, domain.stop):
        most = most_served(request, domain, pool, machines, classes)
        if request.best[1] < 0 or most < -request.best[2]:
            return
    if survey(request, domain, others, pool, machines, classes):
        pack(request, domain, pool, machines, classes, left)
        if _is_better(request):
            _keep(request)


@lean_kernel
def _consider_all(
    request: GangRequest,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
    whole: bool,
) -> None:
    """Consider all domains: for `whole` those that can hold all of the gang."""
    start, number = 0, request.by_domain.shape[0]
    for code in range(pool.start.shape[0] - 1):
        while start < number and code_at(request, machines, start) < code:
            start += 1
        domain = domain_of(request, pool, machines, code, start)
        if domain.start == domain.stop and pool.there[code] == 0:
            continue
        if whole:
            _consider(request, domain, pool, machines, classes, availability, left)
        else:
            _consider_part(request, domain, pool, machines, classes, availability, left)


@lean_kernel
def _consider_own(
    request: GangRequest,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
) -> None:
    """Consider the domains in which it has machines of its own; none can hold all of the gang."""
    start = 0
    while start < request.by_domain.shape[0]:
        code, stop = code_at(request, machines, start), request.end[start]
        if code != NONE and has_own(request, machines, classes, start, stop):
            domain = domain_of(request, pool, machines, code, start)
            _consider_part(request, domain, pool, machines, classes, availability, left)
        start = stop


@lean_kernel
def own_domain(
    request: GangRequest,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
) -> int:
    """The code of the only domain in which a gang has machines of its own and its cluster's
    machines hold all of it: the best one, whatever it might acquire. NONE if that is not so.
    """
    found, start = 0, 0
    while start < request.by_domain.shape[0]:
        part = clusters_part(request, machines, start)
        if (
            part.code != NONE
            and has_own(request, machines, classes, part.start, part.stop)
            and could_hold(request, part, pool, machines, classes)
        ):
            domain = part
            found += 1
        start = part.stop
    if found != 1 or request.smallest < 2:
        return NONE
    whole = pack(request, domain, pool, machines, classes, left)
    return domain.code if whole and request.keys[4] < 0 else NONE


@kernel
def choose(
    request: GangRequest,
    pool: GangPool,
    machines: Machines,
    classes: ClassColumns,
    availability: FleetAvailability,
    left: Longs,
) -> tuple[int, bool]:
    """The code of the best domain for a gang, NONE if there is none with any machine, and whether
    all of the gang has a place there.
    """
    best = request.best
    _consider_clusters(request, pool, machines, classes, availability, left)
    # A pod so small that it may not count when domains are compared does not tell them apart.
    here = best[INCOMPLETE] == 0 and best[3] == -request.whole and request.smallest >= 2
    if not here or (request.kept != NONE and best[NOT_RESERVED] > 0):
        _consider_all(request, pool, machines, classes, availability, left, True)
    if best[INCOMPLETE] != 0:
        _consider_own(request, pool, machines, classes, availability, left)
    # No domain without machines of its own is better than one that serves a part on them.
    if best[INCOMPLETE] != 0 and not best[1] < 0:
        _consider_all(request, pool, machines, classes, availability, left, False)
    if best[INCOMPLETE] == np.inf:
        return NONE, False
    return int(best[CODE]), best[INCOMPLETE] == 0
