"""Kernels for hard topology spread and pod anti-affinity.

Each pod goes to the domains with the fewest pods of its need, there to the machine with the best
score. Machines with the same domains for all terms form a *cell*. Each cell has a heap of its
machines, and the cells that may take a pod form another heap. Keys of the latter only grow while a
class is placed, so one that is out of date is corrected when it reaches the front.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import (
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
    append_placements,
    has_room,
    pop,
    push,
    rank,
)
from bigfleet.engine.snapshot import Flags, Ints, Longs
from bigfleet.jit import kernel


class TopologyTerms(NamedTuple):
    """T terms of one need over M machines in D domains.

    With kubernetes.io/hostname, every machine is a domain.
    """

    #: [T, M] int32, the machine's domain
    domain: Ints
    #: [M] int32, the machine's cell: equal for machines with equal domains, below `cells`
    cell: Ints
    cells: int
    #: [T, D] int64, the need's pods in the domain
    pods: Longs
    #: [T, D] bool, the domain counts for the global minimum
    counts: Flags
    #: [T] int64, how many pods a domain may have above the minimum
    max_skew: Longs
    #: [T] int64, with fewer domains the minimum is 0
    min_domains: Longs
    #: [T] int64, how many pods a domain may have at most
    most: Longs


class _Minimum(NamedTuple):
    """The global minimum of each term [T]."""

    #: fewest pods in any domain that counts
    pods: Longs
    #: how many domains have that few; 0 if the minimum is 0 for lack of domains
    domains: Longs


class _Cells(NamedTuple):
    """C cells of one need's machines, and the heaps of one class."""

    #: [M] int64, heaps of machines, one after the other
    heap: Longs
    #: [C + 1] int64, where the heap of each cell begins
    start: Longs
    #: [C] int64, length of each heap
    length: Longs
    #: [C] int64, a machine of the cell
    example: Longs
    #: [C] int64, heap of the cells by `there`, then `top`
    queue: Longs
    #: [C] int64, pods of the need in the cell's domains, when last looked at
    there: Longs
    #: [C] int64, front of the cell's heap, when last looked at
    top: Longs
    #: [C] int64, cells at the limit of a term
    blocked: Longs


@kernel
def least(terms: TopologyTerms, term: int) -> int:
    """The term's global minimum: the fewest pods in any domain that counts."""
    fewest, domains = -1, 0
    for at in range(terms.pods.shape[1]):
        if terms.counts[term, at]:
            domains += 1
            if fewest < 0 or terms.pods[term, at] < fewest:
                fewest = terms.pods[term, at]
    return max(fewest, 0) if domains >= terms.min_domains[term] else 0


@kernel
def _find_minimum(terms: TopologyTerms, minimum: _Minimum, term: int) -> None:
    fewest = least(terms, term)
    domains, at_minimum = 0, 0
    for at in range(terms.pods.shape[1]):
        if terms.counts[term, at]:
            domains += 1
            at_minimum += terms.pods[term, at] == fewest
    minimum.pods[term] = fewest
    minimum.domains[term] = at_minimum if domains >= terms.min_domains[term] else 0


@kernel
def _pods_there(terms: TopologyTerms, minimum: _Minimum, at: int) -> int:
    """How many pods the need has in the domains of machine `at`; -1 if a term is at its limit."""
    there = 0
    for term in range(terms.domain.shape[0]):
        pods = terms.pods[term, terms.domain[term, at]]
        if pods >= minimum.pods[term] + terms.max_skew[term] or pods >= terms.most[term]:
            return -1
        there += pods
    return there


@kernel
def _note_pod(terms: TopologyTerms, minimum: _Minimum, at: int) -> bool:
    """Count one more pod on machine `at`; whether the minimum of a term has risen."""
    risen = False
    for term in range(terms.domain.shape[0]):
        domain = terms.domain[term, at]
        terms.pods[term, domain] += 1
        lowest = terms.counts[term, domain] and minimum.domains[term] > 0
        if lowest and terms.pods[term, domain] == minimum.pods[term] + 1:
            minimum.domains[term] -= 1
            if minimum.domains[term] == 0:
                _find_minimum(terms, minimum, term)
                risen = True
    return risen


@kernel
def _before(cells: _Cells, one: int, other: int) -> bool:
    if cells.there[one] != cells.there[other]:
        return bool(cells.there[one] < cells.there[other])
    return bool(cells.top[one] < cells.top[other])


@kernel
def _enqueue(cells: _Cells, length: int, cell: int) -> int:
    at = length
    while at > 0:
        parent = (at - 1) >> 1
        if not _before(cells, cell, cells.queue[parent]):
            break
        cells.queue[at] = cells.queue[parent]
        at = parent
    cells.queue[at] = cell
    return length + 1


