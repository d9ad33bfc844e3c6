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

EVENT_OF: Mapping[ActionKind, MachineEvent] = {
    ActionKind.BOOTSTRAP: MachineEvent.CONFIGURE,
    ActionKind.PROVISION: MachineEvent.CREATE,
    ActionKind.RECLAIM: MachineEvent.DRAIN,
    ActionKind.DELETE: MachineEvent.DELETE,
}
_ORDER = [*EVENT_OF]
_ACQUIRING = (ActionKind.BOOTSTRAP, ActionKind.PROVISION)


def violations(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """One sentence for each way in which `decision` is wrong for `fleet` and `demand`."""
    yield from _impossible_actions(fleet, demand, decision)
    yield from _disorder(decision)
    yield from _false_claims(fleet, demand, decision)
    shortfalls = {shortfall.need: shortfall.deficit for shortfall in decision.shortfalls}
    if len(shortfalls) != len(decision.shortfalls):
        yield "a need has two shortfalls"
    for need in range(len(demand.needs)):
        rows = [int(row) for row in np.flatnonzero(decision.claimed_by == need)]
        yield from _wrong_total(fleet, demand, decision, need, rows, shortfalls.get(need, {}))
        yield from _scattered(fleet, demand, decision, need, rows)


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
    holder = int(decision.claimed_by[action.row])
    if action.kind in _ACQUIRING:
        if action.need == NONE or action.need != holder:
            yield f"row {action.row} is acquired for need {action.need}, but {holder} counts it"
        return
    if holder != NONE or action.need != NONE:
        yield f"row {action.row} gets {action.kind.value} though need {holder} counts it"
    reported = int(fleet.cluster[action.row]) in demand.reported
    if action.kind is ActionKind.RECLAIM and not reported:
        yield f"row {action.row} is reclaimed from a cluster that has not reported"


def _disorder(decision: Decision) -> Iterator[str]:
    def place(action: Action) -> tuple[int, int]:
        if action.kind in _ACQUIRING:
            return 0, action.need
        return _ORDER.index(action.kind), 0

    places = [place(action) for action in decision.actions]
    if places != sorted(places):
        yield "actions are not in the order acquisitions by need, reclaims, deletes"


def _false_claims(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    acquired = {action.row for action in decision.actions if action.kind in _ACQUIRING}
    for row in np.flatnonzero(decision.claimed_by != NONE).tolist():
        need = int(decision.claimed_by[row])
        state = MachineState(int(fleet.state[row]))
        if not _may_count(fleet, demand, row, need, row in acquired):
            yield f"need {need} counts row {row}, which is {state.name} and not its supply"
        labels = fleet.flavours[fleet.flavour[row]].labels
        if not accepts(placement_requirements(demand.needs[need].profile), labels):
            yield f"need {need} counts row {row}, which does not meet its requirements"


def _may_count(fleet: Fleet, demand: Demand, row: int, need: int, acquired: bool) -> bool:
    state = fleet.state[row]
    if state in (MachineState.CONFIGURED, MachineState.CONFIGURING):
        return bool(fleet.cluster[row] == demand.cluster[need])
    if state == MachineState.CREATING:
        return bool(fleet.wanted_by[row] == need)
    return acquired and state in (MachineState.IDLE, MachineState.SPECULATIVE)


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
    for action in decision.actions:
        units = held.get(action.row, [])
        if units and all(own <= left for own, left in zip(units, spare, strict=True)):
            yield f"row {action.row} is acquired for need {index}, which is covered without it"


def _units(fleet: Fleet, demand: Demand, index: int, row: int) -> list[int]:
    need = demand.needs[index]
    allocatable = fleet.flavours[fleet.flavour[row]].allocatable
    return machine_units(allocatable, need.min_unit, wanted(need)[0])


def _scattered(
    fleet: Fleet, demand: Demand, decision: Decision, index: int, rows: list[int]
) -> Iterator[str]:
    profile = demand.needs[index].profile
    if profile.same_key is not None:
        domains = _domains(fleet, rows, profile.same_key)
        if len(domains) > 1:
            yield f"need {index} has machines in {len(domains)} domains of {profile.same_key}"
    acquired = [a.row for a in decision.actions if a.need == index]
    for term in hard_spread(profile):
        domains = _domains(fleet, rows, term.topology_key)
        grown = _domains(fleet, acquired, term.topology_key)
        highest = max((domains[name] for name in grown), default=0)
        if highest > min(domains.values(), default=0) + term.max_skew:
            yield f"need {index} is acquired for beyond max_skew of {term.topology_key}"


def _domains(fleet: Fleet, rows: list[int], key: str) -> Counter[str]:
    return Counter(fleet.flavours[fleet.flavour[row]].labels.get(key, "") for row in rows)
