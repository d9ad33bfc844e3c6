"""Archetypes: the types of workload that tenants run, and what their pods request."""

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
Sentence = Annotated[str, msgspec.Meta(min_length=10)]
DnsLabel = Annotated[str, msgspec.Meta(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
TypeName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=63)]
GPU = "nvidia.com/gpu"


class PodSize(ConfigStruct, frozen=True, kw_only=True):
    """What one pod requests; `share` is the fraction of the archetype's pods that have this size.

    `instance_types` are dedicated to this size; empty where machines are shared.
    """

    cpu_millicores: Count
    memory_mebibytes: Count
    instance_types: tuple[TypeName, ...] = ()
    share: Share = 1.0
    extended_resources: dict[str, int] = msgspec.field(default_factory=dict)


class SizeQuantiles(ConfigStruct, frozen=True, kw_only=True):
    """A distribution of pod sizes, from which `count` sizes of equal share are taken.

    `levels` are quantile levels from 0 to 1, each with its CPU and its memory per core; values in
    between are interpolated logarithmically. CPU and memory per core are independent of each other.
    Amounts are rounded as people write them, so equal sizes may result.
    """

    count: Count
    levels: Annotated[tuple[Share, ...], msgspec.Meta(min_length=2)]
    cpu_millicores: tuple[Count, ...]
    gibibytes_per_core: tuple[Positive, ...]


class Spread(ConfigStruct, frozen=True, kw_only=True):
    """A topology spread constraint over zones, on `share` of the archetype's pods.

    With `hostname_max_skew` the same pods also prefer to spread over machines.
    """

    share: Share
    max_skew: Count
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    hostname_max_skew: Count | None = None


class GangSize(ConfigStruct, frozen=True, kw_only=True):
    """The number of pods in one gang, inclusive."""

    min: Count
    max: Count


class Gang(ConfigStruct, frozen=True, kw_only=True):
    """Pods that must share a rack or a zone; `share` is the fraction of pods in gangs."""

    topology: Literal["sameRack", "sameZone"]
    size: GangSize
    share: Share = 1.0


class DisruptionBudget(ConfigStruct, frozen=True, kw_only=True):
    """A PodDisruptionBudget for each workload, with `maxUnavailablePercent` of its pods.

    The percentage is rounded up to whole pods, as Kubernetes does.
    """

    max_unavailable_percent: Annotated[int, msgspec.Meta(ge=1, le=100)]

    def floor(self, replicas: int) -> int:
        """The number of pods that must stay available, of `replicas`."""
        return replicas - -(-replicas * self.max_unavailable_percent // 100)


class ReplicaRange(ConfigStruct, frozen=True, kw_only=True):
    """`share` of the workloads have from `min` to `max` replicas, uniformly distributed."""

    share: Share
    min: Count
    max: Count


class Toleration(ConfigStruct, frozen=True, kw_only=True):
    """As in a pod: without `value` it matches every value, without `effect` every effect."""

    key: str
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Archetype(ConfigStruct, frozen=True, kw_only=True):
    """One type of workload. `weights` are shares of pods, per named weight set.

    Pods of Jobs end after `runSeconds`. Other pods run forever; with `meanLifetimeSeconds` they are
    deleted in the soak so that they live that long on average. `preempts: false` sets
    `preemptionPolicy: Never`, so that only BigFleet makes room for them, never kube-scheduler. No
    workload has more than `maxReplicas`: with the same pods in more and smaller workloads,
    percentiles have a larger effective sample size.

    On dedicated machines, `podsPerMachine` pods fill one. On shared machines, pods of all
    archetypes share: sizes may come from `sizeQuantiles`, replicas from `replicas`, and pods may
    select node labels, tolerate taints and avoid other pods of their workload
    (`antiAffinity: hostname`).
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
        """How many of its pods fill a dedicated machine."""
        assert self.pods_per_machine is not None, f"{self.name} has no dedicated machines"
        return self.pods_per_machine


def sizes_of(quantiles: SizeQuantiles) -> tuple[PodSize, ...]:
    """Sample sizes from a distribution, smallest CPU first; equal sizes are merged."""
    found: dict[tuple[int, int], float] = {}
    for cpu, memory in _amounts(quantiles):
        found[cpu, memory] = found.get((cpu, memory), 0.0) + 1 / quantiles.count
    return tuple(
        PodSize(cpu_millicores=cpu, memory_mebibytes=memory, share=share)
        for (cpu, memory), share in found.items()
    )


# Multiples of the golden ratio, modulo 1, cover an interval evenly for any count.
_GOLDEN_RATIO = 0.6180339887498949
# Rounding steps: (up to this amount, rounded to multiples of this).
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


def _between(levels: tuple[float, ...], values: tuple[float, ...], at: float) -> float:
    """The value at a quantile level, interpolated logarithmically."""
    last = next(n for n in range(1, len(levels)) if at <= levels[n])
    low, high = math.log(values[last - 1]), math.log(values[last])
    part = (at - levels[last - 1]) / (levels[last] - levels[last - 1])
    return math.exp(low + (high - low) * part)


def _rounded(amount: float, steps: tuple[tuple[int, int], ...], coarsest: int) -> int:
    step = next((step for limit, step in steps if amount <= limit), coarsest)
    return max(step, round(amount / step) * step)
