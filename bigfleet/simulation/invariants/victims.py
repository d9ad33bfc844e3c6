"""Checks over many decisions that no need has more pods preempted than necessary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import NONE
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.decide.compute import CycleResult

_TAKING = (ActionType.PREEMPT, ActionType.RECLAIM)


class Victims:
    """The machines being drained for each need."""

    def __init__(self) -> None:
        self._of: dict[NeedKey, set[str]] = {}
        self._unfolded: frozenset[NeedKey] = frozenset()

    def check(self, result: CycleResult) -> Iterator[str]:
        """Needs that take more machines while no longer counting one that is being drained for
        them, as sentences.

        A need may lose one to a higher priority, or not need it any more, and a gang may gather in
        another domain; pods that spread may for now lack machines in other domains only; a need
        that was absent in between starts over, as do all of a cluster when one of its gangs is no
        longer folded.
        """
        changed = {key.cluster for key in result.inputs.unfolded - self._unfolded}
        self._unfolded = result.inputs.unfolded
        kept = {key: names for key, names in self._of.items() if key.cluster not in changed}
        self._of = {key: kept.get(key, set()) for key in result.keys}
        orders = [a for a in result.decision.actions if a.type in _TAKING and a.need != NONE]
        taking: dict[int, list[int]] = {}
        for action in orders:
            taking.setdefault(action.need, []).append(action.row)
        rows = self._rows(result)
        short = {shortfall.need for shortfall in result.decision.shortfalls}
        for need in range(len(result.keys)):
            is_short, taken = need in short, taking.get(need, ())
            yield from self._drained_in_vain(result, need, rows, taken, is_short=is_short)
        for action in orders:
            self._of[result.keys[action.need]].add(result.machine_id(action.row))

    def _drained_in_vain(
        self,
        result: CycleResult,
        need: int,
        rows: Mapping[str, int],
        taken: Collection[int],
        *,
        is_short: bool,
    ) -> Iterator[str]:
        """The same of one need, which takes the machines in the rows `taken`; `rows` are those of
        the watched machines.
        """
        key = result.keys[need]
        for name in sorted(self._of[key]):
            if _has_left(result, rows.get(name)):
                self._of[key].discard(name)
            elif not _is_kept(result, rows[name], need):
                elsewhere = _lacks_elsewhere(result, rows[name], need, taken)
                if taken and not elsewhere and not _gathers_elsewhere(result, rows[name], need):
                    yield f"{name} is being drained for {key}, which takes more machines"
                if not is_short or (taken and not elsewhere):
                    self._of[key].discard(name)

    def _rows(self, result: CycleResult) -> dict[str, int]:
        watched = set().union(*self._of.values()) if self._of else set()
        if not watched:
            return {}
        names = (raw.decode() for raw in result.inputs.machine_ids)
        return {name: row for row, name in enumerate(names) if name in watched}


def _has_left(result: CycleResult, row: int | None) -> bool:
    """Whether the machine is no longer draining."""
    return row is None or result.fleet.state[row] != MachineState.DRAINING


def _gathers_elsewhere(result: CycleResult, row: int, need: int) -> bool:
    """Whether the need is a gang whose machines are now in another domain."""
    fleet, same_key = result.fleet, result.demand.needs[need].profile.same_key
    if same_key is None:
        return False
    held = np.flatnonzero(result.decision.claimed_by == need)
    homes = {fleet.flavours[fleet.flavour[each]].labels.get(same_key) for each in held.tolist()}
    return fleet.flavours[fleet.flavour[row]].labels.get(same_key) not in homes


def _lacks_elsewhere(result: CycleResult, row: int, need: int, taken: Collection[int]) -> bool:
    """Whether the need spreads and takes machines, each in another domain than the one in `row`."""
    # If a domain loses a machine, the others may have fewer of the pods until it has another one.
    profile = result.demand.needs[need].profile
    spread = (term.topology_key for term in profile.spread if term.hard)
    keys = {*spread, *profile.anti_affinity} - {HOSTNAME_LABEL}
    here, others = _labels(result, row), [_labels(result, each) for each in taken]
    return bool(others) and all(
        any(there.get(key) != here.get(key) for key in keys) for there in others
    )


def _labels(result: CycleResult, row: int) -> Mapping[str, str]:
    labels: Mapping[str, str] = result.fleet.flavours[result.fleet.flavour[row]].labels
    return labels


def _is_kept(result: CycleResult, row: int, need: int) -> bool:
    """Whether the need counts the machine, or one that takes precedence does: one of a higher
    priority or, for a gang, another gang of its priority.
    """
    holder = int(result.decision.claimed_by[row])
    if holder in (NONE, need):
        return holder == need
    own, other = (result.demand.needs[each].profile for each in (need, holder))
    both_gangs = own.same_key is not None and other.same_key is not None
    return other.priority > own.priority or (both_gangs and other.priority == own.priority)
