"""One cycle's decision, computed from the whole snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from bigfleet.engine.checks.validation import validate
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Action, ActionType, Decision, Placements
from bigfleet.engine.kernels.placed import arrange, order_by_row
from bigfleet.engine.phases.assign import AssignmentPhase
from bigfleet.engine.phases.carryover import reservations, shortfalls, spread_pods
from bigfleet.engine.phases.headroom import Headroom
from bigfleet.engine.phases.limits import cap_reclaims
from bigfleet.engine.phases.preempt import preempt
from bigfleet.engine.phases.reclaim import ReclaimPhase, machines_to_delete, reclaim_order
from bigfleet.engine.phases.repacking import find_disruption_cost_queries
from bigfleet.engine.phases.victims import grace_periods
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Flags, Fleet, Ints, Rows
from bigfleet.engine.state.claims import claims
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.machine import MachineState

#: Called with the name of each part of a decision when it has ended.
PartEnded = Callable[[str], None]


def _unheard(_part: str) -> None:
    """Nobody measures."""


def decide(
    fleet: Fleet,
    demand: Demand,
    cycle_memory: CycleMemory,
    settings: EngineConfig,
    now_seconds: float,
    part_ended: PartEnded = _unheard,
) -> Decision:
    """Decide what to do so that `fleet` serves `demand`.

    Pure and idempotent: equal arguments give an equal decision, and a fleet that serves its demand
    without surplus gives no actions. `cycle_memory` is the last decision's, or `CycleMemory()`.
    `now_seconds` is on the clock of `fleet.unused_since_seconds`. Raises InvalidInput for an
    inconsistent snapshot. `part_ended` is for whoever measures the parts.
    """
    validate(fleet, demand, now_seconds)
    state = CycleState(fleet, demand, cycle_memory, settings, now_seconds)
    part_ended("prepare")
    assignment = AssignmentPhase(state)
    assignment.run()
    part_ended("assign")
    headroom = Headroom(state, assignment.free_pools)
    headroom.retain()
    part_ended("headroom")
    reclaim = ReclaimPhase(state, assignment)
    reclaimable = reclaim.reclaimable()
    part_ended("reclaim")
    preempt(state, assignment, reclaimable)
    part_ended("preempt")
    headroom.acquire(reclaimable, reclaim.must_go)
    part_ended("headroom")
    claimed_by = claims(state)
    reclaims, capped = _reclaims(state, reclaimable)
    given_back = Counter(int(fleet.cluster[a.row]) for a in reclaims if reclaimable[a.row])
    memory = tuple(reclaim.memory(given_back))
    surplus = reclaim.surplus_beside(_rows(reclaims))
    short, shortfall_ages = shortfalls(state, cycle_memory)
    deletes, preemptions = _deletes(state, claimed_by), [*_preemptions(state)]
    drained = _rows([*preemptions, *reclaims])
    decision = Decision(
        actions=[*_acquisitions(state), *preemptions, *reclaims, *deletes],
        shortfalls=short,
        claimed_by=claimed_by,
        find_placements=placements(state),
        headroom=headroom.rows,
        reclaims_capped=capped,
        disruption_cost_queries=find_disruption_cost_queries(state),
        surplus=surplus,
        growing=reclaim.growing(),
        cycle_memory=CycleMemory(
            reservations(state, claimed_by), shortfall_ages, memory, spread_pods(state, drained)
        ),
        held=state.budgets.held(),
        at_ceiling=frozenset(filter(state.lacks, state.at_ceiling)),
        beyond_skew=frozenset(state.beyond_skew),
    )
    part_ended("conclude")
    return decision


def placements(state: CycleState) -> Callable[[], Placements]:
    """Finds the placements: that takes long, and few look at them."""
    classes, machines, packings = state.classes, len(state.fleet), state.packings

    def find() -> Placements:
        placed = packings.placed(np.ones(len(classes.need), np.bool_))
        # The order of classes within a need is by share, that of its sizes is the demand's.
        size = classes.original[placed.pod_class]
        order = order_by_row(placed.row, size, machines)
        return Placements(*arrange(order, *placed, size, classes.need, classes.start))

    return find


def _acquisitions(state: CycleState) -> Iterator[Action]:
    for index in sorted(state.acquired):
        rows = np.array(state.acquired[index], np.intp)
        for row, machine in zip(rows.tolist(), state.fleet.state[rows].tolist(), strict=True):
            is_idle = machine == MachineState.IDLE
            yield Action(ActionType.BOOTSTRAP if is_idle else ActionType.PROVISION, row, index)


def _preemptions(state: CycleState) -> Iterator[Action]:
    for index in sorted(state.taken):
        taken = state.taken[index]
        rows, grace = (
            taken.rows[~taken.non_disruptive],
            grace_periods(taken.gap[~taken.non_disruptive]),
        )
        for row, seconds in zip(rows.tolist(), grace.tolist(), strict=True):
            yield Action(ActionType.PREEMPT, row, index, seconds)


def _reclaims(state: CycleState, reclaimable: Flags) -> tuple[list[Action], int]:
    """All reclaims within the cap, and how many are beyond it."""
    wanted = [*_reclaims_for_needs(state), *_voluntary_reclaims(state, reclaimable)]
    allowed = cap_reclaims(state.fleet, _rows(wanted), state.settings.reclaim_cap_fraction)
    reclaims = [action for action, is_allowed in zip(wanted, allowed, strict=True) if is_allowed]
    return reclaims, len(wanted) - len(reclaims)


def _reclaims_for_needs(state: CycleState) -> Iterator[Action]:
    """Reclaims of the unclaimed machines that needs preempt."""
    for index in sorted(state.taken):
        taken = state.taken[index]
        # A pod may still run there, so the grace period is that of a preemption.
        surplus = taken.non_disruptive & (state.fleet.state[taken.rows] == MachineState.CONFIGURED)
        rows, grace = taken.rows[surplus], grace_periods(taken.gap[surplus])
        for row, seconds in zip(rows.tolist(), grace.tolist(), strict=True):
            yield Action(ActionType.RECLAIM, row, index, seconds)


def _voluntary_reclaims(state: CycleState, reclaimable: Flags) -> Iterator[Action]:
    going = np.flatnonzero(reclaimable & ~state.unavailable)
    for row in reclaim_order(state.fleet, state.columns.price, going).tolist():
        yield Action(ActionType.RECLAIM, row, NONE, state.settings.voluntary_grace_seconds)


def _deletes(state: CycleState, claimed_by: Ints) -> Iterator[Action]:
    for row in machines_to_delete(state, claimed_by).tolist():
        yield Action(ActionType.DELETE, row, NONE)


def _rows(actions: list[Action]) -> Rows:
    return np.array([action.row for action in actions], np.intp)
