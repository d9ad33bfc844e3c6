"""The pods by which a cluster is expected to grow, as a sample of the sizes that it has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.pod_classes import NeedType
from bigfleet.engine.kernels.scoring import NO_LIMIT
from bigfleet.engine.snapshot import Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState

# Each is filled into each kind of machine for each machine that is acquired.
_MOST_SIZES = 32
# A machine that pods requested for themselves expects a quarter of its cluster's growth.
ADDITIONAL_PARTS = 4


class ExpectedPods(NamedTuple):
    """E classes of pods that are expected to come."""

    #: [E] int64, distinct
    classes: Longs
    #: [E] int64, how many of each
    pods: Longs


NO_PODS = ExpectedPods(np.empty(0, np.int64), np.empty(0, np.int64))


def expected_pods(state: CycleState, index: int, parts: int) -> ExpectedPods:
    """One of `parts` equal parts of the growth to expect of the cluster's pods with the priority of
    need `index`: of those of which a machine takes only one if the need's are such, else of the
    others.
    """
    sized = _pods_by_size(state, index)
    pods = state.classes.count[sized]
    ends = pods.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    expected = int(total * state.settings.growth / parts + 1e-9)
    points = np.arange(min(expected, _MOST_SIZES), dtype=np.int64)
    # Points in equal distances, the first and the last half a distance from the ends.
    middle = (2 * points + 1) * total // max(1, 2 * len(points))
    number = (points + 1) * expected // max(1, len(points))
    found, first = np.unique(np.searchsorted(ends, middle, side="right"), return_index=True)
    number = np.diff(np.append(number[first[1:] - 1], expected), prepend=0)[: len(found)]
    return ExpectedPods(sized[found].astype(np.int64), number.astype(np.int64))


def parts_by_machine(state: CycleState, index: int) -> int:
    """Into how many parts the growth is divided for a need that acquires machines for itself; pods
    that keep apart take one each, and these must not all be sized for the same growth.
    """
    machines = int(state.left[state.classes.of(index)].sum()) if state.needs.apart[index] else 1
    return max(ADDITIONAL_PARTS, machines)


def _pods_by_size(state: CycleState, index: int) -> Rows:
    """The classes that such growth is a sample of, the largest pods first."""
    cluster, priority = state.cluster_of(index), int(state.priorities[index])
    is_apart = bool(state.needs.apart[index])
    key = cluster, priority, is_apart
    if key not in state.classes_by_size:
        classes, need = state.classes, state.classes.need
        its = (state.demand.cluster[need] == cluster) & (state.priorities[need] == priority)
        its &= (classes.need_type == NeedType.PLAIN)[need] | (
            classes.need_type == NeedType.CONSTRAINED
        )[need]
        its = np.flatnonzero(its & ~classes.impossible & ((classes.most < NO_LIMIT) == is_apart))
        state.classes_by_size[key] = its[np.argsort(-classes.dominant_share[its], kind="stable")]
    return state.classes_by_size[key]
