"""One cycle's decision, made anew from the whole snapshot each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from bigfleet.engine.ageing import reservations, shortfalls
from bigfleet.engine.assign import Assignment
from bigfleet.engine.carry import Carry
from bigfleet.engine.decision import Action, ActionKind, Decision, Placements
from bigfleet.engine.headroom import Headroom
from bigfleet.engine.preempt import preempt
from bigfleet.engine.rails import cap_reclaims
from bigfleet.engine.recount import to_ask_about
from bigfleet.engine.release import Release, release_order, releases
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Rows, Settings
from bigfleet.engine.soundness import refuse_unsound
from bigfleet.engine.state import State
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
    state = State(fleet, demand, carry, settings, now_seconds)
    assignment = Assignment(state)
    assignment.run()
    headroom = Headroom(state, assignment.market)
    headroom.retain()
    release = Release(state, assignment)
    reclaimable = release.reclaimable()
    preempt(state, assignment, reclaimable)
    headroom.acquire()
    claimed_by = state.claims()
    reclaims, capped = _reclaims(state, reclaimable)
    given_back = Counter(int(fleet.cluster[a.row]) for a in reclaims if reclaimable[a.row])
    memory = tuple(release.memory(state.acquiring_clusters(), given_back))
    short, shortages = shortfalls(state, carry)
    deletes = _deletes(state, claimed_by)
    return Decision(
        actions=[*_acquisitions(state), *_preemptions(state), *reclaims, *deletes],
        shortfalls=short,
        claimed_by=claimed_by,
        placements=placements(state),
        headroom=headroom.rows,
        reclaims_capped=capped,
        ask_about=to_ask_about(state),
        carry=Carry(reservations(state, claimed_by), shortages, memory),
        held=state.allowances.held(),
        at_ceiling=frozenset(filter(state.lacks, state.at_ceiling)),
    )


def placements(state: State) -> Placements:
    """Where all pods are counted."""
    parts = [np.empty((4, 0), np.int64)]
    for book in state.books.values():
        machine, klass, pods = book.entries()
        size = state.classes.original[klass] - state.classes.start[state.classes.need[klass]]
        parts.append(np.stack((book.rows[machine], state.classes.need[klass], size, pods)))
    row, need, size, pods = np.concatenate(parts, axis=1)
    order = np.lexsort((size, need, row))
    rows, needs, sizes = (column[order].astype(np.int32) for column in (row, need, size))
    return Placements(rows, needs, sizes, pods[order])


def _acquisitions(state: State) -> Iterator[Action]:
    for index in sorted(state.acquired):
        rows = np.array(state.acquired[index], np.intp)
        for row, machine in zip(rows.tolist(), state.fleet.state[rows].tolist(), strict=True):
            is_idle = machine == MachineState.IDLE
            yield Action(ActionKind.BOOTSTRAP if is_idle else ActionKind.PROVISION, row, index)


def _preemptions(state: State) -> Iterator[Action]:
    for index in sorted(state.taken):
        taken = state.taken[index]
        rows, grace = taken.rows[~taken.gentle], graces(taken.gap[~taken.gentle])
        for row, seconds in zip(rows.tolist(), grace.tolist(), strict=True):
            yield Action(ActionKind.PREEMPT, row, index, seconds)


def _reclaims(state: State, reclaimable: Flags) -> tuple[list[Action], int]:
    """All reclaims within the cap, and how many are beyond it."""
    wanted = [*_reclaims_for_needs(state), *_reclaims_for_nobody(state, reclaimable)]
    allowed = cap_reclaims(state.fleet, _rows(wanted), state.settings.reclaim_cap_fraction)
    reclaims = [action for action, is_allowed in zip(wanted, allowed, strict=True) if is_allowed]
    return reclaims, len(wanted) - len(reclaims)


def _reclaims_for_needs(state: State) -> Iterator[Action]:
    """Nobody counts these machines, but a pod on one may still be let go in good time."""
    for index in sorted(state.taken):
        taken = state.taken[index]
        excess = taken.gentle & (state.fleet.state[taken.rows] == MachineState.CONFIGURED)
        rows, grace = taken.rows[excess], graces(taken.gap[excess])
        for row, seconds in zip(rows.tolist(), grace.tolist(), strict=True):
            yield Action(ActionKind.RECLAIM, row, index, seconds)


def _reclaims_for_nobody(state: State, reclaimable: Flags) -> Iterator[Action]:
    going = np.flatnonzero(reclaimable & ~state.unavailable)
    for row in release_order(state.fleet, state.columns.price, going).tolist():
        yield Action(ActionKind.RECLAIM, row, NONE, state.settings.voluntary_grace_seconds)


def _deletes(state: State, claimed_by: Ints) -> Iterator[Action]:
    for row in releases(state, claimed_by).tolist():
        yield Action(ActionKind.DELETE, row, NONE)


def _rows(actions: list[Action]) -> Rows:
    return np.array([action.row for action in actions], np.intp)
