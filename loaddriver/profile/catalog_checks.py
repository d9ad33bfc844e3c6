"""Checks of a catalog across keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from loaddriver.profile.archetypes import Archetype, PodSize, ReplicaRange, SizeQuantiles
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.instance_types import shared_machine

# Keys of archetypes that are valid only on shared machines.
_SHARED_ONLY_KEYS = ("sizeQuantiles", "replicas", "nodeSelector", "tolerations", "antiAffinity")
_REQUIRED_IF_DEDICATED = (
    "podsPerMachine",
    "zones",
    "interruptionPenaltyDollars",
    "reclamationPenaltyDollars",
)
_SUM_TOLERANCE = 1e-6


def catalog_errors(catalog: Catalog) -> Iterator[FieldError]:
    """Every contradiction between keys that are valid one by one."""
    for name in _duplicates(archetype.name for archetype in catalog.archetypes):
        yield FieldError(f"archetypes: {name}", "is a duplicate name")
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
            yield FieldError(key, "needs shared machines; add instanceTypes")
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
                "is named by more than one pod size; give each size its own types, because a "
                "dedicated machine holds pods of one size",
            )


def _missing_key_errors(archetype: Archetype) -> Iterator[FieldError]:
    where = f"archetypes.{archetype.name}"
    for key in _REQUIRED_IF_DEDICATED:
        if getattr(archetype, _snake(key)) in (None, ()):
            yield FieldError(f"{where}.{key}", "is missing; this catalog has dedicated machines")
    if not archetype.sizes:
        yield FieldError(f"{where}.sizes", "is missing; give at least one")
    for number, size in enumerate(archetype.sizes):
        if not size.instance_types:
            path = f"{where}.sizes[{number}].instanceTypes"
            yield FieldError(path, "is missing; name at least one type dedicated to this size")
    for key in _SHARED_ONLY_KEYS:
        if getattr(archetype, _snake(key)):
            yield FieldError(
                f"{where}.{key}", "needs shared machines, and this catalog has no instanceTypes"
            )


def _interchangeable(sharing: Sequence[tuple[Archetype, PodSize]]) -> bool:
    """Whether pods of all these archetypes can replace each other on a machine.

    They can if their requests, density and zones are equal, and none has gangs, whose racks other
    pods could fill. The lists of types that they accept may differ.
    """
    requested = [
        (
            archetype.pods_per_machine,
            archetype.zones,
            msgspec.structs.replace(size, share=1.0, instance_types=()),
        )
        for archetype, size in sharing
    ]
    return all(each == requested[0] for each in requested) and not any(
        archetype.gang for archetype, _ in sharing
    )


def _type_errors(catalog: Catalog) -> Iterator[FieldError]:
    for name in _duplicates(instance_type.name for instance_type in catalog.instance_types):
        yield FieldError(f"instanceTypes: {name}", "is a duplicate name")
    for name in _duplicates(each.name for each in catalog.daemon_sets):
        yield FieldError(f"daemonSets: {name}", "is a duplicate name")
    if catalog.system_reserved is None:
        yield FieldError("systemReserved", "is missing; shared machines need it")
        return
    for instance_type in catalog.instance_types:
        shape = shared_machine(instance_type, catalog.system_reserved, catalog.pricing)
        if shape.cpu_millicores <= 0 or shape.memory_mebibytes <= 0:
            yield FieldError(
                f"instanceTypes.{instance_type.name}",
                f"leaves {shape.cpu_millicores}m CPU and {shape.memory_mebibytes} MiB to pods; "
                "lower systemReserved, or remove the type",
            )


def _shared_machine_errors(archetype: Archetype) -> Iterator[FieldError]:
    where = f"archetypes.{archetype.name}"
    if archetype.pods_per_machine is not None:
        yield FieldError(
            f"{where}.podsPerMachine",
            f"= {archetype.pods_per_machine}: this catalog has shared machines; remove it",
        )
    if bool(archetype.sizes) == (archetype.size_quantiles is not None):
        yield FieldError(f"{where}.sizes", "or sizeQuantiles: exactly one of them is required")
    for number, size in enumerate(archetype.sizes):
        if size.instance_types:
            yield FieldError(
                f"{where}.sizes[{number}].instanceTypes",
                "need dedicated machines; with shared ones, use nodeSelector",
            )
    if archetype.size_quantiles is not None:
        yield from _quantile_errors(f"{where}.sizeQuantiles", archetype.size_quantiles)
    yield from _replica_errors(f"{where}.replicas", archetype.replicas)


def _replica_errors(where: str, bands: Sequence[ReplicaRange]) -> Iterator[FieldError]:
    shares = sum(band.share for band in bands)
    if bands and abs(shares - 1) > _SUM_TOLERANCE:
        yield FieldError(where, f"have shares that sum to {shares:g}, not 1")
    for number, band in enumerate(bands):
        if band.min > band.max:
            yield FieldError(f"{where}[{number}]", "has min above max")


def _quantile_errors(where: str, quantiles: SizeQuantiles) -> Iterator[FieldError]:
    levels = quantiles.levels
    if levels[0] != 0 or levels[-1] != 1 or any(b <= a for a, b in pairwise(levels)):
        yield FieldError(f"{where}.levels", f"= {list(levels)}: must increase from 0 to 1")
    for key in ("cpuMillicores", "gibibytesPerCore"):
        values = getattr(quantiles, _snake(key))
        if len(values) != len(levels):
            yield FieldError(f"{where}.{key}", f"has {len(values)} values for {len(levels)} levels")
        if any(b < a for a, b in pairwise(values)):
            yield FieldError(f"{where}.{key}", f"= {list(values)}: must not decrease")


def _archetype_errors(each: Archetype) -> Iterator[FieldError]:
    where = f"archetypes.{each.name}"
    shares = sum(size.share for size in each.sizes)
    if each.sizes and abs(shares - 1) > _SUM_TOLERANCE:
        yield FieldError(f"{where}.sizes", f"have shares that sum to {shares:g}, not 1")
    if each.gang and each.gang.size.min > each.gang.size.max:
        yield FieldError(f"{where}.gang.size", "has min above max")
    if (each.kind == "Job") != (each.run_seconds is not None):
        yield FieldError(f"{where}.runSeconds", "is required for Jobs and not allowed elsewhere")
    if each.kind == "Job" and each.mean_lifetime_seconds is not None:
        yield FieldError(
            f"{where}.meanLifetimeSeconds", "is not allowed for Jobs; they have runSeconds"
        )
    if each.kind == "Job" and each.disruption_budget is not None:
        yield FieldError(
            f"{where}.disruptionBudget",
            "is not allowed for Jobs, whose replicas Kubernetes does not know; use a Deployment",
        )


def _duplicates(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
