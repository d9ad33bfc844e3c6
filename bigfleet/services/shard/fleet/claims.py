"""Writes the claims of decisions and metadata into the inventory's columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import NONE, Demand, Ints
from bigfleet.model import penalty
from bigfleet.model.group import ADDITIONAL, group_text
from bigfleet.model.machine import BOUND, Machine, MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.fleet.assignment import from_metadata
from bigfleet.services.shard.fleet.columns import Columns
from bigfleet.services.shard.records.interning import Interned

_S = MachineState
_AT_WORK = (_S.CONFIGURING, _S.CONFIGURED)
# Purchased for a need, perhaps by an earlier process of this shard or by another shard.
_BOUGHT = (_S.CREATING, _S.IDLE)
_UNSEEN = (0, _S.SPECULATIVE)
# Leaving one of these states for an unbound one, a machine stays reserved for its need.
_PROMISED = (_S.SPECULATIVE, _S.CREATING, _S.DRAINING)


def update_claim(
    columns: Columns,
    row: int,
    machine: Machine,
    before: int,
    needs: Interned[NeedKey],
    drained_for: Callable[[str], NeedKey | None],
) -> None:
    """Update need and penalties in `row`; `before` is the former state, 0 for a new machine.

    A drained machine keeps its penalties and the need it was drained for; a released one loses
    both.
    """
    state = machine.state
    made = from_metadata(machine.cluster, machine.shard_metadata)
    if state is _S.DRAINING:
        wanted = drained_for(machine.id)
        columns.need[row] = NONE if wanted is None else needs.number(wanted)
    elif made is not None and (
        (state in _AT_WORK and before not in _AT_WORK) or (state in _BOUGHT and before in _UNSEEN)
    ):
        columns.need[row] = needs.number(made.need)
    elif state not in _AT_WORK and before not in _PROMISED:
        columns.need[row] = NONE
    if state in BOUND and made is not None and before not in BOUND:
        _set_penalties(
            columns, row, made.priority, made.interruption_bucket, made.reclamation_bucket
        )
    elif state is _S.SPECULATIVE:
        _set_penalties(columns, row, 0, penalty.ZERO, penalty.ZERO)


def _set_penalties(
    columns: Columns, row: int, priority: int, interruption: int, reclamation: int
) -> None:
    columns.priority[row] = priority
    columns.interruption_bucket[row] = interruption
    columns.reclamation_bucket[row] = reclamation


# Machines in these states keep their need while no need counts them in a decision.
_PURPOSEFUL = (MachineState.CREATING, MachineState.CONFIGURING, MachineState.CONFIGURED)

# Rows of the inventory: their numbers in ascending order, or all of them.
Rows = Ints | slice
ALL = slice(None)

_ADDITIONAL = group_text(ADDITIONAL)

# Written at once without delaying sessions.
_ROWS_AT_ONCE = 10_000


def chunks(rows: Rows, claimed_by: Ints) -> Iterator[tuple[Rows, Ints]]:
    """`rows` and their claims, in chunks."""
    for start in range(0, len(claimed_by), _ROWS_AT_ONCE):
        chunk = slice(start, start + _ROWS_AT_ONCE)
        yield chunk if isinstance(rows, slice) else rows[chunk], claimed_by[chunk]


def note(
    columns: Columns,
    rows: Rows,
    needs: Interned[NeedKey],
    claimed_by: Ints,
    demand: Demand,
    keys: Sequence[NeedKey],
) -> None:
    """Write which need counts each of `rows`. A machine that no need counts keeps its need if it
    is in use, and loses it otherwise.
    """
    need, counted = columns.need[rows], claimed_by != NONE
    claims = claimed_by[counted]
    numbers = np.full(len(claims), NONE) if demand.number is None else demand.number[claims]
    unnumbered, place = np.unique(claims[numbers == NONE], return_inverse=True)
    found = [needs.number(keys[claim]) for claim in unnumbered.tolist()]
    numbers[numbers == NONE] = np.array(found, np.int32)[place]
    need[~counted & ~np.isin(columns.state[rows], _PURPOSEFUL)] = NONE
    need[counted] = numbers
    columns.need[rows] = need


def end_additional(
    columns: Columns, rows: Rows, needs: Interned[NeedKey], claimed_by: Ints, demand: Demand
) -> None:
    """Take machines in service from additional needs that do not count them any more.

    Pods run there meanwhile, and what is still requested, or later, is for a further machine.
    """
    need = columns.need[rows]
    free = (claimed_by == NONE) & (columns.state[rows] == _S.CONFIGURED) & (need != NONE)
    held = np.unique(need[free]).tolist()
    additional = [number for number in held if needs.values[number].group == _ADDITIONAL]
    if additional:
        # What is requested is unknown until the cluster has reported.
        free &= np.isin(columns.cluster[rows], [*demand.reported]) & np.isin(need, additional)
        need[free] = NONE
        columns.need[rows] = need


def note_headroom(columns: Columns, rows: Rows, headroom: Collection[int]) -> None:
    """Write which machines are headroom for gangs."""
    ahead = np.zeros(len(columns.state[rows]), np.bool_)
    ahead[[*headroom]] = True
    columns.headroom[:] = False
    columns.headroom[rows] = ahead


def track_unused_since(columns: Columns, rows: Rows, claimed_by: Ints, now_seconds: float) -> None:
    """Write since when each machine has been unused. For a machine from another shard that time
    starts when it arrives, as after a restart.
    """
    state, counted = columns.state[rows], claimed_by != NONE
    since = columns.unused_since_seconds[rows]
    at_work = state == MachineState.CONFIGURED
    since[at_work & counted] = np.nan
    unused = (at_work & ~counted) | (state == MachineState.IDLE)
    since[unused & np.isnan(since)] = now_seconds
    if not isinstance(rows, slice):
        columns.unused_since_seconds[:] = np.nan
    columns.unused_since_seconds[rows] = since


def update_penalties(columns: Columns, rows: Rows, claimed_by: Ints, demand: Demand) -> None:
    """Give each configured machine the penalties of the need that it serves now."""
    numbers = np.arange(len(columns.state), dtype=np.int32)[rows]
    serving = (columns.state[rows] == MachineState.CONFIGURED) & (claimed_by != NONE)
    numbers, claimed = numbers[serving], claimed_by[serving]
    at_home = demand.cluster[claimed] == columns.cluster[numbers]
    numbers, claimed = numbers[at_home], claimed[at_home]
    needs = need_columns_of(demand.needs)
    columns.priority[numbers] = needs.priority[claimed]
    columns.interruption_bucket[numbers] = needs.interruption_bucket[claimed]
    columns.reclamation_bucket[numbers] = needs.reclamation_bucket[claimed]