@kernel
def _dequeue(cells: _Cells, length: int) -> int:
    """Remove the front of the queue; returns the new length."""
    length -= 1
    cell = cells.queue[length]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= length:
            break
        if child + 1 < length and _before(cells, cells.queue[child + 1], cells.queue[child]):
            child += 1
        if not _before(cells, cells.queue[child], cell):
            break
        cells.queue[at] = cells.queue[child]
        at = child
    cells.queue[at] = cell
    return length


@kernel
def _new_cells(terms: TopologyTerms) -> _Cells:
    machines, number = terms.cell.shape[0], terms.cells
    start, example = np.zeros(number + 1, np.int64), np.zeros(number, np.int64)
    for at in range(machines - 1, -1, -1):
        start[terms.cell[at] + 1] += 1
        example[terms.cell[at]] = at
    return _Cells(
        np.empty(machines + 1, np.int64),
        np.cumsum(start),
        np.zeros(number, np.int64),
        example,
        np.empty(number, np.int64),
        np.zeros(number, np.int64),
        np.zeros(number, np.int64),
        np.empty(number, np.int64),
    )


@kernel
def _fill_cells(
    cells: _Cells,
    machines: Machines,
    classes: ClassColumns,
    terms: TopologyTerms,
    pod_class: int,
    priority: int,
    strategy: ScoringStrategy,
) -> int:
    """Put all machines that may take a pod of the class into their cells; returns the length of the
    queue of cells.
    """
    number, queued = machines.flavour.shape[0], 0
    cells.length[:] = 0
    for at in range(number):
        accepted = classes.accepted[classes.flavour_fit[pod_class], machines.flavour[at]]
        if accepted and has_room(machines, classes, at, pod_class, priority):
            cell = terms.cell[at]
            heap = cells.heap[cells.start[cell] : cells.start[cell + 1]]
            key = rank(machines, classes, at, pod_class, strategy) * number + at
            cells.length[cell] = push(heap, cells.length[cell], key)
    for cell in range(terms.cells):
        if cells.length[cell] > 0:
            # The lowest possible key: it is corrected at the front.
            cells.there[cell] = -1
            cells.top[cell] = cells.heap[cells.start[cell]]
            queued = _enqueue(cells, queued, cell)
    return queued


@kernel
def _place_class(
    cells: _Cells,
    machines: Machines,
    classes: ClassColumns,
    terms: TopologyTerms,
    minimum: _Minimum,
    left: Longs,
    pod_class: int,
    priority: int,
    strategy: ScoringStrategy,
    got: Longs,
) -> None:
    """Place the pods left of one class, pod by pod; adds them to `got` [M]."""
    number, blocked = machines.flavour.shape[0], 0
    queued = _fill_cells(cells, machines, classes, terms, pod_class, priority, strategy)
    while left[pod_class] > 0 and queued > 0:
        cell = cells.queue[0]
        queued = _dequeue(cells, queued)
        there = _pods_there(terms, minimum, cells.example[cell])
        if there < 0:
            cells.blocked[blocked] = cell
            blocked += 1
            continue
        if there != cells.there[cell]:
            cells.there[cell] = there
            queued = _enqueue(cells, queued, cell)
            continue
        heap = cells.heap[cells.start[cell] : cells.start[cell + 1]]
        at = heap[0] % number
        cells.length[cell] = pop(heap, cells.length[cell])
        machines.free[at] -= classes.sizes[pod_class]
        machines.has_pods[at] = True
        left[pod_class] -= 1
        got[at] += 1
        if has_room(machines, classes, at, pod_class, priority):
            key = rank(machines, classes, at, pod_class, strategy) * number + at
            cells.length[cell] = push(heap, cells.length[cell], key)
        risen = _note_pod(terms, minimum, at)
        if cells.length[cell] > 0:
            cells.top[cell] = heap[0]
            queued = _enqueue(cells, queued, cell)
        if risen:
            for place in range(blocked):
                queued = _enqueue(cells, queued, cells.blocked[place])
            blocked = 0


@kernel
def pack_constrained(
    machines: Machines,
    classes: ClassColumns,
    terms: TopologyTerms,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    log: PlacementLog,
    length: int,
) -> int:
    """Place the pods `left` [C] of one need's classes `order`, pod by pod; see `packing.pack`."""
    got = np.zeros(machines.flavour.shape[0], np.int64)
    cells = _new_cells(terms)
    number = terms.domain.shape[0]
    minimum = _Minimum(np.zeros(number, np.int64), np.zeros(number, np.int64))
    for term in range(number):
        _find_minimum(terms, minimum, term)
    for pod_class in order:
        if left[pod_class] > 0:
            _place_class(
                cells, machines, classes, terms, minimum, left, pod_class, priority, strategy, got
            )
            length = append_placements(log, length, pod_class, got)
    return length
