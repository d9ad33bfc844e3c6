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
    RANK_BITS,
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
    append_placements,
    fits,
    has_room,
    pop,
    pop_at,
    push,
    push_at,
    rank,
    sift,
    take,
)
from bigfleet.engine.snapshot import Flags, Ints, Longs
from bigfleet.jit import kernel, lean_kernel


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
    """C cells of one need's machines, and the heaps of one class.

    The key of a machine is its rank and its index, which has `bits` bits.
    """

    #: [M] int64, heaps of machines, one after the other
    heap: Longs
    #: [C + 1] int64, where the heap of each cell begins
    start: Longs
    #: [C] int64, length of each heap
    length: Longs
    #: [C] int64, heap of the cells: the need's pods in their domains when last looked at, above the
    #: bits of the key at the front of the cell's heap
    queue: Longs
    #: [C] int64, keys of the cells at the limit of a term
    blocked: Longs
    bits: int


@lean_kernel
def _fewest(terms: TopologyTerms, term: int) -> tuple[int, int]:
    """The fewest pods in any domain that counts, and how many domains have that few; 0 and 0 for
    lack of domains.
    """
    fewest, counting, lowest = 0, 0, 0
    for at in range(terms.pods.shape[1]):
        if terms.counts[term, at]:
            pods = terms.pods[term, at]
            if counting == 0 or pods < fewest:
                fewest, lowest = pods, 0
            counting += 1
            lowest += pods == fewest
    if counting < terms.min_domains[term]:
        fewest, lowest = 0, 0
    return fewest, lowest


@lean_kernel
def least(terms: TopologyTerms, term: int) -> int:
    """The term's global minimum: the fewest pods in any domain that counts."""
    return int(_fewest(terms, term)[0])


@lean_kernel
def _pods_there(terms: TopologyTerms, minimum: _Minimum, at: int) -> int:
    """How many pods the need has in the domains of machine `at`; -1 if a term is at its limit."""
    there = 0
    for term in range(terms.domain.shape[0]):
        pods = terms.pods[term, terms.domain[term, at]]
        if pods >= minimum.pods[term] + terms.max_skew[term] or pods >= terms.most[term]:
            return -1
        there += pods
    return there


@lean_kernel
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
                minimum.pods[term], minimum.domains[term] = _fewest(terms, term)
                risen = True
    return risen


@kernel
def _new_cells(terms: TopologyTerms) -> _Cells:
    machines, number = terms.cell.shape[0], terms.cells
    start = np.zeros(number + 1, np.int64)
    for at in range(machines):
        start[terms.cell[at] + 1] += 1
    bits = 0
    while machines >> bits:
        bits += 1
    return _Cells(
        np.empty(machines + 1, np.int64),
        np.cumsum(start),
        np.zeros(number, np.int64),
        np.empty(number, np.int64),
        np.empty(number, np.int64),
        bits,
    )


@lean_kernel
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
    queued, row = 0, classes.flavour_fit[pod_class]
    cells.length[:] = 0
    for at in range(machines.flavour.shape[0]):
        # First what most machines lack, and what lies side by side.
        has_place = has_room(machines, classes, at, pod_class, priority)
        if has_place and classes.accepted[row, machines.flavour[at]]:
            cell = terms.cell[at]
            key = (rank(machines, classes, at, pod_class, strategy) << cells.bits) | at
            cells.length[cell] = push_at(cells.heap, cells.start[cell], cells.length[cell], key)
    for cell in range(terms.cells):
        if cells.length[cell] > 0:
            # The lowest possible key: it is corrected at the front.
            key = cells.heap[cells.start[cell]] - (1 << (cells.bits + RANK_BITS))
            queued = push(cells.queue, queued, key)
    return queued


@lean_kernel
def _advance(
    cells: _Cells,
    machines: Machines,
    classes: ClassColumns,
    cell: int,
    at: int,
    pod_class: int,
    strategy: ScoringStrategy,
) -> None:
    """Place a pod of the class on machine `at`, the first of its cell."""
    take(machines.free, at, classes.sizes, pod_class, 1)
    machines.has_pods[at] = True
    begin = cells.start[cell]
    if fits(machines.free, at, classes.sizes, pod_class):
        key = (rank(machines, classes, at, pod_class, strategy) << cells.bits) | at
        sift(cells.heap, begin, cells.length[cell], key)
    else:
        cells.length[cell] = pop_at(cells.heap, begin, cells.length[cell])


@lean_kernel
def _place_class(
    cells: _Cells,
    machines: Machines,
    classes: ClassColumns,
    terms: TopologyTerms,
    minimum: _Minimum,
    pods: int,
    pod_class: int,
    priority: int,
    strategy: ScoringStrategy,
    got: Longs,
) -> int:
    """Place `pods` pods of one class, pod by pod; adds them to `got` [M]. Returns how many have no
    place.
    """
    span_bits = cells.bits + RANK_BITS
    front, index = (1 << span_bits) - 1, (1 << cells.bits) - 1
    queued, blocked = _fill_cells(cells, machines, classes, terms, pod_class, priority, strategy), 0
    while pods > 0 and queued > 0:
        key = cells.queue[0]
        at = key & index
        there = _pods_there(terms, minimum, at)
        if there < 0:
            queued = pop(cells.queue, queued)
            cells.blocked[blocked] = key
            blocked += 1
            continue
        if there != key >> span_bits:
            sift(cells.queue, 0, queued, (there << span_bits) | (key & front))
            continue
        cell = terms.cell[at]
        _advance(cells, machines, classes, cell, at, pod_class, strategy)
        pods -= 1
        got[at] += 1
        if cells.length[cell] > 0:
            following = (there << span_bits) | cells.heap[cells.start[cell]]
            sift(cells.queue, 0, queued, following)
        else:
            queued = pop(cells.queue, queued)
        if _note_pod(terms, minimum, at):
            for place in range(blocked):
                queued = push(cells.queue, queued, cells.blocked[place])
            blocked = 0
    return pods


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
        minimum.pods[term], minimum.domains[term] = _fewest(terms, term)
    for pod_class in order:
        if left[pod_class] > 0:
            left[pod_class] = _place_class(
                cells, machines, classes, terms, minimum, left[pod_class], pod_class, priority,
                strategy, got,
            )  # fmt: skip
            length = append_placements(log, length, pod_class, got)
    return length
