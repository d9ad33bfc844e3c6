"""Kernels for pods that depend on each other: hard spread, and at most one pod a domain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.packing import ClassColumns, Log, Machines, Manner, has_room, note, rank
from bigfleet.engine.snapshot import Flags, Ints, Longs
from bigfleet.kernels import kernel


class Terms(NamedTuple):
    """T terms of one need over M machines in D domains.

    `domain` [T, M] is the number of each machine's domain, `pods` [T, D] how many of the need's
    pods each domain has, and `counts` [T, D] marks the domains that take part in the minimum.
    kubernetes.io/hostname makes every machine a domain of its own. A domain of term t may have
    `max_skew[t]` pods more than the minimum, and `most[t]` at most; while there are fewer than
    `min_domains[t]`, the minimum is none.
    """

    domain: Ints
    pods: Longs
    counts: Flags
    max_skew: Longs
    min_domains: Longs
    most: Longs


@kernel
def least(terms: Terms, term: int) -> int:
    """The fewest pods in any domain of the term that counts."""
    fewest, domains = -1, 0
    for at in range(terms.pods.shape[1]):
        if terms.counts[term, at]:
            domains += 1
            if fewest < 0 or terms.pods[term, at] < fewest:
                fewest = terms.pods[term, at]
    return max(fewest, 0) if domains >= terms.min_domains[term] else 0


@kernel
def _pods_there(terms: Terms, fewest: Longs, at: int) -> int:
    """How many pods the need has in the domains of machine `at`; -1 where it may have no more."""
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
    terms: Terms,
    klass: int,
    priority: int,
    manner: Manner,
) -> int:
    """The machine for one more pod: where its domains have the fewest pods of the need, then where
    it is best balanced; -1 for none.
    """
    fewest = np.zeros(terms.domain.shape[0], np.int64)
    for term in range(fewest.shape[0]):
        fewest[term] = least(terms, term)
    best, best_there, best_rank = -1, 0, 0
    for at in range(machines.flavour.shape[0]):
        if not classes.accepted[classes.candidacy[klass], machines.flavour[at]]:
            continue
        there = _pods_there(terms, fewest, at)
        if there < 0 or (best >= 0 and there > best_there):
            continue
        if not has_room(machines, classes, at, klass, priority):
            continue
        place = rank(machines, classes, at, klass, manner)
        if best < 0 or there < best_there or place < best_rank:
            best, best_there, best_rank = at, there, place
    return best


@kernel
def pack_constrained(
    machines: Machines,
    classes: ClassColumns,
    terms: Terms,
    left: Longs,
    order: Longs,
    priority: int,
    manner: Manner,
    log: Log,
    length: int,
) -> int:
    """Place what is `left` [C] of one need's classes `order`, pod by pod; as `packing.pack`."""
    got = np.zeros(machines.flavour.shape[0], np.int64)
    for klass in order:
        while left[klass] > 0:
            at = _next_machine(machines, classes, terms, klass, priority, manner)
            if at < 0:
                break
            machines.free[at] -= classes.sizes[klass]
            machines.opened[at] = True
            for term in range(terms.domain.shape[0]):
                terms.pods[term, terms.domain[term, at]] += 1
            left[klass] -= 1
            got[at] += 1
        length = note(log, length, klass, got)
    return length
