"""The archetypes: what kinds of workloads tenants run, and the machines made for them.

One catalog describes demand and supply together. A machine of an instance type
is exactly `podsPerMachine` pods of the one pod size that names the type, so a
fleet derived from it can never disagree with the pods that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.strict_decode import Problem, Record, decode
from loaddriver.strict_hints import did_you_mean
from loaddriver.strict_yaml import read_yaml

Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
DnsLabel = Annotated[str, msgspec.Meta(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
TypeName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=63)]
GPU = "nvidia.com/gpu"
_SPARE_POD_SLOTS = 10


class PodSize(Record, frozen=True, kw_only=True):
    """What one pod asks for, and which instance types are cut for it.

    `share` is the part of the archetype's pods that have this size.
    """

    cpu_millicores: Count
    memory_mebibytes: Count
    instance_types: Annotated[tuple[TypeName, ...], msgspec.Meta(min_length=1)]
    share: Share = 1.0
    extended_resources: dict[str, int] = msgspec.field(default_factory=dict)


class Spread(Record, frozen=True, kw_only=True):
    """Even distribution over zones, asked by `share` of the archetype's pods."""

    share: Share
    max_skew: Count
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]


class GangSize(Record, frozen=True, kw_only=True):
    """How many pods one gang has, both ends included."""

    min: Count
    max: Count


class Gang(Record, frozen=True, kw_only=True):
    """Pods that run in one rack or one zone; `share` is the part of pods in gangs."""

    topology: Literal["sameRack", "sameZone"]
    size: GangSize
    share: Share = 1.0


