"""Kernels of folding: which gangs, or pods, fit on one machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import fits
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, Rows
from bigfleet.jit import kernel, lean_kernel

_HASH_BITS = (1 << 40) - 1


@lean_kernel
def _hash(rows: Longs, at: int) -> int:
    # Kept within 40 bits, so that no product overflows.
    value = 0
    for column in range(rows.shape[1]):
        value = ((value * 1031) ^ (rows[at, column] & _HASH_BITS)) & _HASH_BITS
        value ^= value >> 15
    return int(value)


@lean_kernel
def _are_equal(rows: Longs, one: int, other: int) -> bool:
    is_equal = True
    for column in range(rows.shape[1]):
        is_equal &= rows[one, column] == rows[other, column]
    return bool(is_equal)


@kernel
def number_rows(rows: Longs) -> tuple[Longs, Longs]:
    """For each of `rows` [N, K] a number that it shares with equal ones only, in the order in which
    they appear; and for each number its first row.
    """
    slots = 8
    while slots < 2 * rows.shape[0]:
        slots *= 2
    table, found = np.full(slots, NONE), 0
    numbers, first = np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0], np.int64)
    for at in range(rows.shape[0]):
        slot = _hash(rows, at) & (slots - 1)
        while table[slot] != NONE and not _are_equal(rows, first[table[slot]], at):
            slot = (slot + 1) & (slots - 1)
        if table[slot] == NONE:
            table[slot] = found
            first[found] = at
            found += 1
        numbers[at] = table[slot]
    return numbers, first[:found].copy()


class Hosts(NamedTuple):
    """The flavours on which gangs may fit."""

    #: [n] int32, the flavours of the clusters' own machines, one cluster after the other
    own: Ints
    #: [clusters + 1] int64, where those of each cluster begin
    start: Longs
    #: [F] bool, some machine of the flavour is unclaimed, or will be
    unclaimed: Flags
    #: [F] int64, the lowest priority that a machine of the flavour serves
    lowest: Longs


@kernel
def lowest_priorities(flavour: Ints, priority: Ints, works: Flags, flavours: int) -> Longs:
    """For each flavour [F] the lowest priority that a machine which `works` [n] serves."""
    lowest = np.full(flavours, np.iinfo(np.int64).max)
    for at in range(flavour.shape[0]):
        if works[at] and priority[at] < lowest[flavour[at]]:
            lowest[flavour[at]] = priority[at]
    return lowest


class GangTotals(NamedTuple):
    """U distinct gangs, sorted by cluster."""

    #: [U] int64
    cluster: Longs
    #: [U] int64, row of the accepted flavours
    profile: Longs
    #: [U] int64
    priority: Longs
    #: [U, R] int64, requests of all pods together
    total: Longs


@lean_kernel
def _fits_some_shape(gangs: GangTotals, at: int, shapes: Longs) -> bool:
    shape = 0
    while shape < shapes.shape[0] and not fits(shapes, shape, gangs.total, at):
        shape += 1
    return bool(shape < shapes.shape[0])


@lean_kernel
def _fits_on(
    gangs: GangTotals, at: int, hosts: Hosts, owner: Longs, accepted: Flags, capacity: Longs
) -> bool:
    for flavour in range(capacity.shape[0]):
        if accepted[gangs.profile[at], flavour] and fits(capacity, flavour, gangs.total, at):
            is_own = owner[flavour] == gangs.cluster[at]
            is_below = hosts.lowest[flavour] < gangs.priority[at]
            if is_own or is_below or hosts.unclaimed[flavour]:
                return True
    return False


@kernel
def fit_on_one(
    gangs: GangTotals, hosts: Hosts, accepted: Flags, capacity: Longs, shapes: Longs
) -> Flags:
    """Which gangs [U] a single machine could hold that is the cluster's own, unclaimed, or of a
    lower priority; `accepted` [A, F], `capacity` [F, R] with the distinct rows `shapes` [S, R].
    """
    found = np.zeros(gangs.cluster.shape[0], np.bool_)
    owner = np.full(capacity.shape[0], NONE)
    for at in range(gangs.cluster.shape[0]):
        cluster = gangs.cluster[at]
        if at == 0 or gangs.cluster[at - 1] != cluster:
            for place in range(hosts.start[cluster], hosts.start[cluster + 1]):
                owner[hosts.own[place]] = cluster
        # Most gangs that are too large for their candidates are too large for any machine.
        if _fits_some_shape(gangs, at, shapes):
            found[at] = _fits_on(gangs, at, hosts, owner, accepted, capacity)
    return found


@kernel
def fit_some(sizes: Longs, its: Rows, shapes: Longs) -> Flags:
    """Which of the rows `its` of `sizes` [C, R] fit into one of `shapes` [S, R]."""
    found = np.zeros(its.shape[0], np.bool_)
    for at in range(its.shape[0]):
        shape = 0
        while shape < shapes.shape[0] and not fits(shapes, shape, sizes, its[at]):
            shape += 1
        found[at] = shape < shapes.shape[0]
    return found
