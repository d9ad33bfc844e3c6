"""The archetypes: what kinds of workloads tenants run, and what their pods ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from loaddriver.profile.decoding import ConfigStruct

Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
DnsLabel = Annotated[str, msgspec.Meta(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
TypeName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=63)]
GPU = "nvidia.com/gpu"


class PodSize(ConfigStruct, frozen=True, kw_only=True):
    """What one pod asks for; `share` is the part of the archetype's pods that have this size.

    `instance_types` are cut for it. It has none where machines are ordinary ones that all share.
    """

    cpu_millicores: Count
    memory_mebibytes: Count
    instance_types: tuple[TypeName, ...] = ()
    share: Share = 1.0
    extended_resources: dict[str, int] = msgspec.field(default_factory=dict)


class SizeQuantiles(ConfigStruct, frozen=True, kw_only=True):
    """A distribution of pod sizes, from which `count` sizes of equal share are taken.

    `levels` are cumulative, from 0 to 1; at each, the CPU and the memory per core of the pods that
    far up. Between them both are interpolated logarithmically. CPU and memory per core are
    independent of each other. Amounts are rounded as people write them, so equal sizes may result.
    """

    count: Count
    levels: Annotated[tuple[Share, ...], msgspec.Meta(min_length=2)]
    cpu_millicores: tuple[Count, ...]
    gibibytes_per_core: tuple[Positive, ...]


class Spread(ConfigStruct, frozen=True, kw_only=True):
    """Even distribution over zones, asked by `share` of the archetype's pods.

    With `hostname_max_skew` the same pods prefer to be spread over machines as well.
    """

    share: Share
    max_skew: Count
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    hostname_max_skew: Count | None = None


class GangSize(ConfigStruct, frozen=True, kw_only=True):
    """How many pods one gang has, both ends included."""

    min: Count
    max: Count


class Gang(ConfigStruct, frozen=True, kw_only=True):
    """Pods that run in one rack or one zone; `share` is the part of pods in gangs."""

    topology: Literal["sameRack", "sameZone"]
    size: GangSize
    share: Share = 1.0


class DisruptionBudget(ConfigStruct, frozen=True, kw_only=True):
    """A PodDisruptionBudget beside each workload: no more than `maxUnavailablePercent` of its pods
    (rounded up to whole pods, as Kubernetes does) may be disrupted.
    """

    max_unavailable_percent: Annotated[int, msgspec.Meta(ge=1, le=100)]

    def floor(self, replicas: int) -> int:
        """The pods that must stay of so many."""
        return replicas - -(-replicas * self.max_unavailable_percent // 100)


class ReplicaRange(ConfigStruct, frozen=True, kw_only=True):
    """`share` of the workloads have between `min` and `max` replicas, each number as likely."""

    share: Share
    min: Count
    max: Count


class Toleration(ConfigStruct, frozen=True, kw_only=True):
    """As in a pod: without `value` it tolerates every value, without `effect` every effect."""

    key: str
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Archetype(ConfigStruct, frozen=True, kw_only=True):
    """One kind of workload. `weights` are shares of pods, per named weight set.

    Pods of Jobs end after `runSeconds`; those of others, which never end by themselves, are deleted
    in the soak so that they live `meanLifetimeSeconds` on average, if that is given.
    `preempts: false` forbids kube-scheduler to remove pods of lower priority for them
    (`preemptionPolicy: Never`), so that who makes room is BigFleet alone. No workload has more than
    `maxReplicas`: few pods in many small objects know more of a percentile than in few large ones.

    Where the catalog has machines cut for pods, `podsPerMachine` of them fill one. Where it has
    ordinary instance types, pods of all archetypes share machines: sizes may then come from
    `sizeQuantiles`, replicas from `replicas`, and pods may ask for node labels, tolerate taints and
    refuse to share a machine with others of their workload (`antiAffinity: hostname`). One without
    priority, penalties and constraints asks for nothing but its resources.
    """

    name: DnsLabel
    kind: Literal["Deployment", "StatefulSet", "Job"]
    pods_per_machine: Count | None = None
    zones: tuple[DnsLabel, ...] = ()
    priority: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    interruption_penalty_dollars: NotNegative | None = None
    reclamation_penalty_dollars: NotNegative | None = None
    sizes: tuple[PodSize, ...] = ()
    size_quantiles: SizeQuantiles | None = None
    replicas: tuple[ReplicaRange, ...] = ()
    weights: dict[str, NotNegative] = msgspec.field(default_factory=dict)
    spread: Spread | None = None
    gang: Gang | None = None
    run_seconds: NotNegative | None = None
    mean_lifetime_seconds: Positive | None = None
    disruption_budget: DisruptionBudget | None = None
    preempts: bool = True
    max_replicas: Count | None = None
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    anti_affinity: Literal["hostname"] | None = None

    @property
    def density(self) -> int:
        """How many of its pods fill a machine that is cut for them."""
        assert self.pods_per_machine is not None, f"{self.name} has no machines of its own"
        return self.pods_per_machine


def sizes_of(quantiles: SizeQuantiles) -> tuple[PodSize, ...]:
    """The sizes that stand for a distribution, smallest CPU first; equal ones are one."""
    found: dict[tuple[int, int], float] = {}
    for cpu, memory in _amounts(quantiles):
        found[cpu, memory] = found.get((cpu, memory), 0.0) + 1 / quantiles.count
    return tuple(
        PodSize(cpu_millicores=cpu, memory_mebibytes=memory, share=share)
        for (cpu, memory), share in found.items()
    )


# Steps of the golden ratio fall evenly over an interval, however many there are.
_GOLDEN_RATIO = 0.6180339887498949
# Up to so much, in steps of so much.
_CPU_STEPS = ((100, 5), (500, 25), (2000, 100), (8000, 500))
_MEMORY_STEPS = ((256, 16), (1024, 64), (8192, 256), (65536, 1024))
_COARSEST_CPU, _COARSEST_MEMORY = 1000, 4096


def _amounts(quantiles: SizeQuantiles) -> Iterator[tuple[int, int]]:
    for number in range(quantiles.count):
        at = (number + 0.5) / quantiles.count
        cpu = _between(quantiles.levels, quantiles.cpu_millicores, at)
        elsewhere = (number * _GOLDEN_RATIO + 0.5) % 1.0
        gibibytes = _between(quantiles.levels, quantiles.gibibytes_per_core, elsewhere)
        memory = cpu / 1000 * gibibytes * 1024
        yield (
            _rounded(cpu, _CPU_STEPS, _COARSEST_CPU),
            _rounded(memory, _MEMORY_STEPS, _COARSEST_MEMORY),
        )


def _between(shares: tuple[float, ...], values: tuple[float, ...], at: float) -> float:
    """The value at a cumulative share, on a straight line of logarithms."""
    last = next(n for n in range(1, len(shares)) if at <= shares[n])
    low, high = math.log(values[last - 1]), math.log(values[last])
    part = (at - shares[last - 1]) / (shares[last] - shares[last - 1])
    return math.exp(low + (high - low) * part)


def _rounded(amount: float, steps: tuple[tuple[int, int], ...], coarsest: int) -> int:
    step = next((step for limit, step in steps if amount <= limit), coarsest)
    return max(step, round(amount / step) * step)
