"""Choice of the topology domain that a gang's machines share.

Domains that can hold the whole gang come first. Among them, in this order: the domain reserved for
the gang; the one where most of it fits without evictions; the one where most of it fits on its
cluster's machines, then on its own (a healthy gang stays where it is); the tightest fit. If no
domain can hold the whole gang: the one where most of it fits on its own machines, then the one
where most of it fits, then the one where most of it fits on its cluster's machines. Ties go to the
domain with more machines, then to the smaller name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.gangs import GANG_SHARE_STEPS
from bigfleet.engine.kernels.scoring import fitting, take
from bigfleet.engine.snapshot import NONE, Bytes, Floats, Ints, Longs
from bigfleet.jit import kernel

# Where a machine comes from: it served the gang before; it is the cluster's; it can be acquired; it
# is surplus or drains already; its pods must be evicted.
SOURCE_OWN, SOURCE_CLUSTER, SOURCE_ACQUIRABLE, SOURCE_SURPLUS, SOURCE_PREEMPTIBLE = range(5)


class GangCandidates(NamedTuple):
    """M machines that a gang might use."""

    #: [M] int32, code of the domain; NONE for a machine without the label
    domain: Ints
    #: [M] uint8, SOURCE_*
    source: Bytes
    #: [M, R] int64
    free: Longs
    #: [M] int64, how many equal machines the entry stands for; the gang has no use for the others
    number: Longs


class GangPods(NamedTuple):
    """C sizes of a gang's unplaced pods, the largest first."""

    #: [C, R] int64
    sizes: Longs
    #: [C] int64, how many pods
    counts: Longs
    #: how many pods a machine takes
    most: int


class DomainChoice(NamedTuple):
    """The domain chosen for a gang."""

    #: its code; NONE if no machine has the label
    domain: int
    #: the whole gang fits
    whole: bool
    #: it does so on machines of its cluster
    here: bool = False


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
    """Pack a whole gang into the machines `starts[d]` to `starts[d + 1]` of each domain d, first
    fit, largest pods first.

    Adds to `served` [D, 5] the pods by source, weighted with `weights` [C], and to `unplaced` [D]
    the pods that do not fit. Updates `free`.
    """
    got = np.zeros(source.shape[0], np.int64)
    for domain in range(starts.shape[0] - 1):
        for pod_class in range(sizes.shape[0]):
            rest = count[pod_class]
            for at in range(starts[domain], starts[domain + 1]):
                if rest == 0:
                    break
                pods = min(rest, most - got[at], fitting(free, at, sizes, pod_class))
                if pods > 0:
                    rest -= pods
                    got[at] += pods
                    served[domain, source[at]] += pods * weights[pod_class]
                    take(free, at, sizes, pod_class, pods)
            unplaced[domain] += rest


def choose_domain(
    gang_candidates: GangCandidates, sizes: Longs, count: Longs, most: int, kept: int = NONE
) -> DomainChoice:
    """The best domain for a gang of `count` [C] pods of `sizes` [C, R], the largest first, of which
    a machine takes `most`.

    Machines of a domain are used in the order given. The domain `kept` wins if it can hold the
    whole gang.
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
    here = bool(whole[best]) and not served[best, SOURCE_ACQUIRABLE:].any()
    return DomainChoice(int(codes[best]), bool(whole[best]), here)


def domains_with_room(gang_candidates: GangCandidates, sizes: Longs, count: Longs) -> Ints:
    """The codes of all domains in which these candidates have as much capacity in total as the gang
    requests; none if a pod is so small that it may not count when domains are compared.
    """
    want = (sizes * count[:, None]).astype(np.float64).sum(axis=0)
    asked = want > 0
    if (sizes[:, asked] / want[asked]).sum(axis=1).min(initial=np.inf) * GANG_SHARE_STEPS < 2:
        return np.empty(0, np.int32)
    order = np.argsort(gang_candidates.domain, kind="stable")
    domain = gang_candidates.domain[order]
    borders = np.flatnonzero(np.diff(domain, prepend=NONE))
    if not len(borders):
        return np.empty(0, np.int32)
    room = np.add.reduceat(gang_candidates.free[order], borders)
    enough: Ints = domain[borders][(room >= want).all(axis=1)]
    return enough


def _steps(parts: Floats) -> Floats:
    """Shares of a gang in integral steps, so that floating-point noise never breaks a tie."""
    return np.rint(parts * GANG_SHARE_STEPS)
