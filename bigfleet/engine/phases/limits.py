"""Limits on the actions of one cycle: bad input then costs time instead of capacity."""

from __future__ import annotations

import math

import numpy as np

from bigfleet.engine.snapshot import Flags, Fleet, Ints, Rows
from bigfleet.model.machine import MachineState


def cap_reclaims(fleet: Fleet, reclaim_order: Rows, fraction: float) -> Flags:
    """Which rows of `reclaim_order` are within their cluster's cap, the first ones first:
    `fraction` of its CONFIGURED machines, but at least one.
    """
    clusters = len(fleet.clusters)
    in_service = fleet.cluster[fleet.state == MachineState.CONFIGURED]
    counts = np.bincount(in_service, minlength=clusters)
    caps = np.array([reclaim_cap(int(count), fraction) for count in counts], np.int64)
    cluster = fleet.cluster[reclaim_order]
    within: Flags = _rank_in_group(cluster) < caps[cluster]
    return within


def reclaim_cap(configured: int, fraction: float) -> int:
    """How many of `configured` machines of one cluster may be reclaimed in one cycle."""
    rounding = 1e-9  # 0.29 x 100 is 28.999999999999996
    return max(1, math.floor(fraction * configured + rounding))


def _rank_in_group(groups: Ints) -> Rows:
    """For each entry, how many equal ones precede it."""
    order = np.argsort(groups, kind="stable")
    first = np.searchsorted(groups[order], groups[order])
    nth = np.empty(len(groups), np.intp)
    nth[order] = np.arange(len(groups)) - first
    return nth
