"""Kernels that find machines which were selected, but are not needed for their pods."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.candidate_pool import FleetAvailability, SelectionBuffer
from bigfleet.engine.kernels.scoring import ClassColumns, fitting, pods_allowed, take
from bigfleet.engine.snapshot import Flags, Longs
from bigfleet.jit import kernel, lean_kernel


@kernel
def _relocate(
    one: int,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    buffer: SelectionBuffer,
    dropped: Flags,
) -> bool:
    """Move all pods of one machine to the others, first fit; False, and nothing is moved, if they
    do not fit.
    """
    free, pods = buffer.free.copy(), buffer.pods.copy()
    if not _move(one, availability, classes, pending, buffer.rows, free, pods, dropped):
        return False
    buffer.free[:], buffer.pods[:] = free, pods
    return True


@lean_kernel
def _move(
    one: int,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    rows: Longs,
    free: Longs,
    pods: Longs,
    dropped: Flags,
) -> bool:
    """Move all pods of one machine to the others, in `free` [B, R] and `pods` [B, P]; False if they
    do not fit.
    """
    for place in range(pending.shape[0]):
        pod_class = pending[place]
        rest = pods[one, place]
        for other in range(rows.shape[0]):
            if rest == 0:
                break
            flavour = availability.flavour[rows[other]]
            accepted = classes.accepted[classes.flavour_fit[pod_class], flavour]
            if other != one and not dropped[other] and accepted:
                room = pods_allowed(classes, pending, pods[other], pod_class)
                some = min(rest, room, fitting(free, other, classes.sizes, pod_class))
                rest -= some
                pods[other, place] += some
                take(free, other, classes.sizes, pod_class, some)
        if rest > 0:
            return False
        pods[one, place] = 0
    return True


@kernel
def redundant(
    order: Longs,
    availability: FleetAvailability,
    classes: ClassColumns,
    pending: Longs,
    buffer: SelectionBuffer,
) -> Flags:
    """Which of the machines are redundant, tried in `order`: their pods fit on the others.

    A large machine selected late can make a small one selected early redundant; it would be
    reclaimed as soon as it joins.
    """
    dropped = np.zeros(buffer.rows.shape[0], np.bool_)
    for one in order:
        if _relocate(one, availability, classes, pending, buffer, dropped):
            dropped[one] = True
    return dropped
