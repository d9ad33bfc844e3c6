"""What every decision must hold, told in sentences.

Only the predicates on one machine are shared with the code that decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from bigfleet.engine.decision import Action, ActionKind, Decision
from bigfleet.engine.holding import machine_units, wanted
from bigfleet.engine.matching import accepts, hard_spread, placement_requirements
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.model.machine import TRANSITIONS, MachineEvent, MachineState
from bigfleet.model.need import Spread

EVENT_OF: Mapping[ActionKind, MachineEvent] = {
    ActionKind.BOOTSTRAP: MachineEvent.CONFIGURE,
    ActionKind.PROVISION: MachineEvent.CREATE,
    ActionKind.PREEMPT: MachineEvent.DRAIN,
    ActionKind.RECLAIM: MachineEvent.DRAIN,
    ActionKind.DELETE: MachineEvent.DELETE,
}
_ORDER = [*EVENT_OF]
_ACQUIRING = (ActionKind.BOOTSTRAP, ActionKind.PROVISION)
_TAKING = (ActionKind.PREEMPT, ActionKind.RECLAIM)
_FREE = (MachineState.IDLE, MachineState.SPECULATIVE, MachineState.DRAINING)


def violations(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """One sentence for each way in which `decision` is wrong for `fleet` and `demand`."""
    yield from _impossible_actions(fleet, demand, decision)
    yield from _disorder(decision)
    yield from _false_claims(fleet, demand, decision)
    shortfalls = {shortfall.need: shortfall.deficit for shortfall in decision.shortfalls}
    if [*shortfalls] != sorted({shortfall.need for shortfall in decision.shortfalls}):
        yield "shortfalls are not one per need in the demand's order"
    for need in range(len(demand.needs)):
        rows = [int(row) for row in np.flatnonzero(decision.claimed_by == need)]
        deficit = shortfalls.get(need, {})
        needed = [row for row in rows if row not in decision.headroom]
        yield from _wrong_total(fleet, demand, decision, need, needed, deficit)
        yield from _scattered(fleet, demand, decision, need, rows)
        yield from _needless_evictions(fleet, demand, decision, need, deficit)


def _impossible_actions(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    for row, times in Counter(action.row for action in decision.actions).items():
        if times > 1:
            yield f"row {row} gets {times} orders in one cycle"
    for action in decision.actions:
        state = MachineState(int(fleet.state[action.row]))
        if (state, EVENT_OF[action.kind]) not in TRANSITIONS:
            yield f"row {action.row} is {state.name}, {action.kind.value} is not possible there"
        yield from _wrong_owner(fleet, demand, decision, action)


def _wrong_owner(fleet: Fleet, demand: Demand, decision: Decision, action: Action) -> Iterator[str]:
    holder, cluster = int(decision.claimed_by[action.row]), int(fleet.cluster[action.row])
    if action.need != holder:
        what = f"gets {action.kind.value} for need {action.need}"
        yield f"row {action.row} {what}, but {holder} counts it"
    if action.need == NONE and action.kind in (*_ACQUIRING, ActionKind.PREEMPT):
        yield f"row {action.row} gets {action.kind.value} for nobody"
    if action.kind in _TAKING:
        if cluster not in demand.reported - demand.unreachable:
            yield f"row {action.row} is taken from a cluster that is not heard"
        if action.need != NONE and cluster == demand.cluster[action.need]:
            yield f"row {action.row} is drained for need {action.need} of its own cluster"


def _disorder(decision: Decision) -> Iterator[str]:
    def place(action: Action) -> tuple[int, bool, int]:
        kind = 0 if action.kind in _ACQUIRING else _ORDER.index(action.kind)
        return kind, action.need == NONE, action.need

    places = [place(action) for action in decision.actions]
    if places != sorted(places):
        yield "actions are not in the order acquisitions, preemptions, reclaims, deletes by need"


def _false_claims(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    ordered = {action.row: action.need for action in decision.actions}
    unordered = 0
    for row in np.flatnonzero(decision.claimed_by != NONE).tolist():
        need = int(decision.claimed_by[row])
        state = MachineState(int(fleet.state[row]))
        if state is MachineState.CONFIGURED and fleet.cluster[row] != demand.cluster[need]:
            unordered += row not in ordered
        elif not _may_count(fleet, demand, row, need, ordered.get(row) == need):
            yield f"need {need} counts row {row}, which is {state.name} and not its supply"
        labels = fleet.flavours[fleet.flavour[row]].labels
        if not accepts(placement_requirements(demand.needs[need].profile), labels):
            yield f"need {need} counts row {row}, which does not meet its requirements"
    if unordered > decision.reclaims_capped:
        yield f"{unordered} machines of other clusters are counted, none of which is drained for it"


def _may_count(fleet: Fleet, demand: Demand, row: int, need: int, ordered: bool) -> bool:
    state = fleet.state[row]
    if state in (MachineState.CONFIGURED, MachineState.CONFIGURING):
        return bool(fleet.cluster[row] == demand.cluster[need])
    if state == MachineState.CREATING:
        return bool(fleet.wanted_by[row] == need)
    if state == MachineState.DRAINING:
        return True
    return ordered and state in (MachineState.IDLE, MachineState.SPECULATIVE)


def _wrong_total(
    fleet: Fleet,
    demand: Demand,
    decision: Decision,
    index: int,
    rows: list[int],
    deficit: Mapping[str, int],
) -> Iterator[str]:
    need = demand.needs[index]
    resources, want = wanted(need)
    held = {row: _units(fleet, demand, index, row) for row in rows}
    for row, units in held.items():
        if not any(units):
            yield f"need {index} counts row {row}, which holds nothing of it"
    total = [sum(units[at] for units in held.values() if units) for at in range(len(resources))]
    spare = [have - int(amount) for have, amount in zip(total, want, strict=True)]
    lacking = {name: -left for name, left in zip(resources, spare, strict=True) if left < 0}
    if lacking != deficit:
        yield f"need {index} lacks {lacking}, its shortfall says {dict(deficit)}"
    if hard_spread(need.profile):
        return  # there a machine may be needed for the balance alone
    late = [held[row] for row in _late(fleet, demand, index, rows) if held[row]]
    for action in decision.actions:
        units = held.get(action.row, [])
        if action.kind in _ACQUIRING:  # it serves until the late ones come
            units = [own + sum(each[at] for each in late) for at, own in enumerate(units)]
        if units and all(own <= left for own, left in zip(units, spare, strict=True)):
            yield f"row {action.row} is ordered for need {index}, which is covered without it"


def _taken(decision: Decision, index: int) -> list[int]:
    return [a.row for a in decision.actions if a.need == index and a.kind in _TAKING]


def _late(fleet: Fleet, demand: Demand, index: int, rows: list[int]) -> list[int]:
    """What the need came to count last of all, and gets only when other pods have left."""

    def is_late(row: int) -> bool:
        if fleet.state[row] == MachineState.DRAINING:
            return bool(fleet.wanted_by[row] != index)
        working = fleet.state[row] == MachineState.CONFIGURED
        return bool(working and fleet.cluster[row] != demand.cluster[index])

    return [row for row in rows if is_late(row)]


def _units(fleet: Fleet, demand: Demand, index: int, row: int) -> list[int]:
    need = demand.needs[index]
    allocatable = fleet.flavours[fleet.flavour[row]].allocatable
    return machine_units(allocatable, need.largest, wanted(need)[0])


def _scattered(
    fleet: Fleet, demand: Demand, decision: Decision, index: int, rows: list[int]
) -> Iterator[str]:
    profile = demand.needs[index].profile
    if profile.same_key is not None:
        domains = _domains(fleet, rows, profile.same_key)
        if len(domains) > 1:
            yield f"need {index} has machines in {len(domains)} domains of {profile.same_key}"
    late = _late(fleet, demand, index, rows)
    acquired = [a.row for a in decision.actions if a.need == index and a.kind in _ACQUIRING]
    for term in hard_spread(profile):
        at_first = [row for row in rows if row not in late]
        taken = _taken(decision, index)
        if _leans(fleet, at_first, acquired, term) or _leans(fleet, rows, taken, term):
            yield f"need {index} is served beyond max_skew of {term.topology_key}"


def _leans(fleet: Fleet, rows: list[int], ordered: list[int], term: Spread) -> bool:
    """Whether what was ordered made a domain too full for the emptiest of all."""
    domains = _domains(fleet, rows, term.topology_key)
    grown = _domains(fleet, ordered, term.topology_key)
    highest = max((domains[name] for name in grown), default=0)
    return highest > min(domains.values(), default=0) + term.max_skew


def _domains(fleet: Fleet, rows: list[int], key: str) -> Counter[str]:
    return Counter(fleet.flavours[fleet.flavour[row]].labels.get(key, "") for row in rows)


def _needless_evictions(
    fleet: Fleet, demand: Demand, decision: Decision, index: int, deficit: Mapping[str, int]
) -> Iterator[str]:
    profile = demand.needs[index].profile
    taken = _taken(decision, index)
    if not taken or hard_spread(profile):
        return
    if profile.same_key is not None and deficit:
        yield f"need {index} takes machines, but its gang is not whole"
    # A machine that nobody counts goes in any case. And what another need was promised, or a later
    # one had until it was its turn to take, came free only after this need's turn.
    evicted = [a.row for a in decision.actions if a.need == index and a.kind is ActionKind.PREEMPT]
    unpromised = (fleet.wanted_by == NONE) | (fleet.wanted_by == index)
    unclaimed = decision.claimed_by == NONE
    unclaimed[[*decision.headroom]] = True  # it is served last of all
    unclaimed &= unpromised & np.isin(fleet.state, [int(s) for s in _FREE])
    for row in np.flatnonzero(unclaimed).tolist():
        if any(_units(fleet, demand, later, row) for later in range(index + 1, len(demand.needs))):
            continue
        for victim in evicted:
            if _replaces(fleet, demand, index, row, victim):
                yield f"need {index} takes row {victim}, though row {row} is free"


def _replaces(fleet: Fleet, demand: Demand, index: int, row: int, victim: int) -> bool:
    """Whether the need could do with `row` in place of `victim`, in the same domain."""
    profile = demand.needs[index].profile
    labels, others = (fleet.flavours[fleet.flavour[at]].labels for at in (row, victim))
    if not accepts(placement_requirements(profile), labels):
        return False
    if profile.same_key is not None and labels[profile.same_key] != others[profile.same_key]:
        return False
    held, lost = (_units(fleet, demand, index, at) for at in (row, victim))
    return bool(held) and all(own >= other for own, other in zip(held, lost, strict=True))
