"""What is impossible in a catalog that is well formed key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from loaddriver.profile.archetypes import Archetype, PodSize, ReplicaRange, SizeQuantiles
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.instance_types import shared_machine

if TYPE_CHECKING:
    from loaddriver.profile.catalog import Catalog

# Keys of archetypes that mean something only where machines are ordinary ones.
_SHARED_ONLY_KEYS = ("sizeQuantiles", "replicas", "nodeSelector", "tolerations", "antiAffinity")
_REQUIRED_IF_DEDICATED = (
    "podsPerMachine",
    "zones",
    "interruptionPenaltyDollars",
    "reclamationPenaltyDollars",
)
_CLOSE_TO_ONE = 1e-6


def catalog_errors(catalog: Catalog) -> Iterator[FieldError]:
    """Every mistake that no single key can be blamed for."""
    for name in _duplicates(archetype.name for archetype in catalog.archetypes):
        yield FieldError(f"archetypes: {name}", "is there twice; rename one of them")
    if catalog.shares_machines:
        yield from _type_errors(catalog)
        for each in catalog.archetypes:
            yield from _shared_machine_errors(each)
    else:
        yield from _dedicated_machine_errors(catalog)
    for each in catalog.archetypes:
        yield from _archetype_errors(each)


def _dedicated_machine_errors(catalog: Catalog) -> Iterator[FieldError]:
    for key in ("systemReserved", "daemonSets"):
        if getattr(catalog, _snake(key)):
            yield FieldError(key, "is for ordinary machines; give instanceTypes as well")
    for each in catalog.archetypes:
        yield from _missing_key_errors(each)
    yield from _shared_type_errors(catalog)


def _shared_type_errors(catalog: Catalog) -> Iterator[FieldError]:
    owners: dict[str, list[tuple[Archetype, PodSize]]] = {}
    for each in catalog.archetypes:
        for size in each.sizes:
            for instance_type in dict.fromkeys(size.instance_types):
                owners.setdefault(instance_type, []).append((each, size))
    for instance_type, sharing in owners.items():
        if len(sharing) > 1 and not _interchangeable(sharing):
            yield FieldError(
                f"instanceTypes: {instance_type}",
                "is named by more than one pod size; give each size types of its own, because a "
                "machine is cut for one pod size and another's pods would fill it",
            )


def _missing_key_errors(archetype: Archetype) -> Iterator[FieldError]:
    where = f"archetypes.{archetype.name}"
    for key in _REQUIRED_IF_DEDICATED:
        if getattr(archetype, _snake(key)) in (None, ()):
            yield FieldError(
                f"{where}.{key}", "is missing; machines are cut for pods in this catalog"
            )
    if not archetype.sizes:
        yield FieldError(f"{where}.sizes", "is missing; give at least one")
    for number, size in enumerate(archetype.sizes):
        if not size.instance_types:
            path = f"{where}.sizes[{number}].instanceTypes"
            yield FieldError(path, "is missing; name at least one that is cut for this size")
    for key in _SHARED_ONLY_KEYS:
        if getattr(archetype, _snake(key)):
            yield FieldError(
                f"{where}.{key}", "is for ordinary machines, which this catalog has none of"
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


def _type_errors(catalog: Catalog) -> Iterator[FieldError]:
    for name in _duplicates(instance_type.name for instance_type in catalog.instance_types):
        yield FieldError(f"instanceTypes: {name}", "is there twice; rename one of them")
    for name in _duplicates(each.name for each in catalog.daemon_sets):
        yield FieldError(f"daemonSets: {name}", "is there twice; rename one of them")
    if catalog.system_reserved is None:
        yield FieldError("systemReserved", "is missing; say what machines keep for themselves")
        return
    for instance_type in catalog.instance_types:
        shape = shared_machine(instance_type, catalog.system_reserved, catalog.pricing)
        if shape.cpu_millicores <= 0 or shape.memory_mebibytes <= 0:
            yield FieldError(
                f"instanceTypes.{instance_type.name}",
                f"leaves {shape.cpu_millicores}m CPU and {shape.memory_mebibytes} MiB to pods; "
                "lower systemReserved, or leave the type out",
            )


def _shared_machine_errors(archetype: Archetype) -> Iterator[FieldError]:
    where = f"archetypes.{archetype.name}"
    if archetype.pods_per_machine is not None:
        yield FieldError(
            f"{where}.podsPerMachine",
            f"= {archetype.pods_per_machine}: this catalog has instanceTypes, which pods of all "
            "sizes share; leave it out",
        )
    if bool(archetype.sizes) == (archetype.size_quantiles is not None):
        yield FieldError(f"{where}.sizes", "or sizeQuantiles: give just one of them")
    for number, size in enumerate(archetype.sizes):
        if size.instance_types:
            yield FieldError(
                f"{where}.sizes[{number}].instanceTypes",
                "are cut for one size; here pods share machines, so write nodeSelector instead",
            )
    if archetype.size_quantiles is not None:
        yield from _quantile_errors(f"{where}.sizeQuantiles", archetype.size_quantiles)
    yield from _replica_errors(f"{where}.replicas", archetype.replicas)


def _replica_errors(where: str, bands: Sequence[ReplicaRange]) -> Iterator[FieldError]:
    shares = sum(band.share for band in bands)
    if bands and abs(shares - 1) > _CLOSE_TO_ONE:
        yield FieldError(where, f"have shares that add up to {shares:g}, not 1")
    for number, band in enumerate(bands):
        if band.min > band.max:
            yield FieldError(f"{where}[{number}]", "has min above max")


def _quantile_errors(where: str, quantiles: SizeQuantiles) -> Iterator[FieldError]:
    shares = quantiles.levels
    if shares[0] != 0 or shares[-1] != 1 or any(b <= a for a, b in pairwise(shares)):
        yield FieldError(f"{where}.levels", f"= {list(shares)}: must rise from 0 to 1")
    for key in ("cpuMillicores", "gibibytesPerCore"):
        values = getattr(quantiles, _snake(key))
        if len(values) != len(shares):
            yield FieldError(f"{where}.{key}", f"has {len(values)} values for {len(shares)} shares")
        if any(b < a for a, b in pairwise(values)):
            yield FieldError(f"{where}.{key}", f"= {list(values)}: must not fall")


def _archetype_errors(each: Archetype) -> Iterator[FieldError]:
    where = f"archetypes.{each.name}"
    shares = sum(size.share for size in each.sizes)
    if each.sizes and abs(shares - 1) > _CLOSE_TO_ONE:
        yield FieldError(f"{where}.sizes", f"have shares that add up to {shares:g}, not 1")
    if each.gang and each.gang.size.min > each.gang.size.max:
        yield FieldError(f"{where}.gang.size", "has min above max")
    if (each.kind == "Job") != (each.run_seconds is not None):
        yield FieldError(
            f"{where}.runSeconds", "is how long a Job's pods run: Jobs need it, others lack it"
        )
    if each.kind == "Job" and each.mean_lifetime_seconds is not None:
        yield FieldError(
            f"{where}.meanLifetimeSeconds", "is for pods that never end; Jobs have runSeconds"
        )
    if each.kind == "Job" and each.disruption_budget is not None:
        yield FieldError(
            f"{where}.disruptionBudget",
            "is a share of a workload's replicas, and Kubernetes cannot tell those of a Job; "
            "make it a Deployment",
        )


def _duplicates(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
