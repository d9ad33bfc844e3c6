"""Whom a machine is for when it is seen in another state, and what it is worth to them."""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.engine.snapshot import NONE
from bigfleet.model import penalty
from bigfleet.model.machine import BOUND, Machine, MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.fleet.assignment import from_metadata
from bigfleet.services.shard.fleet.columns import Columns
from bigfleet.services.shard.records.interning import Interned

_S = MachineState
_AT_WORK = (_S.CONFIGURING, _S.CONFIGURED)
# Bought for somebody, be it by an earlier life of this shard or by another shard.
_BOUGHT = (_S.CREATING, _S.IDLE)
_UNSEEN = (0, _S.SPECULATIVE)
# On the way from here to a state without work a machine stays promised to the need it is for.
_PROMISED = (_S.SPECULATIVE, _S.CREATING, _S.DRAINING)


def update_claim(
    columns: Columns,
    row: int,
    machine: Machine,
    before: int,
    needs: Interned[NeedKey],
    drained_for: Callable[[str], NeedKey | None],
) -> None:
    """Write it into `row`; `before` is the state in which the machine was, 0 at first sight.

    A drained machine keeps its worth, and whom it was drained for; a given-back one forgets.
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
