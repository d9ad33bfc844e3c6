"""Kernel that finds the machines that a need may take from others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import NONE, Bytes, Flags, Ints, Longs, Rows
from bigfleet.jit import kernel, lean_kernel

# `CandidateTier.SURPLUS`
_SURPLUS = 1


class CandidateColumns(NamedTuple):
    """P machines that drain, or that are in service and may be drained."""

    #: [P] intp, row of the fleet
    row: Rows
    #: [P] int32, index of the flavour
    flavour: Ints
    #: [P] int32, the cluster that the machine is bound to, or NONE
    cluster: Ints
    #: [P] int32, the cluster that the machine is supply for, or NONE
    supply_cluster: Ints
    #: [P] int32, the need that claimed the machine in the last decision, or NONE
    last_claimed_by: Ints
    #: [P] bool
    drains: Flags
    #: [P] int32, the need that the machine drains for, or NONE
    reserved_for: Ints
    #: [P] bool, its operator reports pods that must stay
    must_stay: Flags
    #: [P] int32, the first need with pods on the machine now, or NONE
    holder: Ints
    #: [P] int64, the priority that the machine serves
    priority: Longs
    #: [P] uint8, CandidateTier
    tier: Bytes


@kernel
def open_candidates(
    table: CandidateColumns,
    need: int,
    cluster: int,
    priority: int,
    priorities: Longs,
    accepted: Flags,
    incomplete: Flags,
    unavailable: Flags,
    tiers: int,
) -> Rows:
    """The positions of the machines below tier `tiers` that need `need` of `cluster` and `priority`
    may take, whether they drain in time left aside.

    `priorities` [N] are those of all needs, `accepted` [F] flavours are the need's, `unavailable`
    [n] machines are ordered already. For a gang, `incomplete` [N] are the gangs that yield to one
    of their priority; else it is empty.
    """
    found = np.empty(table.row.shape[0], np.intp)
    number = _find_open(
        table, need, cluster, priority, priorities, accepted, incomplete, unavailable, tiers, found
    )
    return found[:number].copy()


@lean_kernel
def _find_open(
    table: CandidateColumns,
    need: int,
    cluster: int,
    priority: int,
    priorities: Longs,
    accepted: Flags,
    incomplete: Flags,
    unavailable: Flags,
    tiers: int,
    found: Rows,
) -> int:
    """Write to `found`; returns how many there are."""
    number = 0
    for at in range(table.row.shape[0]):
        if not _is_lower(table, at, need, priority, incomplete):
            continue
        if not accepted[table.flavour[at]] or unavailable[table.row[at]]:
            continue
        # Its operator reports pods that must stay, of unknown priority, whatever is placed there.
        if table.tier[at] >= tiers or (table.tier[at] == _SURPLUS and table.must_stay[at]):
            continue
        if not _is_own(table, at, cluster, priority, priorities):
            found[number] = at
            number += 1
    return number


@lean_kernel
def _is_lower(
    table: CandidateColumns, at: int, need: int, priority: int, incomplete: Flags
) -> bool:
    """Whether the machine serves a lower priority, was the need's own, or its gang yields."""
    if table.priority[at] < priority:
        return True
    if table.last_claimed_by[at] == need and table.tier[at] == _SURPLUS:
        return True
    holder = table.holder[at]
    if incomplete.shape[0] == 0 or holder == NONE or table.priority[at] != priority:
        return False
    return bool(incomplete[holder])


@lean_kernel
def _is_own(
    table: CandidateColumns, at: int, cluster: int, priority: int, priorities: Longs
) -> bool:
    """Whether the machine is supply for the need's own cluster: phase 1 has used those, but for
    machines that drain for a need of lower priority.
    """
    if not table.drains[at]:
        return bool(table.cluster[at] == cluster)
    reserving_need = table.reserved_for[at]
    outranked = reserving_need != NONE and priorities[reserving_need] < priority
    return bool(table.supply_cluster[at] == cluster and not outranked)
