"""What machines share, with everything that is one machine's own taken out.

A label that repeats the machine's id (such as its hostname) would make every machine a kind of its
own. Its key is kept, its value is put back from the id. Needs can therefore not ask for one host.
"""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.snapshot import Flavour
from bigfleet.model.machine import CapacityType, Machine
from bigfleet.model.need import HOSTNAME_LABEL, Taint

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
CAPACITY_TYPE_LABEL = "bigfleet.lucy.sh/capacity-type"

_Amounts = tuple[tuple[str, int], ...]


class MachineClass(NamedTuple):
    """One kind of machine, hashable; `own_labels` are the keys whose value is the machine's id."""

    labels: tuple[tuple[str, str], ...]
    own_labels: tuple[str, ...]
    capacity_type: CapacityType
    price_per_hour: float
    interruption_probability: float
    allocatable: _Amounts
    resources: _Amounts
    taints: tuple[Taint, ...] = ()

    @property
    def flavour(self) -> Flavour:
        """The part that decisions are made from."""
        return Flavour(
            labels=dict(self.labels),
            capacity_type=self.capacity_type,
            price_per_hour=self.price_per_hour,
            interruption_probability=self.interruption_probability,
            allocatable=dict(self.allocatable),
            taints=self.taints,
        )

    def labels_of(self, machine_id: str) -> dict[str, str]:
        """All labels of one machine of this kind."""
        return {**dict(self.labels), **dict.fromkeys(self.own_labels, machine_id)}


def class_of(machine: Machine) -> MachineClass:
    """The kind of `machine`; labels that its fields imply are added where it has none."""
    labels = {
        INSTANCE_TYPE_LABEL: machine.instance_type,
        ZONE_LABEL: machine.zone,
        CAPACITY_TYPE_LABEL: machine.capacity_type.name.lower().replace("_", "-"),
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
    )
