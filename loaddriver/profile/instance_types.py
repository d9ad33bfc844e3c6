"""Instance types of shared machines, and the specs of shared and dedicated machines.

The allocatable resources of a shared machine are its capacity minus what the system reserves.
DaemonSet pods use allocatable resources, as in any cluster.
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
    """A taint that a machine carries for its whole life."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class InstanceType(ConfigStruct, frozen=True, kw_only=True):
    """A machine type as clouds sell them.

    The on-demand price is `dollarsPerHour`, or else follows from the catalog's pricing. Nodes carry
    `labels` in addition to their family and generation.
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
    """What a machine reserves for kubelet, container runtime, system and the eviction threshold.

    CPU is reserved per vCPU: a value for the first, the second, ..., and one for each further vCPU.
    """

    cpu_millicores_of_first: tuple[NotNegative, ...]
    cpu_millicores_of_further: NotNegative
    memory_mebibytes: NotNegative
    memory_mebibytes_per_pod: NotNegative
    eviction_mebibytes: NotNegative

    def cpu(self, vcpus: int) -> float:
        """Millicores reserved of `vcpus`."""
        first = self.cpu_millicores_of_first[:vcpus]
        return sum(first) + (vcpus - len(first)) * self.cpu_millicores_of_further

    def memory(self, pods: int) -> float:
        """MiB reserved on a machine with `pods` pod slots."""
        return (
            self.memory_mebibytes + self.memory_mebibytes_per_pod * pods + self.eviction_mebibytes
        )


class DaemonSet(ConfigStruct, frozen=True, kw_only=True):
    """A DaemonSet on the machines that match `nodeSelector` and whose taints it tolerates."""

    name: DnsLabel
    cpu_millicores: Count
    memory_mebibytes: Count
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class Pricing(ConfigStruct, frozen=True, kw_only=True):
    """The on-demand price of each resource per hour, and the price and risk of spot."""

    dollars_per_vcpu_hour: NotNegative
    dollars_per_gibibyte_hour: NotNegative
    dollars_per_gpu_hour: NotNegative
    spot_price_fraction: Share
    spot_interruption_probability: Share

    def dollars_per_hour(self, vcpus: float, gibibytes: float, gpus: int) -> float:
        """The on-demand price of a machine with these resources."""
        return (
            vcpus * self.dollars_per_vcpu_hour
            + gibibytes * self.dollars_per_gibibyte_hour
            + gpus * self.dollars_per_gpu_hour
        )


class MachineSpec(ConfigStruct, frozen=True, kw_only=True):
    """The allocatable resources of a machine, and its on-demand price."""

    cpu_millicores: int
    memory_mebibytes: int
    pods: int
    extended_resources: dict[str, int]
    dollars_per_hour: float

    def quantities(self) -> dict[str, str]:
        """The resources as Kubernetes quantities, by name."""
        return {
            "cpu": f"{self.cpu_millicores}m",
            "memory": f"{self.memory_mebibytes}Mi",
            "pods": str(self.pods),
            **{name: str(amount) for name, amount in sorted(self.extended_resources.items())},
        }


def dedicated_machine(archetype: Archetype, size: PodSize, pricing: Pricing) -> MachineSpec:
    """The machine that holds exactly `podsPerMachine` pods of `size`.

    It has a few spare pod slots, so that resources are the limit and not the slot count.
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
    """A machine of `instance_type`, minus what the system reserves."""
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
    """The labels of the Nodes of a type, in addition to name, zone and rack."""
    own = {FAMILY_KEY: instance_type.family, GENERATION_KEY: str(instance_type.generation)}
    return {**own, **instance_type.labels}
