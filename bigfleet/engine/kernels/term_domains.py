"""Kernels that find the domains of machines, and count pods and room there."""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.kernels.scoring import ClassColumns, Machines, PlacementLog, fitting
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs
from bigfleet.jit import lean_kernel


class TermFlavours(NamedTuple):
    """What T terms say about F flavours."""

    #: [T, F] int32, the domain; NONE for a flavour without the label
    domain: Ints
    #: [T] bool, every machine is a domain of its own, whatever its flavour
    by_host: Flags
    #: [T, F] bool, machines of the flavour make their domain count for the global minimum
    counts: Flags


@lean_kernel
def locate(
    of_flavour: TermFlavours, machines: Machines, priority: int, domain: Ints, counts: Flags
) -> None:
    """Write to `domain` [T, M] the domains of all machines, the last of D for those without the
    label, and to `counts` [T, D] whether needs of `priority` see a machine in the domain.
    """
    for term in range(domain.shape[0]):
        for at in range(domain.shape[1]):
            flavour = machines.flavour[at]
            code = at if of_flavour.by_host[term] else of_flavour.domain[term, flavour]
            domain[term, at] = code if code != NONE else counts.shape[1] - 1
            if (
                code != NONE
                and of_flavour.counts[term, flavour]
                and machines.max_priority[at] >= priority
            ):
                counts[term, code] = True


@lean_kernel
def count_pods(log: PlacementLog, first: int, end: int, domain: Ints, pods: Longs) -> None:
    """Add to `pods` [T, D] the pods of the classes from `first` to `end` by `domain` [T, M]."""
    for at in range(len(log.pods)):
        if log.pods[at] > 0 and first <= log.pod_class[at] < end:
            for term in range(domain.shape[0]):
                pods[term, domain[term, log.machine[at]]] += log.pods[at]


@lean_kernel
def add_rooms(
    machines: Machines,
    classes: ClassColumns,
    pod_class: int,
    priority: int,
    most: int,
    domain: Ints,
    room: Longs,
) -> None:
    """Add to `room` [D] how many pods of a class fit into the `domain` [M] of each machine, at most
    `most` on a machine.
    """
    row = classes.flavour_fit[pod_class]
    for at in range(domain.shape[0]):
        accepted = classes.accepted[row, machines.flavour[at]]
        if accepted and machines.max_priority[at] >= priority:
            room[domain[at]] += min(fitting(machines.free, at, classes.sizes, pod_class), most)


@lean_kernel
def count_accepting(
    serving: Flags,
    cluster: Ints,
    flavour: Ints,
    start: Longs,
    flavour_fit: Longs,
    accepted: Flags,
    found: Longs,
) -> None:
    """Add to `found` [K] how many of the machines that are `serving` [n] in its cluster each of K
    needs accepts. `start` delimits the needs of each cluster, `flavour_fit` [K] are their rows of
    `accepted`.
    """
    for at in range(serving.shape[0]):
        if serving[at] and cluster[at] != NONE:
            for need in range(start[cluster[at]], start[cluster[at] + 1]):
                if accepted[flavour_fit[need], flavour[at]]:
                    found[need] += 1
