"""Invariants of every decision.

Only the predicates on a single machine are shared with the code that decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.checks.need_invariants import capacity, violations_of_need
from bigfleet.engine.decision import EVENT_OF, Action, ActionType, Decision
from bigfleet.engine.fit.matching import accepts_machine
from bigfleet.engine.snapshot import ACQUIRABLE, NONE, Demand, Fleet
from bigfleet.model.machine import TRANSITIONS, MachineState
from bigfleet.model.need import Size, sizes_of

_ORDER = [*EVENT_OF]
_ACQUIRING = (ActionType.BOOTSTRAP, ActionType.PROVISION)
_WITH_NODE = (MachineState.CONFIGURING, MachineState.CONFIGURED)
_DRAINING = (ActionType.PREEMPT, ActionType.RECLAIM)


def violations(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """One message for each invariant that `decision` breaks."""
    yield from _impossible_actions(fleet, demand, decision)
    yield from _wrong_order(decision)
    yield from _false_supply(fleet, demand, decision)
    yield from _mismatched(fleet, demand, decision)
    yield from _overfull(fleet, demand, decision)
    yield from _wrong_totals(demand, decision)
    yield from _unused_orders(decision)
    yield from _unconfirmed_reclaims(fleet, decision)
    for need in range(len(demand.needs)):
        yield from violations_of_need(fleet, demand, decision, need)


def _impossible_actions(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    for row, times in Counter(action.row for action in decision.actions).items():
        if times > 1:
            yield f"row {row} has {times} actions"
    for action in decision.actions:
        state = MachineState(int(fleet.state[action.row]))
        if (state, EVENT_OF[action.type]) not in TRANSITIONS:
            yield f"row {action.row} is {state.name}, {action.type.value} is not allowed"
        yield from _wrong_owner(fleet, demand, decision, action)


def _wrong_owner(fleet: Fleet, demand: Demand, decision: Decision, action: Action) -> Iterator[str]:
    holder, cluster = int(decision.claimed_by[action.row]), int(fleet.cluster[action.row])
    if action.need != holder:
        what = f"{action.type.value} of row {action.row} is for need {action.need}"
        yield f"{what}, but need {holder} claims it"
    if action.need == NONE and action.type in (*_ACQUIRING, ActionType.PREEMPT):
        yield f"{action.type.value} of row {action.row} has no requester"
    if action.type in _DRAINING:
        if cluster not in demand.reachable:
            yield f"row {action.row} is taken from an unreachable cluster"
        if action.need != NONE and cluster == demand.cluster[action.need]:
            yield f"row {action.row} is drained for need {action.need} of its own cluster"


def _wrong_order(decision: Decision) -> Iterator[str]:
    def place(action: Action) -> tuple[int, bool, int]:
        phase = 0 if action.type in _ACQUIRING else _ORDER.index(action.type)
        return phase, action.need == NONE, action.need

    places = [place(action) for action in decision.actions]
    if places != sorted(places):
        yield "actions are not in the order acquisitions, preemptions, reclaims, deletes by need"


def _false_supply(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """Pods are placed only on machines that are supply for their cluster."""
    ordered = {action.row: action.need for action in decision.actions}
    unordered: set[int] = set()
    configured = int(MachineState.CONFIGURED)
    # Single values of lists are read faster than those of numpy's arrays.
    states, clusters, served = _lists(fleet.state, fleet.cluster, demand.cluster)
    for row, need in _pairs(decision):
        cluster, orderer = served[need], ordered.get(row, NONE)
        if states[row] != configured:
            if not _is_supply(fleet, demand, row, cluster, orderer, decision):
                what = f"row {row}, which is {MachineState(states[row]).name}"
                yield f"need {need} uses {what} and not its supply"
        elif clusters[row] != cluster and orderer == NONE:
            unordered.add(row)
        elif clusters[row] != cluster and served[orderer] != cluster:
            yield f"need {need} uses row {row}, which another cluster takes"
    # The cap may make a machine of another cluster wait for its reclaim.
    if len(unordered) > decision.reclaims_capped:
        yield f"{len(unordered)} machines of other clusters are used, but not drained"


def _mismatched(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """Machines meet the per-machine conditions of the pods that are placed on them."""

    @cache
    def accepted(need: int, flavour: int) -> bool:
        return accepts_machine(demand.needs[need].profile, fleet.flavours[flavour])

    (flavours,) = _lists(fleet.flavour)
    for row, need in _pairs(decision):
        if not accepted(need, flavours[row]):
            yield f"need {need} uses row {row}, which does not match its profile"


def _lists(*columns: NDArray[Any]) -> list[list[int]]:
    return [column.tolist() for column in columns]


def _pairs(decision: Decision) -> list[tuple[int, int]]:
    pods = decision.placements
    claims = np.flatnonzero(decision.claimed_by != NONE)
    return sorted(
        {
            *zip(pods.row.tolist(), pods.need.tolist(), strict=True),
            *zip(claims.tolist(), decision.claimed_by[claims].tolist(), strict=True),
        }
    )


def _is_supply(
    fleet: Fleet, demand: Demand, row: int, cluster: int, orderer: int, decision: Decision
) -> bool:
    state = int(fleet.state[row])  # comparing numpy's scalars with an enum is slow
    if state == MachineState.DRAINING:
        holder = int(decision.claimed_by[row])
        return _home(fleet, demand, row) == cluster or bool(demand.cluster[holder] == cluster)
    if state not in ACQUIRABLE:
        return _home(fleet, demand, row) == cluster
    return orderer != NONE and bool(demand.cluster[orderer] == cluster)


def _home(fleet: Fleet, demand: Demand, row: int) -> int:
    """The cluster that a machine is supply for before the decision, or NONE."""
    state, last_claimed_by = int(fleet.state[row]), int(fleet.last_claimed_by[row])
    if state in _WITH_NODE:
        return int(fleet.cluster[row])
    if state not in (MachineState.CREATING, MachineState.DRAINING):
        return NONE
    return (
        int(demand.cluster[last_claimed_by])
        if last_claimed_by != NONE
        else int(fleet.destination[row])
    )


def _overfull(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """The pods on a machine fit, and are of one cluster."""

    @cache
    def room_of(flavour: int, cluster: int) -> dict[str, int]:
        return capacity(demand, fleet.flavours[flavour], cluster)

    used: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    cluster: dict[int, int] = {}
    flavours, served = _lists(fleet.flavour, demand.cluster)
    for row, need, size, number in zip(*_lists(*decision.placements), strict=True):
        if cluster.setdefault(row, served[need]) != served[need]:
            yield f"row {row} has pods of two clusters"
        amounts = used[row]
        for name, amount in demand.needs[need].sizes[size].amounts:
            amounts[name] += amount * number
    for row, amounts in used.items():
        room = room_of(flavours[row], cluster[row])
        over = {name: n for name, n in amounts.items() if n > room.get(name, 0)}
        if over:
            yield f"row {row} is overcommitted: {over}"


def _wrong_totals(demand: Demand, decision: Decision) -> Iterator[str]:
    """Every pod is either placed or reported as short."""
    placed = placed_sizes(demand, decision)
    if [s.need for s in decision.shortfalls] != sorted({s.need for s in decision.shortfalls}):
        yield "shortfalls are not one per need in the demand's order"
    for shortfall in decision.shortfalls:
        placed.setdefault(shortfall.need, []).extend((*shortfall.sizes, *shortfall.impossible))
    for index, need in enumerate(demand.needs):
        together = sizes_of((dict(s.amounts), s.pods) for s in placed.get(index, ()))
        if together != sizes_of((dict(s.amounts), s.pods) for s in need.sizes):
            yield f"need {index} requests {need.sizes}, of which {together} are accounted for"


def placed_sizes(demand: Demand, decision: Decision) -> dict[int, list[Size]]:
    """By need, how many pods of each size are placed."""
    placed: dict[int, list[Size]] = {}
    for _, need, size, number in zip(*_lists(*decision.placements), strict=True):
        placed.setdefault(need, []).append(Size(demand.needs[need].sizes[size].amounts, number))
    return placed


def _unused_orders(decision: Decision) -> Iterator[str]:
    """Every machine that is acquired or preempted gets a pod, or is headroom."""
    used = {*decision.placements.row.tolist(), *decision.headroom}
    for action in decision.actions:
        if action.type in (*_ACQUIRING, ActionType.PREEMPT) and action.row not in used:
            yield f"{action.type.value} of row {action.row} for need {action.need} places no pod"


def _unconfirmed_reclaims(fleet: Fleet, decision: Decision) -> Iterator[str]:
    """A reclaim without a requester has a known disruption cost, or the machine served a gang that
    is complete elsewhere.
    """
    counted = {*decision.placements.row.tolist()}
    for action in decision.actions:
        if action.type is ActionType.RECLAIM and action.need == NONE:
            known = bool(np.isfinite(fleet.disruption_cost[action.row]))
            if not known and fleet.last_claimed_by[action.row] == NONE:
                yield f"row {action.row} is reclaimed, but its disruption cost is unknown"
            if action.row in counted:
                yield f"row {action.row} is reclaimed with pods placed on it"
