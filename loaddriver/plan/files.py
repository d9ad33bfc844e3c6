"""Reads and writes plans as JSON lines, each with a type tag."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.plan.records import (
    ChurnEvent,
    CreateEvent,
    DeleteEvent,
    Level,
    LoadEvent,
    Plan,
    PlanHeader,
    ScaleEvent,
    Step,
    Workload,
)

_Line = PlanHeader | Step | Workload | Level | CreateEvent | ScaleEvent | DeleteEvent | ChurnEvent
_decoder = msgspec.json.Decoder(_Line)


def plan_bytes(plan: Plan) -> bytes:
    """Encode a plan; equal plans give equal bytes."""
    return msgspec.json.Encoder().encode_lines(
        [plan.header, *plan.steps, *plan.workloads, *plan.levels, *plan.events]
    )


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan."""
    path.write_bytes(plan_bytes(plan))


def load_plan(path: Path) -> Plan:
    """Read a plan. Raises ProfileError with the file and the first invalid line."""
    lines: list[_Line] = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            lines.append(_decoder.decode(text))
        except msgspec.DecodeError as error:
            raise ProfileError([f"{path} line {number}: not a plan line: {error}"]) from error
    return _assembled(lines, path)


def _assembled(lines: Iterable[_Line], path: Path) -> Plan:
    headers: list[PlanHeader] = []
    steps: list[Step] = []
    workloads: list[Workload] = []
    levels: list[Level] = []
    events: list[LoadEvent] = []
    for line in lines:
        match line:
            case PlanHeader():
                headers.append(line)
            case Step():
                steps.append(line)
            case Workload():
                workloads.append(line)
            case Level():
                levels.append(line)
            case _:
                events.append(line)
    if len(headers) != 1:
        raise ProfileError([f"{path}: expected one header line, found {len(headers)}"])
    return Plan(headers[0], tuple(steps), tuple(workloads), tuple(levels), tuple(events))
