"""Groups of machines in the same state, which kernels treat as one.

Machines without room for any of the pods are in no group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import NO_LIMIT, ClassColumns, Machines, PlacementLog, fits
from bigfleet.engine.snapshot import Flags, Longs
from bigfleet.jit import kernel, lean_kernel

_HASH_BITS = (1 << 40) - 1


class Groups(NamedTuple):
    """Up to M groups of the M machines that may take pods; how many there are is in `number[0]`.

    Group g consists of `machine[begin[g]:end[g]]`, in ascending order.
    """

    #: [1] int64
    number: Longs
    #: [M] int64
    machine: Longs
    #: [M] int64
    begin: Longs
    #: [M] int64
    end: Longs
    #: [M, R] int64, what each machine of the group has left
    free: Longs
    #: [M] bool, the machines hold pods
    has_pods: Flags
    #: [M] int64, pods of the current class that each machine got
    got: Longs
    #: [M] bool, the group differs from its machines' columns
    changed: Flags


@kernel
def relevant_claims(machines: Machines, classes: ClassColumns, left: Longs, order: Longs) -> Longs:
    """For each machine [M] the need of the classes `order` that claimed it in the last decision, or
    -1: claims of other needs make no difference.
    """
    claims = np.full(machines.flavour.shape[0], -1)
    if not order.shape[0]:
        return claims
    needs = classes.need[order]
    first = needs.min()
    is_placed = np.zeros(needs.max() - first + 1, np.bool_)
    for place in range(order.shape[0]):
        if left[order[place]] > 0:
            is_placed[needs[place] - first] = True
    last_claimed_by = machines.last_claimed_by
    for at in range(claims.shape[0]):
        need = last_claimed_by[at] - first
        if 0 <= need < is_placed.shape[0] and is_placed[need]:
            claims[at] = last_claimed_by[at]
    return claims


@kernel
def least_requests(classes: ClassColumns, left: Longs, order: Longs) -> Longs:
    """The least that any pod left of the classes `order` requests of each resource [1, R]."""
    least = np.full((1, classes.sizes.shape[1]), NO_LIMIT)
    for pod_class in order:
        if left[pod_class] > 0:
            for resource in range(least.shape[1]):
                least[0, resource] = min(least[0, resource], classes.sizes[pod_class, resource])
    return least


@lean_kernel
def _hash(machines: Machines, claims: Longs, at: int) -> int:
    # Kept within 40 bits, so that no product overflows.
    value = machines.kind[at] * 31 + claims[at] + 1
    for resource in range(machines.free.shape[1]):
        value = ((value * 1031) ^ machines.free[at, resource]) & _HASH_BITS
    return int(value ^ (value >> 17))


@lean_kernel
def _are_equal(machines: Machines, claims: Longs, one: int, other: int) -> bool:
    if (
        machines.kind[one] != machines.kind[other]
        or claims[one] != claims[other]
        or machines.has_pods[one] != machines.has_pods[other]
    ):
        return False
    for resource in range(machines.free.shape[1]):
        if machines.free[one, resource] != machines.free[other, resource]:
            return False
    return True


@lean_kernel
def _number_groups(
    machines: Machines,
    claims: Longs,
    priority: int,
    least: Longs,
    table: Longs,
    group_of: Longs,
    example: Longs,
) -> int:
    """Write to `group_of` [M] the number of each machine's group, or -1 if pods of `priority` that
    request at least `least[0]` cannot use it, and to `example` [M] a machine of each group; returns
    how many groups there are. `table` is a hash table whose length is a power of 2, without entries
    (-1).
    """
    slots = table.shape[0]
    number = 0
    for at in range(claims.shape[0]):
        # Acquired for a lower priority after this one had its turn, or removed.
        if machines.max_priority[at] < priority or not fits(machines.free, at, least, 0):
            continue
        slot = _hash(machines, claims, at) & (slots - 1)
        while table[slot] >= 0 and not _are_equal(machines, claims, example[table[slot]], at):
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            table[slot] = number
            example[number] = at
            number += 1
        group_of[at] = table[slot]
    return number


@kernel
def group_machines(machines: Machines, claims: Longs, priority: int, least: Longs) -> Groups:
    """All machines with room for `least` [1, R] that pods of `priority` may use, grouped; `claims`
    is from `relevant_claims`.
    """
    total, resources = machines.free.shape
    slots = 8
    while slots < 2 * total:
        slots *= 2
    table, group_of, example = np.full(slots, -1), np.full(total, -1), np.empty(total, np.int64)
    number = _number_groups(machines, claims, priority, least, table, group_of, example)
    groups = Groups(
        np.full(1, number),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty((total, resources), np.int64),
        np.empty(total, np.bool_),
        np.zeros(total, np.int64),
        np.zeros(total, np.bool_),
    )
    _list_machines(groups, machines, group_of, example)
    return groups


@lean_kernel
def _list_machines(groups: Groups, machines: Machines, group_of: Longs, example: Longs) -> None:
    """Fill the columns of `groups`; see `_number_groups` for the others."""
    number, listed = groups.number[0], 0
    for group in range(number):
        groups.end[group] = 0
        groups.has_pods[group] = machines.has_pods[example[group]]
        for resource in range(machines.free.shape[1]):
            groups.free[group, resource] = machines.free[example[group], resource]
    for at in range(group_of.shape[0]):
        if group_of[at] >= 0:
            groups.end[group_of[at]] += 1
    for group in range(number):
        groups.begin[group], listed = listed, listed + groups.end[group]
        groups.end[group] = groups.begin[group]
    for at in range(group_of.shape[0]):
        group = group_of[at]
        if group >= 0:
            groups.machine[groups.end[group]] = at
            groups.end[group] += 1


@lean_kernel
def _new_group(groups: Groups, begin: int, end: int, like: int) -> int:
    """A group of its own for these machines of group `like`, in the same state."""
    new = groups.number[0]
    groups.number[0] += 1
    groups.begin[new], groups.end[new] = begin, end
    for resource in range(groups.free.shape[1]):
        groups.free[new, resource] = groups.free[like, resource]
    groups.has_pods[new] = groups.has_pods[like]
    groups.got[new] = groups.got[like]
    groups.changed[new] = groups.changed[like]
    return int(new)


@lean_kernel
def split(groups: Groups, group: int, at: int) -> int:
    """Split a group before its machine in place `at`; returns the group of the later machines,
    which is the same if there are no earlier ones, or -1 if there are no later ones.
    """
    begin, end = groups.begin[group], groups.end[group]
    if at == begin:
        return group
    if at == end:
        return -1
    groups.end[group] = at
    return _new_group(groups, at, end, group)


@lean_kernel
def give(groups: Groups, group: int, after: Longs, place: int, pods: int) -> None:
    """Give each machine of the group `pods` more pods, which leaves it `after[place]`."""
    for resource in range(after.shape[1]):
        groups.free[group, resource] = after[place, resource]
    groups.has_pods[group] = True
    groups.got[group] += pods
    groups.changed[group] = True


@lean_kernel
def log_class(groups: Groups, log: PlacementLog, length: int, pod_class: int) -> int:
    """Append the pods of a class to the log; returns the new length."""
    for group in range(groups.number[0]):
        got = groups.got[group]
        if got > 0:
            for place in range(groups.begin[group], groups.end[group]):
                log.machine[length] = groups.machine[place]
                log.pod_class[length] = pod_class
                log.pods[length] = got
                length += 1
            groups.got[group] = 0
    return length


@lean_kernel
def write_back(groups: Groups, machines: Machines) -> None:
    """Write the state of all groups to their machines."""
    for group in range(groups.number[0]):
        if groups.changed[group]:
            for place in range(groups.begin[group], groups.end[group]):
                at = groups.machine[place]
                machines.has_pods[at] = groups.has_pods[group]
                for resource in range(machines.free.shape[1]):
                    machines.free[at, resource] = groups.free[group, resource]
