"""Which domain of its topology key a gang's machines share.

The best domain, in this order: it can hold the whole gang; then, among those that can, the one that
is reserved for it, the one with most of it to be had without taking from anybody, then the one
whose machines already serve most of it (a healthy gang stays where it is), first its cluster's,
then the gang's own, then the domain with the least to spare. While none can, the one where most of
it already is, then the one that holds most of it, then the one with most machines of its cluster.
Last, more machines, smaller name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.packing import fitting, take
from bigfleet.engine.snapshot import NONE, Bytes, Floats, Ints, Longs
from bigfleet.jit import kernel

# How a machine comes to serve a gang: it did so before; it is the cluster's; it can be acquired; it
# can be had in time without evicting anybody; it can be taken from others.
SOURCE_OWN, SOURCE_CLUSTER, SOURCE_ACQUIRABLE, SOURCE_SURPLUS, SOURCE_PREEMPTIBLE = range(5)


class GangCandidates(NamedTuple):
    """Machines in question for a gang: the `domain` code of each [M] (NONE: in no domain), the way
    to it (`source`), and what it has `free` [M, R]. Each stands for `number` [M] equal ones, of
    which the gang could use no more than one has pods.
    """

    domain: Ints
    source: Bytes
    free: Longs
    number: Longs


class DomainChoice(NamedTuple):
    """The domain code of a gang, NONE if it has no machine anywhere, and whether all of it fits."""

    domain: int
    whole: bool


@kernel
def _try_domains(
    starts: Longs,
    source: Bytes,
    free: Longs,
    sizes: Longs,
    count: Longs,
    most: int,
    weights: Floats,
    served: Floats,
    unplaced: Longs,
) -> None:
    """Pack a whole gang into the machines of each domain d, `starts[d]` to `starts[d + 1]`, first
    fit, its largest pods first. `served` [D, 5] is what machines of each source then serve by
    `weights`, `unplaced` [D] how many pods found no place. `free` changes.
    """
    got = np.zeros(source.shape[0], np.int64)
    for domain in range(starts.shape[0] - 1):
        for pod_class in range(sizes.shape[0]):
            rest = count[pod_class]
            for at in range(starts[domain], starts[domain + 1]):
                if rest == 0:
                    break
                pods = min(rest, most - got[at], fitting(free[at], sizes[pod_class]))
                if pods > 0:
                    rest -= pods
                    got[at] += pods
                    served[domain, source[at]] += pods * weights[pod_class]
                    take(free[at], sizes[pod_class], pods)
            unplaced[domain] += rest


def choose_domain(
    gang_candidates: GangCandidates, sizes: Longs, count: Longs, most: int, kept: int = NONE
) -> DomainChoice:
    """The best domain for a gang of `count` [C] pods of `sizes` [C, R], in descending order, of
    which a machine takes `most`.

    Machines of a domain are used in the order in which they are given. The domain `kept` is best
    as long as it can hold the whole gang.
    """
    present = np.flatnonzero(gang_candidates.domain != NONE)
    if not len(present):
        return DomainChoice(NONE, False)
    order = present[np.argsort(gang_candidates.domain[present], kind="stable")]
    borders = np.flatnonzero(np.diff(gang_candidates.domain[order], prepend=NONE))
    starts = np.append(borders, len(order))
    codes, number = gang_candidates.domain[order[borders]], gang_candidates.number[order]
    machines = np.add.reduceat(number, borders)
    want = (sizes * count[:, None]).astype(np.float64).sum(axis=0)
    asked = want > 0
    weights = (sizes[:, asked] / want[asked]).sum(axis=1)
    free = gang_candidates.free[order]
    room = np.add.reduceat(_steps((free[:, asked] / want[asked]).sum(axis=1)) * number, borders)
    served = np.zeros((len(codes), SOURCE_PREEMPTIBLE + 1), np.float64)
    unplaced = np.zeros(len(codes), np.int64)
    _try_domains(
        starts, gang_candidates.source[order], free, sizes, count, most, weights, served, unplaced
    )
    whole = unplaced == 0
    own, clusters = served[:, SOURCE_OWN], served[:, SOURCE_OWN] + served[:, SOURCE_CLUSTER]
    non_disruptive = clusters + served[:, SOURCE_ACQUIRABLE] + served[:, SOURCE_SURPLUS]
    keys: tuple[Floats, ...]
    if whole.any():
        keys = (room, *(-_steps(each) for each in (own, clusters, non_disruptive)), codes != kept)
    else:
        keys = tuple(-_steps(each) for each in (clusters, served.sum(axis=1), own))
    best = np.lexsort((codes, -machines, *keys, ~whole))[0]
    return DomainChoice(int(codes[best]), bool(whole[best]))


def _steps(parts: Floats) -> Floats:
    """Parts of a gang in steps coarse enough that rounding noise decides nothing."""
    return np.rint(parts * 2**20)
