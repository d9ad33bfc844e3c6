"""State handed to the next decision: shortfall ages and reservations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory, Reservation, ShortfallAge, SpreadPods
from bigfleet.engine.decision import Shortfall
from bigfleet.engine.snapshot import NONE, Ints, Rows, flags_of, in_states
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.engine.state.last_decision import count_accepted
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Size


def shortfalls(
    state: CycleState, cycle_memory: CycleMemory
) -> tuple[Sequence[Shortfall], tuple[ShortfallAge, ...]]:
    """All shortfalls in the demand's order, and their ages for the next decision."""
    before = {aged.need: aged for aged in cycle_memory.shortfall_ages}
    found: list[Shortfall] = []
    shortfall_ages: list[ShortfallAge] = []
    missing = np.where(state.classes.impossible, state.classes.count, state.left)
    for index in np.unique(state.classes.need[missing > 0]).tolist():
        key = state.key(index)
        last = before.get(key, ShortfallAge(key, 0, state.now_seconds))
        aged = ShortfallAge(key, last.cycles + 1, last.since_seconds)
        shortfall_ages.append(aged)
        sizes, impossible = _sizes(state, index)
        found.append(Shortfall(index, sizes, impossible, aged.cycles, aged.since_seconds))
    return found, tuple(shortfall_ages)


def _sizes(state: CycleState, index: int) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The need's unplaced pods by size: possible and impossible ones."""
    classes, need = state.classes, state.demand.needs[index]
    its = classes.of(index)
    short: list[Size] = []
    impossible: list[Size] = []
    for pod_class in range(its.start, its.stop):
        size = need.sizes[int(classes.original[pod_class]) - its.start]
        if classes.impossible[pod_class]:
            impossible.append(size)
        elif state.left[pod_class]:
            short.append(Size(size.amounts, int(state.left[pod_class])))
    return tuple(sorted(short)), tuple(sorted(impossible))


def reservations(state: CycleState, claimed_by: Ints) -> tuple[Reservation, ...]:
    """The needs for which machines are reserved: a gang that fits in its domain, until all its
    machines are in service; another need, until no machine drains for it.
    """
    kept = []
    for index in _waiting(state, claimed_by):
        domain = ""
        if state.flavour_fit(index).profile.same_key is not None:
            if state.lacks(index):
                continue
            domain = state.gang_domains[index]
        before = state.reserved.get(index)
        continues = before is not None and before.domain == domain
        since = before.since_seconds if before and continues else state.now_seconds
        kept.append(Reservation(state.key(index), domain, since))
    return tuple(kept)


def spread_pods(state: CycleState, drained: Rows) -> tuple[SpreadPods, ...]:
    """How many pods of each need with hard topology spread run on machines that stay in service,
    by the count; the rows `drained` do not.
    """
    spread = [index for index in state.constrained if state.flavour_fit(index).terms]
    if not spread:
        return ()
    fleet, needs = state.fleet, len(state.demand.needs)
    its = flags_of(spread, needs)[state.classes.need]
    row, pod_class, pods = state.packings.placed(its)
    need = state.classes.need[pod_class].astype(np.int64)
    stays = (fleet.state[row] == MachineState.CONFIGURED) & ~np.isin(row, drained)
    stays &= fleet.cluster[row] == state.demand.cluster[need]
    total = np.bincount(need, pods, needs).astype(np.int64)
    # A need may have pods of several sizes on one machine.
    together, place = np.unique(need[stays] * len(fleet) + row[stays], return_inverse=True)
    on_each = np.bincount(place, pods[stays], len(together)).astype(np.int64)
    here, most = np.zeros(needs, np.int64), np.zeros(needs, np.int64)
    np.add.at(here, together // len(fleet), on_each)
    np.maximum.at(most, together // len(fleet), on_each)
    spread, found = [index for index in spread if here[index]], []
    accepted = count_accepted(fleet, state.demand, state.classes, spread, drained).tolist()
    for index, machines in zip(spread, accepted, strict=True):
        # Those counted on machines that have not joined yet run where they ran.
        known = max(int(here[index]), min(state.running.get(index, 0), int(total[index])))
        found.append(SpreadPods(state.key(index), known, int(most[index]), machines))
    return tuple(found)


def _waiting(state: CycleState, claimed_by: Ints) -> list[int]:
    """The needs that claim a machine which does not serve them yet, in order."""
    fleet = state.fleet
    rows = np.flatnonzero(claimed_by != NONE)
    holder = claimed_by[rows]
    in_service = (fleet.state[rows] == MachineState.CONFIGURED) & (
        fleet.cluster[rows] == state.demand.cluster[holder]
    )
    drained = in_states(fleet.state[rows], (MachineState.DRAINING, MachineState.CONFIGURED))
    drained |= state.initially_reserved_for[rows] == holder
    waits = ~in_service & (drained | state.needs.gang[holder])
    return [int(index) for index in np.unique(holder[waits])]
