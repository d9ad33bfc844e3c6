"""Kernel that places all plain pods of a cluster that have one priority.

It packs them up to four times: without the machines that needs of a lower priority claimed in the
last decision, and with them; in each case consolidating, and for balanced utilization if that
leaves some unplaced.
"""

from __future__ import annotations

from bigfleet.engine.kernels.machine_groups import Groups, write_back
from bigfleet.engine.kernels.packing import pack_groups
from bigfleet.engine.kernels.scoring import (
    BALANCED,
    ClassColumns,
    Machines,
    PlacementLog,
    ScoringStrategy,
)
from bigfleet.engine.snapshot import NONE, Floats, Longs
from bigfleet.jit import kernel, lean_kernel


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
) -> tuple[Groups, int]:
    """Consolidate; if pods stay unplaced, pack again for balanced utilization and keep the better
    result. The machines stay as they are, see `pack_groups`.
    """
    before = left[order]
    groups, end = pack_groups(
        machines, classes, left, order, priority, strategy, log, length
    )  # fmt: skip
    unplaced, least = left[order], _share_left(left, order, share)
    if not unplaced.any():
        return groups, end
    machine, pod_class = log.machine[length:end].copy(), log.pod_class[length:end].copy()
    pods = log.pods[length:end].copy()
    left[order] = before
    balanced, balanced_end = pack_groups(
        machines, classes, left, order, priority, BALANCED, log, length
    )  # fmt: skip
    if _share_left(left, order, share) < least:
        return balanced, balanced_end
    left[order] = unplaced
    log.machine[length:end], log.pod_class[length:end] = machine, pod_class
    log.pods[length:end] = pods
    return groups, end


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

    If all of them fit, they leave alone the machines that needs of a lower priority claimed in the
    last decision. `priorities` [N] are those of all needs; `share` [C] is what an unplaced pod
    counts for, a whole number.
    """
    before, everywhere = left[order], machines.max_priority.copy()
    if _withhold(machines, priorities, priority):
        groups, end = _pack_best(
            machines, classes, share, left, order, priority, strategy, log, length
        )  # fmt: skip
        machines.max_priority[:] = everywhere
        if not left[order].any():
            write_back(groups, machines)
            return end
        left[order] = before
    groups, end = _pack_best(
        machines, classes, share, left, order, priority, strategy, log, length
    )  # fmt: skip
    write_back(groups, machines)
    return end
