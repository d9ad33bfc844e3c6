"""Sums and relations between keys that no single key can be blamed for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loaddriver.archetypes import Archetype
from loaddriver.catalog import Catalog, pod_shares
from loaddriver.errors import ProfileError
from loaddriver.profile_federation import federation_problems
from loaddriver.profile_fleet import fleet_problems
from loaddriver.profile_shapes import shape_problems
from loaddriver.strict_decode import Problem
from loaddriver.strict_hints import did_you_mean

if TYPE_CHECKING:
    from loaddriver.profile import Settings


def setting_problems(settings: Settings, catalog: Catalog) -> list[Problem]:
    """Everything impossible in settings that are well formed key by key."""
    problems = [*_weight_problems(settings, catalog), *_name_problems(settings, catalog)]
    if not problems:
        find_more = (fleet_problems, _rack_problems, shape_problems, federation_problems)
        problems = [problem for find in find_more for problem in find(settings, catalog)]
    more = (_latency_problems, _ramp_problems, _shard_problems)
    return [*problems, *(problem for find in more for problem in find(settings))]


def _shard_problems(settings: Settings) -> Iterator[Problem]:
    shards = settings.bigfleet.shards
    if shards > 1 and not settings.bigfleet.coordinators:
        yield Problem(
            "bigfleet.coordinators",
            f"= 0: nobody keeps {shards} shards apart; write 1 or 3, or one shard",
        )
    if shards > settings.clusters:
        yield Problem(
            "bigfleet.shards",
            f"= {shards}: there {_are(settings.clusters)}, and a shard without any keeps its part "
            "of the machines from the others; write at most one shard for each cluster",
        )


def _are(clusters: int) -> str:
    return "is 1 cluster" if clusters == 1 else f"are {clusters} clusters"


def _weight_problems(settings: Settings, catalog: Catalog) -> Iterator[Problem]:
    named = {f"clusterWeights.{name}.": each for name, each in settings.cluster_weights.items()}
    for prefix, weights in {"": settings.weights, **named}.items():
        try:
            pod_shares(weights, catalog)
        except ProfileError as error:
            for line in error.problems:
                path, _, text = line.partition(" ")
                yield Problem(prefix + path.rstrip(":"), text)


def _name_problems(settings: Settings, catalog: Catalog) -> Iterator[Problem]:
    clusters, archetypes = settings.cluster_names, [each.name for each in catalog.archetypes]
    for name in settings.cluster_weights:
        if name not in clusters:
            yield Problem(
                f"clusterWeights.{name}", f"no such cluster: they are {', '.join(clusters)}"
            )
    for position, burst in enumerate(settings.bursts):
        if burst.cluster is not None and burst.cluster not in clusters:
            yield Problem(
                f"bursts[{position}].cluster",
                f"= {burst.cluster!r}: no such cluster: they are {', '.join(clusters)}",
            )
    for name in settings.fleet.idle_factor_of:
        if name not in archetypes:
            known = did_you_mean(name, archetypes)
            yield Problem(f"fleet.idleFactorOf.{name}", f"no such archetype{known}")


def _in_use(settings: Settings, catalog: Catalog) -> list[str]:
    """Archetypes that any cluster's weights name."""
    numbers = range(settings.clusters)
    shares = (pod_shares(settings.weights_in(number), catalog) for number in numbers)
    return list(dict.fromkeys(name for each in shares for name in each))


def _rack_problems(settings: Settings, catalog: Catalog) -> Iterator[Problem]:
    known = [archetype.name for archetype in catalog.archetypes]
    in_bursts = [burst.archetype for burst in settings.bursts if burst.archetype in known]
    for name in dict.fromkeys([*_in_use(settings, catalog), *in_bursts]):
        yield from _gang_problems(catalog.archetype(name), settings.fleet.machines_per_rack)


def _gang_problems(archetype: Archetype, machines_per_rack: int) -> Iterator[Problem]:
    gang = archetype.gang
    if gang is None or gang.topology != "sameRack" or archetype.pods_per_machine is None:
        return  # of gangs on shared machines, preflight knows more
    machines = -(-gang.size.max // archetype.density)
    if machines > machines_per_rack:
        yield Problem(
            "fleet.machinesPerRack",
            f"= {machines_per_rack}: a {archetype.name} gang of {gang.size.max} pods needs "
            f"{machines} machines in one rack; write at least {machines}",
        )


def _latency_problems(settings: Settings) -> Iterator[Problem]:
    latency = settings.fleet.latency
    for name in ("create_seconds", "configure_seconds", "drain_seconds", "delete_seconds"):
        delay = getattr(latency, name)
        if not isinstance(delay, float | int) and delay.p99 < delay.median:
            key = name.replace("_seconds", "Seconds")
            yield Problem(
                f"fleet.latency.{key}.p99",
                f"= {delay.p99:g} lies below the median {delay.median:g}; swap or raise it",
            )


def _ramp_problems(settings: Settings) -> Iterator[Problem]:
    ramp = settings.ramp
    if ramp.steps > settings.pods_per_cluster:
        yield Problem(
            "ramp.steps",
            f"= {ramp.steps}: there are only {settings.pods_per_cluster} pods per cluster",
        )
    least = ramp.steps * ramp.step_seconds
    if ramp.budget_seconds < least:
        yield Problem(
            "ramp.budgetSeconds",
            f"= {ramp.budget_seconds:g}: {ramp.steps} steps of {ramp.step_seconds:g} s need "
            f"{least:g} s even when nothing waits; write at least {least:g}",
        )
