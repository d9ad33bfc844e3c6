"""Kernel that places all plain pods of a cluster that have one priority.

It packs them without the machines that needs of a lower priority claimed in the last decision, and
what is left with them, or all of them if that leaves less. In each case it consolidates; if that
leaves some unplaced, it tries to balance utilization and to give each need its own machines first,
and keeps what leaves least.
"""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.kernels.machine_groups import relevant_claims, write_back
from bigfleet.engine.kernels.packing import pack, pack_groups
from bigfleet.engine.kernels.scoring import (
    BALANCED,
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
)
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs
from bigfleet.jit import kernel, lean_kernel

PASSES = 4
"""How often `place` may count the same pods in entries of the log: on the machines that are not
withheld and on all, and each time on own machines and on others.
"""


class _Packed(NamedTuple):
    """A result of packing, for `_return_to`."""

    #: [M, R] int64, as in `Machines`
    free: Longs
    #: [M] bool, as in `Machines`
    has_pods: Flags
    #: [O] int64, pods left of the classes in `order`
    left: Longs
    #: [E], the entries of the log
    machine: Ints
    pod_class: Ints
    pods: Longs


@lean_kernel
def _withhold(machines: Machines, priorities: Longs, priority: int) -> bool:
    """Withhold from `priority` the machines that needs of a lower one claimed in the last decision;
    whether there are any.
    """
    # Pods that fit elsewhere as well would make that need short: it would acquire a machine, which
    # would be surplus once they are counted elsewhere again.
    found = False
    for at in range(machines.last_claimed_by.shape[0]):
        need = machines.last_claimed_by[at]
        is_lower = need != NONE and priorities[need] < priority
        if is_lower and machines.max_priority[at] >= priority:
            machines.max_priority[at] = priority - 1
            found = True
    return found


@lean_kernel
def _share_left(left: Longs, order: Longs, share: Floats) -> float:
    """The sum of the shares of all pods left of the classes `order`."""
    total = 0.0
    for pod_class in order:
        total += left[pod_class] * share[pod_class]
    return total


@kernel
def _packed(
    machines: Machines, left: Longs, order: Longs, log: PlacementLog, length: int, end: int
) -> _Packed:
    """The result that was written to the log from `length` to `end`."""
    return _Packed(
        machines.free.copy(),
        machines.has_pods.copy(),
        left[order],
        log.machine[length:end].copy(),
        log.pod_class[length:end].copy(),
        log.pods[length:end].copy(),
    )


@kernel
def _return_to(
    packed: _Packed,
    machines: Machines,
    left: Longs,
    order: Longs,
    log: PlacementLog,
    length: int,
) -> int:
    """Write a result back, the log from `length` on; returns the log's new length."""
    machines.free[:], machines.has_pods[:] = packed.free, packed.has_pods
    left[order] = packed.left
    end: int = length + packed.machine.shape[0]
    log.machine[length:end], log.pod_class[length:end] = packed.machine, packed.pod_class
    log.pods[length:end] = packed.pods
    return end


@kernel
def _have_own(
    machines: Machines, classes: ClassColumns, left: Longs, order: Longs, priority: int
) -> bool:
    """Whether needs with pods left claimed machines in the last decision."""
    claims = relevant_claims(machines, classes, left, order)
    for at in range(claims.shape[0]):
        if claims[at] >= 0 and machines.max_priority[at] >= priority:
            return True
    return False


@kernel
def _pack_own_first(
    machines: Machines,
    classes: ClassColumns,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    log: PlacementLog,
    length: int,
) -> int:
    """Pack each need on the machines that it claimed in the last decision, and the rest anywhere.

    A machine that was bought for a large pod is not taken by a small one that has its own.
    """
    length = pack(machines, classes, left, order, priority, strategy, True, log, length)
    return pack(machines, classes, left, order, priority, strategy, False, log, length)


@kernel
def _pack_best(
    machines: Machines,
    classes: ClassColumns,
    share: Floats,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    log: PlacementLog,
    length: int,
) -> int:
    """Consolidate; if pods stay unplaced, also pack for balanced utilization and each need on its
    own machines first, and keep the first result that leaves least.
    """
    before = left[order]
    groups, end = pack_groups(
        machines, classes, left, order, priority, strategy, False, log, length
    )  # fmt: skip
    if not left[order].any():
        write_back(groups, machines)
        return end
    start = _Packed(
        machines.free.copy(),
        machines.has_pods.copy(),
        before,
        log.machine[:0],
        log.pod_class[:0],
        log.pods[:0],
    )
    write_back(groups, machines)
    best, least = _packed(machines, left, order, log, length, end), _share_left(left, order, share)
    for own_first in (False, True):
        # Others on their own machines seldom leave room for those that are short.
        if own_first and not _have_own(machines, classes, left, order, priority):
            continue
        _return_to(start, machines, left, order, log, length)
        if own_first:
            end = _pack_own_first(
                machines, classes, left, order, priority, strategy, log, length
            )  # fmt: skip
        else:
            end = pack(machines, classes, left, order, priority, BALANCED, False, log, length)
        if _share_left(left, order, share) < least:
            best, least = (
                _packed(machines, left, order, log, length, end),
                _share_left(left, order, share),
            )
        else:
            end = _return_to(best, machines, left, order, log, length)
    return end


@kernel
def place(
    machines: Machines,
    classes: ClassColumns,
    priorities: Longs,
    share: Floats,
    left: Longs,
    order: Longs,
    priority: int,
    strategy: ScoringStrategy,
    log: PlacementLog,
    length: int,
) -> int:
    """Place the pods `left` [C] of the classes `order`, which have this `priority`; see `pack`.

    Only what finds no place elsewhere goes to the machines that needs of a lower priority claimed
    in the last decision, unless fewer are left if all pods may. `priorities` [N] are those of all
    needs; `share` [C] is what an unplaced pod counts for, a whole number. The log must have
    `PASSES` times `log_capacity` to spare.
    """
    everywhere = machines.max_priority.copy()
    if not _withhold(machines, priorities, priority):
        return _pack_best(
            machines, classes, share, left, order, priority, strategy, log, length
        )  # fmt: skip
    start = _packed(machines, left, order, log, length, length)
    end = _pack_best(
        machines, classes, share, left, order, priority, strategy, log, length
    )  # fmt: skip
    machines.max_priority[:] = everywhere
    if not left[order].any():
        return end
    end = _pack_best(
        machines, classes, share, left, order, priority, strategy, log, end
    )  # fmt: skip
    least = _share_left(left, order, share)
    if not least:
        return end
    rest_last = _packed(machines, left, order, log, length, end)
    _return_to(start, machines, left, order, log, length)
    end = _pack_best(
        machines, classes, share, left, order, priority, strategy, log, length
    )  # fmt: skip
    if _share_left(left, order, share) < least:
        return end
    return _return_to(rest_last, machines, left, order, log, length)
