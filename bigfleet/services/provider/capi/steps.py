"""What to do next about a machine, from its record and its Machine. Pure.

The Machine is observed, never remembered: a provider that was restarted in the middle of an
operation, or twice, decides the same from the same objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from bigfleet.model.machine import MachineEvent, MachineState
from bigfleet.services.provider import lifecycle
from bigfleet.services.provider.capi.catalog import Offering
from bigfleet.services.provider.capi.objects import MachineView
from bigfleet.services.provider.lifecycle import Record

_S = MachineState


class Act(Enum):
    """What is done in the management cluster."""

    #: nothing, until something changes or time has passed
    WAIT = auto()
    #: infrastructure and Machine are created
    CREATE = auto()
    #: Machine, infrastructure and bootstrap data are deleted; once they are gone, `end` is saved
    REMOVE = auto()
    #: `end` is saved
    SAVE = auto()


@dataclass(frozen=True)
class Step:
    """An act, with the record and the event that end the operation."""

    act: Act
    end: Record | None = None
    event: MachineEvent | None = None
    #: when to look again if nothing changes, in Unix time; None: not at all
    until: float | None = None


@dataclass(frozen=True)
class Limits:
    """`repair`: until a failed fixed machine is idle again. `trouble` is what went wrong last."""

    offering: Offering
    repair_seconds: float
    trouble: str = ""


def next_step(record: Record, view: MachineView | None, now: float, limits: Limits) -> Step:
    """The next step for the record, `view` being its Machine, or None if there is none."""
    match record.machine.state:
        case _S.CREATING:
            return _finish(record)  # there is nothing to buy before the cluster is known
        case _S.CONFIGURING:
            return _configuring(record, view, now, limits)
        case _S.CONFIGURED:
            lost = _lost(record, view)
            return _fail(record, lost, now) if lost else Step(Act.WAIT)
        case _S.DRAINING | _S.DELETING:
            return _leaving(record, view, now, limits)
        case _S.FAILED:
            return _failed(record, view, now, limits)
        case _:
            return Step(Act.WAIT)


def _configuring(record: Record, view: MachineView | None, now: float, limits: Limits) -> Step:
    deadline = record.due_unix_seconds + limits.offering.boot_timeout_seconds
    lost = _lost(record, view) if view is not None else ""
    if view is not None and view.ready and not lost:
        return _finish(record)  # also if it joined while no provider looked
    if now >= deadline:
        seconds = limits.offering.boot_timeout_seconds
        return _fail(record, f"not Ready within {seconds:g} s: {_seen(view, limits)}", now)
    if view is None:
        return Step(Act.CREATE, until=deadline)
    return _fail(record, lost, now) if lost else Step(Act.WAIT, until=deadline)


def _leaving(record: Record, view: MachineView | None, now: float, limits: Limits) -> Step:
    deadline = record.grace_ends_unix_seconds + limits.offering.removal_timeout_seconds
    if now >= deadline and (view is not None or limits.trouble):
        seconds = limits.offering.removal_timeout_seconds
        return _fail(record, f"not deleted within {seconds:g} s: {_seen(view, limits)}", now)
    if view is not None and view.leaving:
        return Step(Act.WAIT, until=deadline)
    end = lifecycle.finish(record)
    return Step(Act.REMOVE, end, lifecycle.SUCCESS[record.machine.state], deadline)


def _failed(record: Record, view: MachineView | None, now: float, limits: Limits) -> Step:
    """A failed machine serves nobody, so its Machine goes, whoever pays for it."""
    if view is not None:
        return Step(Act.WAIT if view.leaving else Act.REMOVE)
    if record.machine.capacity_type.elastic:
        return Step(Act.WAIT)  # until it is ordered to be deleted
    repaired = record.due_unix_seconds + limits.repair_seconds
    if now < repaired:
        return Step(Act.WAIT, until=repaired)
    return Step(Act.REMOVE, lifecycle.recover(record), MachineEvent.RECOVER)


def _lost(record: Record, view: MachineView | None) -> str:
    """Why the machine does not serve its cluster and will not; "" if it does or may."""
    if view is None:
        return "somebody else has deleted its Machine"
    if view.operation_id != record.operation_id:
        return f"another Machine has its name: {view.story}"
    if view.leaving:
        return f"somebody else is deleting its Machine: {view.story}"
    return view.failure


def _seen(view: MachineView | None, limits: Limits) -> str:
    parts: Iterator[str] = (each for each in (view.story if view else "", limits.trouble) if each)
    return "; ".join(parts) or "it has no Machine"


def _finish(record: Record) -> Step:
    return Step(Act.SAVE, lifecycle.finish(record), lifecycle.SUCCESS[record.machine.state])


def _fail(record: Record, why: str, now: float) -> Step:
    return Step(Act.SAVE, failed(record, why, now), MachineEvent.FAIL)


def failed(record: Record, why: str, now: float) -> Record:
    """The record once the operation under way has failed at the time `now`."""
    return replace(lifecycle.fail(record, why), due_unix_seconds=now)
