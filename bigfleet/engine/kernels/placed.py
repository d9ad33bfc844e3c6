"""Kernels that read where pods were placed."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.scoring import Machines, PlacementLog
from bigfleet.engine.snapshot import NONE, Flags, Floats, Ints, Longs, Rows
from bigfleet.jit import kernel, lean_kernel


@lean_kernel
def claim(
    log: PlacementLog,
    begin: Longs,
    end: Longs,
    first: Longs,
    need: Ints,
    additional: Flags,
    rows: Rows,
    claimed: Ints,
) -> None:
    """Write to `claimed` [n] the need that claims each machine with pods of Q clusters: an
    additional one, since nothing else records which machines are its own, or else the first in the
    demand's order.

    The placements of each cluster are from `begin` to `end` [Q] in the log, and its machines begin
    at `first` [Q] in `rows`, which are rows of the fleet. `need` [C] is the need of each class.
    """
    for cluster in range(begin.shape[0]):
        for at in range(begin[cluster], end[cluster]):
            row = rows[first[cluster] + log.machine[at]]
            if log.pods[at] > 0 and row != NONE:
                one, other = need[log.pod_class[at]], claimed[row]
                # The pods of additional needs are placed before all others.
                if other == NONE or (one < other and not additional[other]):
                    claimed[row] = one


@lean_kernel
def collect(
    log: PlacementLog,
    begin: Longs,
    end: Longs,
    first: Longs,
    classes: Flags,
    rows: Rows,
    count: int,
    row: Rows,
    pod_class: Longs,
    pods: Longs,
) -> int:
    """Append the placements of these `classes` [C] in Q clusters, which are given as for `claim`,
    to columns that have `count` entries; returns how many they have now.
    """
    for cluster in range(begin.shape[0]):
        for at in range(begin[cluster], end[cluster]):
            if log.pods[at] > 0 and classes[log.pod_class[at]]:
                row[count] = rows[first[cluster] + log.machine[at]]
                pod_class[count] = log.pod_class[at]
                pods[count] = log.pods[at]
                count += 1
    return count


@kernel
def order_by_row(row: Rows, key: Longs, machines: int) -> Rows:
    """The order of P entries by `row` [P], which is below `machines`, and then by `key` [P]."""
    start = np.zeros(machines + 1, np.int64)
    for at in range(row.shape[0]):
        start[row[at] + 1] += 1
    start = np.cumsum(start)
    end = start.copy()
    order = np.empty(row.shape[0], np.int64)
    for at in range(row.shape[0]):
        # A machine has few entries: each is put into its place among them.
        place = end[row[at]]
        end[row[at]] += 1
        while place > start[row[at]] and key[order[place - 1]] > key[at]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = at
    return order


@kernel
def arrange(
    order: Rows, row: Rows, pod_class: Longs, pods: Longs, size: Longs, need_of: Ints, start: Longs
) -> tuple[Ints, Ints, Ints, Longs]:
    """P placements in this `order`: row, need, size of the need, and pods. `size` [P] is that of
    the demand, `need_of` [C] the need of each class, and `start` [N + 1] delimits needs' sizes.
    """
    number = order.shape[0]
    rows, needs = np.empty(number, np.int32), np.empty(number, np.int32)
    sizes, counts = np.empty(number, np.int32), np.empty(number, np.int64)
    for place in range(number):
        at = order[place]
        need = need_of[pod_class[at]]
        rows[place], needs[place] = row[at], need
        sizes[place], counts[place] = size[at] - start[need], pods[at]
    return rows, needs, sizes, counts


@kernel
def releasable_first(machines: Machines, rows: Rows, releasable: Flags, number: int) -> Rows:
    """Up to `number` of the machines that are `releasable` [n], the least utilized first; none if
    the pods on the first one have no room elsewhere. `rows` [M] are rows of the fleet, NONE for a
    removed machine.
    """
    among = np.zeros(rows.shape[0], np.bool_)
    for at in range(rows.shape[0]):
        among[at] = rows[at] != NONE and releasable[rows[at]]
    found = least_utilized(machines, among, number)
    if found.shape[0] > 0:
        alone = np.zeros(rows.shape[0], np.bool_)
        alone[found[0]] = True
        nothing = np.zeros(machines.free.shape[1], np.int64)
        if not may_fit_without(machines, rows, alone, nothing):
            return found[:0]
    return found


@kernel
def least_utilized(machines: Machines, among: Flags, number: int) -> Rows:
    """Up to `number` of the machines `among` [M] with the least utilization, the least utilized
    first, of equals the first one.
    """
    found, shares = np.empty(number, np.intp), np.empty(number)
    return found[: _find_least(machines, among, found, shares)]


@lean_kernel
def _find_least(machines: Machines, among: Flags, found: Rows, shares: Floats) -> int:
    """Write the least utilized machines to `found`, and their utilization to `shares`; returns how
    many there are.
    """
    count, number = 0, found.shape[0]
    for at in range(among.shape[0]):
        if not among[at]:
            continue
        used = 0.0
        for resource in range(machines.free.shape[1]):
            capacity = max(machines.capacity[at, resource], 1)
            taken = machines.capacity[at, resource] - machines.free[at, resource]
            used = max(used, taken / capacity)
        if count == number and used >= shares[count - 1]:
            continue
        place = min(count, number - 1)
        count = place + 1
        while place > 0 and shares[place - 1] > used:
            found[place], shares[place] = found[place - 1], shares[place - 1]
            place -= 1
        found[place], shares[place] = at, used
    return count


@lean_kernel
def may_fit_without(machines: Machines, rows: Rows, gone: Flags, more: Longs) -> bool:
    """Whether the other machines have as much free as is used on those `gone` [M], and `more` [R];
    `rows` [M] are rows of the fleet, NONE for a removed machine.
    """
    for resource in range(machines.free.shape[1]):
        spare = -more[resource]
        for at in range(gone.shape[0]):
            if gone[at]:
                spare -= machines.capacity[at, resource] - machines.free[at, resource]
            elif rows[at] != NONE:
                spare += machines.free[at, resource]
        if spare < 0:
            return False
    return True
