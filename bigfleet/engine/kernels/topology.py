"""Kernels for hard topology spread and pod anti-affinity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.packing import (
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
    append_placements,
    has_room,
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
def _pods_there(terms: TopologyTerms, fewest: Longs, at: int) -> int:
    """How many pods the need has in the domains of machine `at`; -1 if a term is at its limit."""
    there = 0
    for term in range(terms.domain.shape[0]):
        pods = terms.pods[term, terms.domain[term, at]]
        if pods >= fewest[term] + terms.max_skew[term] or pods >= terms.most[term]:
            return -1
        there += pods
    return there


@kernel
def _next_machine(
    machines: Machines,
    classes: ClassColumns,
    terms: TopologyTerms,
    pod_class: int,
    priority: int,
    strategy: ScoringStrategy,
) -> int:
    """The machine for one more pod: in the domains with the fewest pods of the need, then the best
    score; -1 for none.
    """
    fewest = np.zeros(terms.domain.shape[0], np.int64)
    for term in range(fewest.shape[0]):
        fewest[term] = least(terms, term)
    best, best_there, best_rank = -1, 0, 0
    for at in range(machines.flavour.shape[0]):
        if not classes.accepted[classes.flavour_fit[pod_class], machines.flavour[at]]:
            continue
        there = _pods_there(terms, fewest, at)
        if there < 0 or (best >= 0 and there > best_there):
            continue
        if not has_room(machines, classes, at, pod_class, priority):
            continue
        place = rank(machines, classes, at, pod_class, strategy)
        if best < 0 or there < best_there or place < best_rank:
            best, best_there, best_rank = at, there, place
    return best


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
    for pod_class in order:
        while left[pod_class] > 0:
            at = _next_machine(machines, classes, terms, pod_class, priority, strategy)
            if at < 0:
                break
            machines.free[at] -= classes.sizes[pod_class]
            machines.has_pods[at] = True
            for term in range(terms.domain.shape[0]):
                terms.pods[term, terms.domain[term, at]] += 1
            left[pod_class] -= 1
            got[at] += 1
        length = append_placements(log, length, pod_class, got)
    return length
