"""Checks of a profile's settings across keys and against the catalog."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.catalog import Catalog, pod_shares
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.federation_checks import federation_errors
from loaddriver.profile.fleet_checks import fleet_errors
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.settings import CommandSettings, OpenStage, ProfileSettings, Ramp
from loaddriver.profile.shape_checks import shape_errors


def settings_errors(settings: ProfileSettings, catalog: Catalog | None) -> list[FieldError]:
    """Every contradiction between settings whose keys are valid one by one.

    Without a `catalog`, because it has errors itself, what depends on it is not checked.
    """
    problems: list[FieldError] = []
    if catalog is not None:
        problems += [*_weight_errors(settings, catalog), *_reference_errors(settings, catalog)]
    if catalog is not None and not problems:
        checks = (fleet_errors, _rack_errors, shape_errors, federation_errors)
        problems += (problem for find in checks for problem in find(settings, catalog))
    more = (_latency_errors, _ramp_errors, _shard_errors, _fault_errors, _system_errors)
    return [*problems, *(problem for find in more for problem in find(settings))]


def _shard_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    shards = settings.bigfleet.shards
    if shards > 1 and not settings.bigfleet.coordinators:
        yield FieldError(
            "bigfleet.coordinators",
            f"= 0: {shards} shards need a coordinator; write 1 or 3, or one shard",
        )
    if shards > settings.clusters:
        yield FieldError(
            "bigfleet.shards",
            f"= {shards}: there {_are(settings.clusters)}, and the machines of a shard without "
            "clusters stay unused; write at most one shard per cluster",
        )


def _fault_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    joining, soak = settings.bigfleet.joining_shards, settings.soak.seconds
    if settings.changing_roles and settings.system != "bigfleet":
        yield FieldError(settings.changing_roles, "is of BigFleet's roles; remove it")
    if joining is not None and not settings.bigfleet.coordinators:
        yield FieldError("bigfleet.joiningShards", "need a coordinator to be given machines")
    if joining is not None and joining.at_seconds > soak:
        yield FieldError(
            "bigfleet.joiningShards.atSeconds", f"= {joining.at_seconds:g} is after the soak's end"
        )
    yield from _leaving_errors(settings)
    ended: dict[str, float] = {}
    for number, fault in sorted(enumerate(settings.faults), key=lambda each: each[1].at_seconds):
        where = f"faults[{number}]"
        if fault.ends_at_seconds > soak:
            end = f"ends {fault.ends_at_seconds:g} s into a soak of {soak:g} s; it must end within"
            yield FieldError(where, end)
        if fault.at_seconds < ended.get(fault.role, 0.0):
            yield FieldError(where, f"begins while {fault.role} is still down")
        ended[fault.role] = fault.ends_at_seconds


def _leaving_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    bigfleet, key = settings.bigfleet, "bigfleet.leavingShard"
    leaving, joining = bigfleet.leaving_shard, bigfleet.joining_shards
    if leaving is None:
        return
    if bigfleet.most_shards < 2:
        yield FieldError(key, "leaves no shard; write bigfleet.shards or joiningShards")
    names = bigfleet.shard_names
    joins_later = leaving.shard in names[bigfleet.shards :]
    if leaving.shard not in names:
        yield FieldError(f"{key}.shard", f"= {leaving.shard}: there are {', '.join(names)}")
    elif joins_later and joining and leaving.at_seconds <= joining.at_seconds:
        yield FieldError(f"{key}.atSeconds", f"= {leaving.at_seconds:g}: it has not joined then")
    if leaving.at_seconds > settings.soak.seconds:
        yield FieldError(f"{key}.atSeconds", f"= {leaving.at_seconds:g} is after the soak's end")


def _system_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    system = settings.system
    if system == "bigfleet":
        return
    if settings.load.mode != "pods":
        yield FieldError(
            "load.mode", f"= cr: with `system: {system}` nothing reads CapacityRequests; write pods"
        )
    if settings.federation is not None:
        yield FieldError("federation", f"is BigFleet's own; remove it, or `system: {system}`")
    if system == "command":
        yield from _command_errors(settings.command)
    if settings.anchors != "off":
        yield FieldError(
            "anchors",
            f"= {settings.anchors}: anchors bind pods on the machines that BigFleet chose for "
            "them; write off",
        )


def _command_errors(command: CommandSettings) -> Iterator[FieldError]:
    for name in ("start", "stop", "ready"):
        try:
            shlex.split(getattr(command, name) or "")
        except ValueError as error:
            yield FieldError(f"command.{name}", f"is no command line: {error}")
    if command.stop is not None and command.start is None:
        yield FieldError(
            "command.stop", "without command.start: the run would remove what it did not start"
        )


def _are(clusters: int) -> str:
    return "is 1 cluster" if clusters == 1 else f"are {clusters} clusters"


def _weight_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    named = {f"clusterWeights.{name}.": each for name, each in settings.cluster_weights.items()}
    for prefix, weights in {"": settings.weights, **named}.items():
        try:
            pod_shares(weights, catalog)
        except ProfileError as error:
            for line in error.problems:
                path, _, text = line.partition(" ")
                yield FieldError(prefix + path.rstrip(":"), text)


def _reference_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    clusters, archetypes = settings.cluster_names, [each.name for each in catalog.archetypes]
    for name in settings.cluster_weights:
        if name not in clusters:
            yield FieldError(
                f"clusterWeights.{name}", f"no such cluster (known: {', '.join(clusters)})"
            )
    for position, burst in enumerate(settings.bursts):
        if burst.cluster is not None and burst.cluster not in clusters:
            yield FieldError(
                f"bursts[{position}].cluster",
                f"= {burst.cluster!r}: no such cluster (known: {', '.join(clusters)})",
            )
    for name in settings.fleet.idle_factor_by_archetype:
        if name not in archetypes:
            known = did_you_mean(name, archetypes)
            yield FieldError(f"fleet.idleFactorByArchetype.{name}", f"no such archetype{known}")


def _in_use(settings: ProfileSettings, catalog: Catalog) -> list[str]:
    """The archetypes named by the weights of any cluster."""
    numbers = range(settings.clusters)
    shares = (pod_shares(settings.weights_in(number), catalog) for number in numbers)
    return list(dict.fromkeys(name for each in shares for name in each))


def _rack_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    known = [archetype.name for archetype in catalog.archetypes]
    in_bursts = [burst.archetype for burst in settings.bursts if burst.archetype in known]
    for name in dict.fromkeys([*_in_use(settings, catalog), *in_bursts]):
        yield from _gang_errors(catalog.archetype(name), settings.fleet.machines_per_rack)


def _gang_errors(archetype: Archetype, machines_per_rack: int) -> Iterator[FieldError]:
    gang = archetype.gang
    if gang is None or gang.topology != "sameRack" or archetype.pods_per_machine is None:
        return  # preflight checks gangs on shared machines
    machines = -(-gang.size.max // archetype.density)
    if machines > machines_per_rack:
        yield FieldError(
            "fleet.machinesPerRack",
            f"= {machines_per_rack}: a {archetype.name} gang of {gang.size.max} pods needs "
            f"{machines} machines in one rack; write at least {machines}",
        )


def _latency_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    latency = settings.fleet.latency
    for name in ("create_seconds", "configure_seconds", "drain_seconds", "delete_seconds"):
        delay = getattr(latency, name)
        if not isinstance(delay, float | int) and delay.p99 < delay.median:
            key = name.replace("_seconds", "Seconds")
            yield FieldError(
                f"fleet.latency.{key}.p99",
                f"= {delay.p99:g} is below the median {delay.median:g}; raise it",
            )


def _ramp_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    ramp = settings.ramp
    if ramp.steps > settings.pods_per_cluster:
        yield FieldError(
            "ramp.steps",
            f"= {ramp.steps}: there are only {settings.pods_per_cluster} pods per cluster",
        )
    if ramp.capacity_share is not None and ramp.pacing != "adaptive":
        yield FieldError(
            "ramp.capacityShare",
            f"with ramp.pacing: {ramp.pacing} steps do not follow the machine; remove it, or write "
            "pacing: adaptive",
        )
    if ramp.open_stage is not None:
        yield from _open_stage_errors(ramp, ramp.open_stage)
    least = ramp.steps * ramp.step_seconds
    if ramp.budget_seconds < least:
        yield FieldError(
            "ramp.budgetSeconds",
            f"= {ramp.budget_seconds:g}: {ramp.steps} steps of {ramp.step_seconds:g} s need "
            f"{least:g} s even if no pod waits; write at least {least:g}",
        )


def _open_stage_errors(ramp: Ramp, stage: OpenStage) -> Iterator[FieldError]:
    if ramp.pacing != "adaptive":
        yield FieldError(
            "ramp.openStage",
            f"with ramp.pacing: {ramp.pacing} no stage shows a capacity that another could stay "
            "below; remove it, or write pacing: adaptive",
        )
    if stage.steps >= ramp.steps:
        yield FieldError(
            "ramp.openStage.steps",
            f"= {stage.steps}: at least one of the {ramp.steps} steps must show the capacity "
            f"first; write at most {ramp.steps - 1}",
        )
