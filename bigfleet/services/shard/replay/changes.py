"""Changes to a checkpoint: what if prices, zones or machines were others? Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Fleet
from bigfleet.model.errors import InvalidInput
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.records.wants import Wants


@dataclass(frozen=True)
class Changes:
    """`prices` are factors by instance type; `more_machines` numbers of machines that could be
    bought in addition, by instance type; machines in the zones `without_zones` are gone.
    """

    prices: Mapping[str, float] = field(default_factory=dict)
    without_zones: frozenset[str] = frozenset()
    more_machines: Mapping[str, int] = field(default_factory=dict)


def changed(inputs: CycleInputs, changes: Changes) -> CycleInputs:
    """The inputs with these changes: prices first, then machines added, then zones removed.

    InvalidInput for an instance type or zone that no machine has.
    """
    for instance_type, factor in changes.prices.items():
        inputs = _priced(inputs, instance_type, factor)
    for instance_type, machines in changes.more_machines.items():
        inputs = _extended(inputs, instance_type, machines)
    for zone in sorted(changes.without_zones):
        inputs = _without(inputs, _having(inputs.fleet, ZONE_LABEL, zone, "--without-zone"))
    return inputs


def _priced(inputs: CycleInputs, instance_type: str, factor: float) -> CycleInputs:
    _having(inputs.fleet, INSTANCE_TYPE_LABEL, instance_type, "--price")
    flavours = [
        replace(each, price_per_hour=each.price_per_hour * factor)
        if each.labels.get(INSTANCE_TYPE_LABEL) == instance_type
        else each
        for each in inputs.fleet.flavours
    ]
    return replace(inputs, fleet=replace(inputs.fleet, flavours=flavours))


def _extended(inputs: CycleInputs, instance_type: str, machines: int) -> CycleInputs:
    """With SPECULATIVE machines like those of this type that are elastic, evenly by flavour."""
    fleet = inputs.fleet
    of_type = _having(fleet, INSTANCE_TYPE_LABEL, instance_type, "--more-machines")
    known = np.unique(fleet.flavour[of_type])
    elastic = [n for n in known.tolist() if fleet.flavours[n].capacity_type.elastic]
    models = np.resize(np.array(elastic or known.tolist(), np.int32), machines)
    names = [f"added-{len(fleet) + number}".encode() for number in range(machines)]
    first = int(fleet.tie_break.max(initial=-1)) + 1
    added = {
        "flavour": models,
        "state": np.full(machines, MachineState.SPECULATIVE, np.uint8),
        "tie_break": np.arange(first, first + machines),
    }
    columns: dict[str, Any] = {
        name: np.concatenate([column, _of_new(name, column, machines, added)])
        for name, column in fleet.columns().items()
    }
    unwanted = np.full(machines, NONE, inputs.wants.numbers.dtype)
    return replace(
        inputs,
        fleet=replace(fleet, **columns),
        machine_ids=[*inputs.machine_ids, *names],
        wants=Wants(np.concatenate([inputs.wants.numbers, unwanted]), inputs.wants.keys),
    )


# Values of machines that were never ordered, where they are not 0.
_UNUSED: Mapping[str, float] = {
    "cluster": NONE,
    "destination": NONE,
    "last_claimed_by": NONE,
    "backed_off_for": NONE,
    "backed_off_for_too": NONE,
    "unused_since_seconds": np.nan,
    "disruption_cost": np.nan,
}


def _of_new(
    name: str, column: np.ndarray[Any, Any], machines: int, added: Mapping[str, Any]
) -> np.ndarray[Any, Any]:
    values = added[name] if name in added else np.full(machines, _UNUSED.get(name, 0))
    return np.asarray(values).astype(column.dtype)


def _without(inputs: CycleInputs, gone: Flags) -> CycleInputs:
    kept: Flags = ~gone
    return replace(
        inputs,
        fleet=inputs.fleet.of_rows(kept),
        machine_ids=list(compress(inputs.machine_ids, kept.tolist())),
        wants=Wants(inputs.wants.numbers[kept], inputs.wants.keys),
    )


def _having(fleet: Fleet, label: str, value: str, option: str) -> Flags:
    """Which machines have this label; InvalidInput if none does."""
    flavours = [flavour.labels.get(label, "") for flavour in fleet.flavours]
    rows = np.array([each == value for each in flavours], np.bool_)[fleet.flavour]
    if not rows.any():
        known = ", ".join(sorted({flavours[number] for number in np.unique(fleet.flavour)}))
        raise InvalidInput(option, value, f"is no value of {label} of a machine: {known}")
    return rows
