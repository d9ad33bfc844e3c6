"""Machine classes: the properties that machines share, without those of a single machine.

A label whose value is the machine's id (such as its hostname) would put every machine into a class
of its own, so only its key is kept. Needs can therefore not select a single host.
"""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.snapshot import Flavour
from bigfleet.model.labels import (
    CAPACITY_TYPE_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    capacity_type_label,
)
from bigfleet.model.machine import CapacityType, Machine
from bigfleet.model.need import Taint

_Amounts = tuple[tuple[str, int], ...]


class MachineClass(NamedTuple):
    """A hashable machine class; `own_labels` are the label keys whose value is the machine's id."""

    labels: tuple[tuple[str, str], ...]
    own_labels: tuple[str, ...]
    capacity_type: CapacityType
    price_per_hour: float
    interruption_probability: float
    allocatable: _Amounts
    resources: _Amounts
    taints: tuple[Taint, ...] = ()
    provider: str = ""

    @property
    def flavour(self) -> Flavour:
        """The part that the engine decides on."""
        return Flavour(
            labels=dict(self.labels),
            capacity_type=self.capacity_type,
            price_per_hour=self.price_per_hour,
            interruption_probability=self.interruption_probability,
            allocatable=dict(self.allocatable),
            taints=self.taints,
            provider=self.provider,
        )

    def labels_of(self, machine_id: str) -> dict[str, str]:
        """All labels of one machine of this class."""
        return {**dict(self.labels), **dict.fromkeys(self.own_labels, machine_id)}


def class_of(machine: Machine, provider: str = "") -> MachineClass:
    """The class of a `provider`'s `machine`; well-known labels that it lacks are added from its
    fields.
    """
    labels = {
        INSTANCE_TYPE_LABEL: machine.instance_type,
        ZONE_LABEL: machine.zone,
        CAPACITY_TYPE_LABEL: capacity_type_label(machine.capacity_type.name),
        **machine.labels,
    }
    own = [k for k, v in labels.items() if v == machine.id]
    for key in (HOSTNAME_LABEL, *own):
        labels.pop(key, None)
    return MachineClass(
        labels=tuple(sorted(labels.items())),
        own_labels=tuple(sorted(own)),
        capacity_type=machine.capacity_type,
        price_per_hour=machine.price_per_hour,
        interruption_probability=machine.interruption_probability,
        allocatable=tuple(sorted(machine.allocatable.items())),
        resources=tuple(sorted(machine.resources.items())),
        taints=machine.taints,
        provider=provider,
    )
