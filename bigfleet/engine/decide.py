"""One cycle's decision, made anew from the whole snapshot each time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigfleet.engine.ageing import reservations, shortfalls
from bigfleet.engine.assign import assign
from bigfleet.engine.carry import Carry
from bigfleet.engine.decision import Action, ActionKind, Decision
from bigfleet.engine.desk import Desk
from bigfleet.engine.headroom import Headroom
from bigfleet.engine.preempt import preempt
from bigfleet.engine.rails import cap_reclaims
from bigfleet.engine.reclaim import (
    held_long_enough,
    left_behind,
    release_order,
    releases,
    surplus,
)
from bigfleet.engine.shelter import sheltered
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Rows, Settings
from bigfleet.engine.soundness import refuse_unsound
from bigfleet.engine.victims import graces
from bigfleet.model.machine import MachineState


def decide(
    fleet: Fleet, demand: Demand, carry: Carry, settings: Settings, now_seconds: float
) -> Decision:
    """What to do so that `fleet` serves `demand`, with what it cannot serve.

    Pure: equal arguments give an equal decision, and a fleet that serves its demand with nothing
    to spare gives no actions. `carry` is the last decision's, `Carry()` at first. `now_seconds` is
    on the clock of `fleet.unused_since_seconds`. InvalidInput for a snapshot that cannot be.
    """
    refuse_unsound(fleet, demand, now_seconds)
    desk = Desk(fleet, demand, carry, settings, now_seconds)
    assign(desk)
    headroom = Headroom(desk)
    ripe = _ripe(desk, headroom)
    preempt(desk, ripe)
    headroom.acquire(ripe)
    reclaims = [*_reclaims_for_needs(desk), *_reclaims_for_nobody(desk, ripe)]
    allowed = cap_reclaims(fleet, _rows(reclaims), settings.reclaim_cap_fraction)
    short, shortages = shortfalls(desk, carry)
    return Decision(
        actions=[
            *_acquisitions(desk),
            *_preemptions(desk),
            *(action for action, is_allowed in zip(reclaims, allowed, strict=True) if is_allowed),
            *(Action(ActionKind.DELETE, int(row), NONE) for row in releases(desk)),
        ],
        shortfalls=short,
        claimed_by=desk.supply.claimed_by,
        headroom=headroom.rows,
        reclaims_capped=len(reclaims) - int(allowed.sum()),
        carry=Carry(reservations(desk), shortages),
    )


def _ripe(desk: Desk, headroom: Headroom) -> Flags:
    """Machines to be reclaimed though nobody waits for them."""
    spare = surplus(desk)
    left = left_behind(desk, spare)
    staying, due = spare & ~left, held_long_enough(desk) & ~headroom.retain(left)
    ripe: Flags = left | (staying & due & ~sheltered(desk, staying, due))
    return ripe


def _acquisitions(desk: Desk) -> Iterator[Action]:
    for index in sorted(desk.acquired):
        rows = desk.acquired[index]
        for row, state in zip(rows.tolist(), desk.fleet.state[rows].tolist(), strict=True):
            is_idle = state == MachineState.IDLE
            yield Action(ActionKind.BOOTSTRAP if is_idle else ActionKind.PROVISION, row, index)


def _preemptions(desk: Desk) -> Iterator[Action]:
    for index in sorted(desk.taken):
        taken = desk.taken[index]
        rows, grace = taken.rows[~taken.gentle], graces(taken.gap[~taken.gentle])
        for row, seconds in zip(rows.tolist(), grace.tolist(), strict=True):
            yield Action(ActionKind.PREEMPT, row, index, seconds)


def _reclaims_for_needs(desk: Desk) -> Iterator[Action]:
    """Nobody counts these machines, but a pod on one may still be let go in good time."""
    for index in sorted(desk.taken):
        taken = desk.taken[index]
        excess = taken.gentle & (desk.fleet.state[taken.rows] == MachineState.CONFIGURED)
        rows, grace = taken.rows[excess], graces(taken.gap[excess])
        for row, seconds in zip(rows.tolist(), grace.tolist(), strict=True):
            yield Action(ActionKind.RECLAIM, row, index, seconds)


def _reclaims_for_nobody(desk: Desk, ripe: Flags) -> Iterator[Action]:
    unwanted = ripe & (desk.supply.claimed_by == NONE)
    for row in release_order(desk.fleet, unwanted).tolist():
        yield Action(ActionKind.RECLAIM, row, NONE, desk.settings.voluntary_grace_seconds)


def _rows(actions: list[Action]) -> Rows:
    return np.array([action.row for action in actions], np.intp)
