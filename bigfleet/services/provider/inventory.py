"""The inventory file: a provider's initial machines, one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bigfleet.model import resources
from bigfleet.model.errors import UNDECODABLE, InvalidInput
from bigfleet.model.labels import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    RACK_LABEL,
    ZONE_LABEL,
    capacity_type_label,
)
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint

_WORD = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_Label = Annotated[str, Meta(pattern=f"^{_WORD}$")]
_LabelOrNone = Annotated[str, Meta(pattern=f"^({_WORD})?$")]
_TaintKey = Annotated[str, Meta(pattern=r"^([a-z0-9.-]{1,253}/)?" + _WORD + "$")]
# Machine ids become Node names.
_Id = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,34}[a-z0-9])?$")]
_SHOWN_CHARACTERS = 80


class _Taint(msgspec.Struct, forbid_unknown_fields=True):
    key: _TaintKey
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: _LabelOrNone = ""


class MachineSpec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What machines of one kind have in common."""

    instance_type: _Label
    zone: _Label
    capacity_type: Literal["BARE_METAL", "RESERVED", "ON_DEMAND", "SPOT"]
    price_per_hour: Annotated[float, Meta(ge=0)]
    interruption_probability: Annotated[float, Meta(ge=0, le=1)]
    resources: dict[str, str]
    rack: _LabelOrNone = ""
    labels: dict[str, _LabelOrNone] = {}
    taints: list[_Taint] = []


class _Line(MachineSpec):
    id: _Id
    state: Literal["IDLE", "SPECULATIVE"]


def read(path: Path) -> Iterator[Machine]:
    """The machines in the file, in its order; empty lines are skipped.

    InvalidInput names file, line and field: malformed or unknown fields, repeated ids, no machines.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput("inventory", str(path), f"cannot be read: {error.strerror}") from None
    decoder = msgspec.json.Decoder(_Line)
    seen: dict[str, int] = {}
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if raw.strip():
            where = f"{path} line {number}"
            line = _decoded(decoder, raw, where)
            if seen.setdefault(line.id, number) != number:
                raise InvalidInput(f"{where}: id", line.id, f"repeats line {seen[line.id]}")
            yield machine_of(line, line.id, MachineState[line.state], where)
    if not seen:
        raise InvalidInput(
            "inventory", str(path), "has no machines; write one JSON object per line"
        )


def _decoded(decoder: msgspec.json.Decoder[_Line], raw: bytes, where: str) -> _Line:
    try:
        return decoder.decode(raw)
    except UNDECODABLE as error:
        shown = raw[:_SHOWN_CHARACTERS].decode(errors="replace")
        raise InvalidInput(where, shown, f"is not a machine: {error}") from None


def machine_of(line: MachineSpec, machine_id: str, state: MachineState, where: str) -> Machine:
    """A machine of that spec, SPECULATIVE or IDLE; InvalidInput names `where` and the field."""
    amounts = _amounts(line, where)
    return Machine(
        id=machine_id,
        state=state,
        instance_type=line.instance_type,
        zone=line.zone,
        capacity_type=CapacityType[line.capacity_type],
        price_per_hour=line.price_per_hour,
        interruption_probability=line.interruption_probability,
        resources=amounts,
        allocatable=amounts,
        labels=_labels(line, where),
        taints=_taints(line, where),
        host=machine_id if state is MachineState.IDLE else "",
    )


def _amounts(line: MachineSpec, where: str) -> Mapping[str, int]:
    try:
        amounts = resources.parse_capacity(line.resources)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: resources: {error.what}", error.value, error.hint) from None
    for needed in (resources.CPU, resources.MEMORY, resources.PODS):
        if amounts.get(needed, 0) == 0:
            shown = line.resources.get(needed, "nothing")
            raise InvalidInput(f"{where}: resources: {needed}", shown, "is too little for any pod")
    return amounts


def _taints(line: MachineSpec, where: str) -> tuple[Taint, ...]:
    taints = sorted(Taint(t.key, t.value, t.effect) for t in line.taints)
    if len({(taint.key, taint.effect) for taint in taints}) < len(taints):
        shown = ", ".join(map(str, taints))
        raise InvalidInput(f"{where}: taints", shown, "repeat a key and effect")
    return tuple(taints)


def _labels(line: MachineSpec, where: str) -> Mapping[str, str]:
    labels = {
        INSTANCE_TYPE_LABEL: line.instance_type,
        ZONE_LABEL: line.zone,
        CAPACITY_TYPE_LABEL: capacity_type_label(line.capacity_type),
    }
    if line.rack:
        labels[RACK_LABEL] = line.rack
    for key, value in line.labels.items():
        if labels.get(key, value) != value:
            what = f"{where}: labels: {key}"
            raise InvalidInput(what, value, f"contradicts {labels[key]!r} in the same line")
    return labels | line.labels
