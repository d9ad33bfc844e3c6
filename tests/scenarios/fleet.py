"""The instance types that a cluster's machines can be of: an ordinary catalog, and plenty of each.

Whole vCPUs and GiB are what pods get, so that anybody can work out in the head what fits. `m-8` has
8 vCPU; `c`, `m` and `r` have 2, 4 and 8 GiB for each. Prices are in proportion, as in clouds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loaddriver.sizing.inventory import InventoryMachine, InventoryTaint

ZONES = ("zone-a", "zone-b", "zone-c")
RACKS = {zone: (f"{zone}-1", f"{zone}-2") for zone in ZONES}
POD_SLOTS = 110
SCRATCH_SPACE = "100Gi"

_FAMILIES = {"c": 2, "m": 4, "r": 8}
_SIZES = (2, 4, 8, 16, 32, 48, 64, 96)
_DOLLARS_PER_VCPU, _DOLLARS_PER_GIB, _DOLLARS_PER_GPU = 0.034, 0.0035, 1.0
_GPU = "nvidia.com/gpu"

Capacity = Literal["on-demand", "reserved"]


@dataclass(frozen=True)
class InstanceType:
    """Machines that are alike, `in_rack` of them in each rack. Reserved ones are paid for already.

    `labels` and `taints` are on every Node of the type.
    """

    name: str
    vcpus: int
    gibibytes: int
    in_rack: int
    gpus: int = 0
    capacity: Capacity = "on-demand"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[InventoryTaint, ...] = ()

    @property
    def dollars_per_hour(self) -> float:
        """By what is in it; reserved ones cost nothing more."""
        if self.capacity == "reserved":
            return 0.0
        vcpus, gibibytes = self.vcpus * _DOLLARS_PER_VCPU, self.gibibytes * _DOLLARS_PER_GIB
        return round(vcpus + gibibytes + self.gpus * _DOLLARS_PER_GPU, 4)

    @property
    def quantities(self) -> dict[str, str]:
        """What pods get of a machine."""
        gpus = {_GPU: str(self.gpus)} if self.gpus else {}
        memory = f"{self.gibibytes}Gi"
        amounts = {"cpu": str(self.vcpus), "memory": memory, "ephemeral-storage": SCRATCH_SPACE}
        return {**amounts, "pods": str(POD_SLOTS), **gpus}

    def labels_in(self, zone: str, rack: str) -> dict[str, str]:
        """What a Node of this type is labelled with there, beside its hostname."""
        return {
            "node.kubernetes.io/instance-type": self.name,
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": zone,
            "topology.bigfleet/rack": rack,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "fleet.example/family": self.name.split("-")[0],
            "fleet.example/vcpus": str(self.vcpus),
            "fleet.example/capacity": self.capacity,
            **self.labels,
        }


def _dedicated(team: str) -> InventoryTaint:
    return InventoryTaint(key="fleet.example/dedicated", value=team, effect="NoSchedule")


def instance_types() -> Iterator[InstanceType]:
    """The whole catalog.

    Tainted are those that ordinary pods have no business on: with GPUs, for one team's batch work,
    and the few that another team has reserved.
    """
    for family, ratio in _FAMILIES.items():
        for vcpus in _SIZES:
            yield InstanceType(f"{family}-{vcpus}", vcpus, vcpus * ratio, in_rack=8)
    yield InstanceType("m-128", 128, 512, in_rack=2)
    gpu = InventoryTaint(key=_GPU, value="present", effect="NoSchedule")
    yield InstanceType("g-32", 32, 128, in_rack=3, gpus=4, taints=(gpu,))
    batch = {"fleet.example/dedicated": "batch"}
    yield InstanceType("batch-16", 16, 64, 4, labels=batch, taints=(_dedicated("batch"),))
    data = {"fleet.example/dedicated": "data"}
    yield InstanceType(
        "data-16", 16, 128, 1, capacity="reserved", labels=data, taints=(_dedicated("data"),)
    )


def machines(each: InstanceType, in_rack: int) -> Iterator[InventoryMachine]:
    """So many machines of the type in each rack of each zone."""
    reserved = each.capacity == "reserved"
    for zone, racks in RACKS.items():
        for rack in racks:
            for number in range(in_rack):
                yield InventoryMachine(
                    id=f"{each.name}-{rack}-{number}",
                    state="IDLE" if reserved else "SPECULATIVE",
                    instance_type=each.name,
                    zone=zone,
                    rack=rack,
                    capacity_type="RESERVED" if reserved else "ON_DEMAND",
                    price_per_hour=each.dollars_per_hour,
                    interruption_probability=0.0,
                    resources=each.quantities,
                    labels=each.labels_in(zone, rack),
                    taints=each.taints,
                )