class DisruptionBudget(Record, frozen=True, kw_only=True):
    """A PodDisruptionBudget beside each workload: no more than `maxUnavailablePercent` of its pods
    (rounded up to whole pods, as Kubernetes does) may be disrupted.
    """

    max_unavailable_percent: Annotated[int, msgspec.Meta(ge=1, le=100)]

    def floor(self, replicas: int) -> int:
        """The pods that must stay of so many."""
        return replicas - -(-replicas * self.max_unavailable_percent // 100)


class Archetype(Record, frozen=True, kw_only=True):
    """One kind of workload. `weights` are shares of pods, per named weight set.

    Pods of Jobs end after `runSeconds`; those of others, which never end by themselves, are deleted
    in the soak so that they live `meanLifetimeSeconds` on average, if that is given.
    `preempts: false` forbids kube-scheduler to remove pods of lower priority for them
    (`preemptionPolicy: Never`), so that who makes room is BigFleet alone. No workload has more than
    `mostReplicas`: few pods in many small objects know more of a percentile than in few large ones.
    """

    name: DnsLabel
    kind: Literal["Deployment", "StatefulSet", "Job"]
    pods_per_machine: Count
    zones: Annotated[tuple[DnsLabel, ...], msgspec.Meta(min_length=1)]
    priority: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
    interruption_penalty_dollars: NotNegative
    reclamation_penalty_dollars: NotNegative
    sizes: Annotated[tuple[PodSize, ...], msgspec.Meta(min_length=1)]
    weights: dict[str, NotNegative] = msgspec.field(default_factory=dict)
    spread: Spread | None = None
    gang: Gang | None = None
    run_seconds: NotNegative | None = None
    mean_lifetime_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    disruption_budget: DisruptionBudget | None = None
    preempts: bool = True
    most_replicas: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Pricing(Record, frozen=True, kw_only=True):
    """What an hour of each resource costs on demand, and what spot takes off."""

    dollars_per_vcpu_hour: NotNegative
    dollars_per_gibibyte_hour: NotNegative
    dollars_per_gpu_hour: NotNegative
    spot_price_fraction: Share
    spot_interruption_probability: Share


class Catalog(Record, frozen=True, kw_only=True):
    """All archetypes and the price list."""

    pricing: Pricing
    archetypes: Annotated[tuple[Archetype, ...], msgspec.Meta(min_length=1)]

    def archetype(self, name: str) -> Archetype:
        """The archetype of that name. Raises KeyError: plans hold known names only."""
        return {archetype.name: archetype for archetype in self.archetypes}[name]

    def weight_sets(self) -> tuple[str, ...]:
        """Names of all weight sets that any archetype takes part in."""
        return tuple(sorted({name for each in self.archetypes for name in each.weights}))


class MachineShape(Record, frozen=True, kw_only=True):
    """Allocatable resources and on-demand price of every machine made for a pod size."""

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


def machine_shape(archetype: Archetype, size: PodSize, pricing: Pricing) -> MachineShape:
    """The machine that holds exactly `podsPerMachine` pods of `size`.

    A few pod slots more than that, so that resources and not the slot count
    decide what fits.
    """
    density = archetype.pods_per_machine
    cpu, memory = size.cpu_millicores * density, size.memory_mebibytes * density
    extended = {name: amount * density for name, amount in size.extended_resources.items()}
    dollars = (
        cpu / 1000 * pricing.dollars_per_vcpu_hour
        + memory / 1024 * pricing.dollars_per_gibibyte_hour
        + extended.get(GPU, 0) * pricing.dollars_per_gpu_hour
    )
    return MachineShape(
        cpu_millicores=cpu,
        memory_mebibytes=memory,
        pods=density + _SPARE_POD_SLOTS,
        extended_resources=extended,
        dollars_per_hour=round(dollars, 4),
    )


def load_catalog(profiles_dir: Path, profile_name: str) -> Catalog:
    """The catalog a profile runs with.

    `profiles/<name>/catalog.yaml` replaces the common `profiles/catalog.yaml`;
    `profiles/<name>/archetypes.yaml` (a list) adds archetypes to either, and one
    with a name that exists already takes that one's place.
    Raises ProfileError with every mistake found.
    """
    own = profiles_dir / profile_name / "catalog.yaml"
    path = own if own.is_file() else profiles_dir / "catalog.yaml"
    raw = read_yaml(path, _label(path))
    extra = profiles_dir / profile_name / "archetypes.yaml"
    if extra.is_file() and isinstance(raw, dict):
        raw = _extended(raw, read_yaml(extra, _label(extra)), _label(extra))
    return decode_catalog(raw, _label(path))


def decode_catalog(raw: Any, where: str) -> Catalog:
    """A checked catalog from parsed YAML. Raises ProfileError with every mistake."""
    catalog, problems = decode(raw, Catalog)
    if catalog is not None:
        problems = [*_name_problems(catalog), *_archetype_problems(catalog)]
    if catalog is None or problems:
        raise ProfileError([f"{where}: {problem.path} {problem.text}" for problem in problems])
    return catalog


def pod_shares(weights: str | Mapping[str, float], catalog: Catalog) -> dict[str, float]:
    """Each archetype's part of all pods, adding up to 1, in catalog order.

    `weights` names a weight set or gives weights by archetype.
    Raises ProfileError (path `weights`) for unknown names or an empty sum.
    """
    chosen = _weights_of_set(weights, catalog) if isinstance(weights, str) else weights
    names = [archetype.name for archetype in catalog.archetypes]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ProfileError(
            [f"weights.{name}: no such archetype{did_you_mean(name, names)}" for name in unknown]
        )
    total = sum(chosen.values())
    if total <= 0:
        raise ProfileError(["weights: they add up to 0; give at least one archetype a weight"])
    return {name: chosen[name] / total for name in names if chosen.get(name, 0) > 0}


def _weights_of_set(name: str, catalog: Catalog) -> dict[str, float]:
    if name not in catalog.weight_sets():
        known = did_you_mean(name, catalog.weight_sets())
        raise ProfileError([f"weights = {name!r}: no archetype has weights of that name{known}"])
    return {each.name: each.weights[name] for each in catalog.archetypes if name in each.weights}


def _extended(raw: dict[str, Any], extra: Any, where: str) -> dict[str, Any]:
    if not isinstance(extra, list) or not all(isinstance(each, dict) for each in extra):
        raise ProfileError([f"{where}: expected a list of archetypes"])
    replaced = {each.get("name") for each in extra}
    kept = [each for each in raw.get("archetypes", []) if each.get("name") not in replaced]
    return {**raw, "archetypes": [*kept, *extra]}


def _name_problems(catalog: Catalog) -> Iterator[Problem]:
    for name in _repeated(archetype.name for archetype in catalog.archetypes):
        yield Problem(f"archetypes: {name}", "is there twice; rename one of them")
    owners: dict[str, list[tuple[Archetype, PodSize]]] = {}
    for each in catalog.archetypes:
        for size in each.sizes:
            for kind in dict.fromkeys(size.instance_types):
                owners.setdefault(kind, []).append((each, size))
    for kind, sharing in owners.items():
        if len(sharing) > 1 and not _interchangeable(sharing):
            yield Problem(
                f"instanceTypes: {kind}",
                "is named by more than one pod size; give each size types of its own, because a "
                "machine is cut for one pod size and another's pods would fill it",
            )


def _interchangeable(sharing: Sequence[tuple[Archetype, PodSize]]) -> bool:
    """Whether it makes no difference whose pods fill a machine: they ask for the same, and no gang
    finds its rack taken by others. Some may accept further types that others do not.
    """
    asked = [
        (
            archetype.pods_per_machine,
            archetype.zones,
            msgspec.structs.replace(size, share=1.0, instance_types=()),
        )
        for archetype, size in sharing
    ]
    return all(each == asked[0] for each in asked) and not any(
        archetype.gang for archetype, _ in sharing
    )


def _repeated(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})


def _archetype_problems(catalog: Catalog) -> Iterator[Problem]:
    for each in catalog.archetypes:
        where = f"archetypes.{each.name}"
        shares = sum(size.share for size in each.sizes)
        if abs(shares - 1) > 1e-6:
            yield Problem(f"{where}.sizes", f"have shares that add up to {shares:g}, not 1")
        if each.gang and each.gang.size.min > each.gang.size.max:
            yield Problem(f"{where}.gang.size", "has min above max")
        if (each.kind == "Job") != (each.run_seconds is not None):
            yield Problem(
                f"{where}.runSeconds", "is how long a Job's pods run: Jobs need it, others lack it"
            )
        if each.kind == "Job" and each.mean_lifetime_seconds is not None:
            yield Problem(
                f"{where}.meanLifetimeSeconds", "is for pods that never end; Jobs have runSeconds"
            )
        if each.kind == "Job" and each.disruption_budget is not None:
            yield Problem(
                f"{where}.disruptionBudget",
                "is a share of a workload's replicas, and Kubernetes cannot tell those of a Job; "
                "make it a Deployment",
            )


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
