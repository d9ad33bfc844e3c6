"""Machines: ordinary instance types that all pods share, and machines that are cut for one size.

What pods may use of an ordinary machine is its capacity less what the system keeps for itself.
What DaemonSets take of it is their pods' own business, as in any cluster.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from loaddriver.profile.archetypes import (
    GPU,
    Archetype,
    Count,
    DnsLabel,
    NotNegative,
    PodSize,
    Share,
    Toleration,
    TypeName,
)
from loaddriver.profile.decoding import ConfigStruct

FAMILY_KEY = "scaletest.bigfleet/instance-family"
GENERATION_KEY = "scaletest.bigfleet/instance-generation"
_SPARE_POD_SLOTS = 10


class Taint(ConfigStruct, frozen=True, kw_only=True):
    """What keeps pods off a machine that do not tolerate it, for as long as the machine lives."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class InstanceType(ConfigStruct, frozen=True, kw_only=True):
    """A machine type as clouds sell them.

    An hour costs `dollarsPerHour` on demand, or what the catalog's pricing makes of its resources.
    Nodes carry `labels` beside their family and generation.
    """

    name: TypeName
    family: DnsLabel
    generation: Count
    vcpus: Count
    memory_gibibytes: Count
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    pods: Count = 110
    dollars_per_hour: NotNegative | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


class SystemReserved(ConfigStruct, frozen=True, kw_only=True):
    """What a machine keeps from pods: for kubelet, container runtime and system, and as the margin
    below which kubelets evict.

    CPU by the place of each vCPU: so much of the first, the second, ..., and of each further one.
    """

    cpu_millicores_of_first: tuple[NotNegative, ...]
    cpu_millicores_of_further: NotNegative
    memory_mebibytes: NotNegative
    memory_mebibytes_per_pod: NotNegative
    eviction_mebibytes: NotNegative

    def cpu(self, vcpus: int) -> float:
        """Millicores kept of so many vCPUs."""
        first = self.cpu_millicores_of_first[:vcpus]
        return sum(first) + (vcpus - len(first)) * self.cpu_millicores_of_further

    def memory(self, pods: int) -> float:
        """MiB kept on a machine with so many pod slots."""
        return (
            self.memory_mebibytes + self.memory_mebibytes_per_pod * pods + self.eviction_mebibytes
        )


class DaemonSet(ConfigStruct, frozen=True, kw_only=True):
    """An agent on each machine that has the labels of `nodeSelector` and no taint beyond
    `tolerations`.
    """

    name: DnsLabel
    cpu_millicores: Count
    memory_mebibytes: Count
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class Pricing(ConfigStruct, frozen=True, kw_only=True):
    """What an hour of each resource costs on demand, and what spot takes off."""

    dollars_per_vcpu_hour: NotNegative
    dollars_per_gibibyte_hour: NotNegative
    dollars_per_gpu_hour: NotNegative
    spot_price_fraction: Share
    spot_interruption_probability: Share

    def dollars_per_hour(self, vcpus: float, gibibytes: float, gpus: int) -> float:
        """The price of a machine with these resources."""
        return (
            vcpus * self.dollars_per_vcpu_hour
            + gibibytes * self.dollars_per_gibibyte_hour
            + gpus * self.dollars_per_gpu_hour
        )


class MachineSpec(ConfigStruct, frozen=True, kw_only=True):
    """What pods may use of a machine, and its price on demand."""

    cpu_millicores: int
    memory_mebibytes: int
    pods: int
    extended_resources: dict[str, int]
    dollars_per_hour: float

    def quantities(self) -> dict[str, str]:
        """As Kubernetes quantities by resource name."""
        return {
            "cpu": f"{self.cpu_millicores}m",
            "memory": f"{self.memory_mebibytes}Mi",
            "pods": str(self.pods),
            **{name: str(amount) for name, amount in sorted(self.extended_resources.items())},
        }


def dedicated_machine(archetype: Archetype, size: PodSize, pricing: Pricing) -> MachineSpec:
    """The machine that holds exactly `podsPerMachine` pods of `size`.

    A few pod slots more than that, so that resources and not the slot count
    decide what fits.
    """
    density = archetype.density
    cpu, memory = size.cpu_millicores * density, size.memory_mebibytes * density
    extended = {name: amount * density for name, amount in size.extended_resources.items()}
    dollars = pricing.dollars_per_hour(cpu / 1000, memory / 1024, extended.get(GPU, 0))
    return MachineSpec(
        cpu_millicores=cpu,
        memory_mebibytes=memory,
        pods=density + _SPARE_POD_SLOTS,
        extended_resources=extended,
        dollars_per_hour=round(dollars, 4),
    )


def shared_machine(
    instance_type: InstanceType, reserved: SystemReserved, pricing: Pricing
) -> MachineSpec:
    """A machine of an ordinary type, less what the system keeps of it."""
    dollars = instance_type.dollars_per_hour
    if dollars is None:
        dollars = pricing.dollars_per_hour(
            instance_type.vcpus, instance_type.memory_gibibytes, instance_type.gpus
        )
    return MachineSpec(
        cpu_millicores=int(instance_type.vcpus * 1000 - reserved.cpu(instance_type.vcpus)),
        memory_mebibytes=int(
            instance_type.memory_gibibytes * 1024 - reserved.memory(instance_type.pods)
        ),
        pods=instance_type.pods,
        extended_resources={GPU: instance_type.gpus} if instance_type.gpus else {},
        dollars_per_hour=round(dollars, 4),
    )


def instance_type_labels(instance_type: InstanceType) -> dict[str, str]:
    """What the Nodes of a type carry beside their name, zone and rack."""
    own = {FAMILY_KEY: instance_type.family, GENERATION_KEY: str(instance_type.generation)}
    return {**own, **instance_type.labels}
