"""Estimates the machines, time and cost of a run, before it is planned.

A profile too large for this machine is not even planned, as its plan may not fit in memory; its
fleet is estimated from one of its clusters, which are all alike.

The rates come from measured runs of real control planes on 2 cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from loaddriver.errors import InfrastructureError
from loaddriver.plan.make import make_plan
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.demand import demand
from loaddriver.sizing.load import LoadNeed, churn_requests_per_second, load_need

GIBIBYTE = 2**30
CORES_MEASURED = 2
"""The cores on which the rates below, and the limits of profiles, were measured."""
# An idle control plane, and what each pod adds to its API server, etcd and caches.
_CLUSTER_BYTES = int(0.9 * GIBIBYTE)
# A further shard, and a coordinator with its etcd.
_SHARD_BYTES, _COORDINATOR_BYTES = int(0.12 * GIBIBYTE), int(0.15 * GIBIBYTE)
_PROVIDER_BYTES = int(0.12 * GIBIBYTE)
POD_BYTES = 240 * 1024
"""What each pod adds to the memory of its control plane."""
# Audit lines, component logs and results, uncompressed.
_RUN_DISK_BYTES = 200 * 2**20
_POD_DISK_BYTES = 20 * 1024
_START_SECONDS = 15
# The rate at which pods bind on 2 cores over all clusters, halved once so many pods exist, and the
# rate in a cluster with its own cores.
_PODS_PER_SECOND_HERE, _PODS_THAT_HALVE_IT = 70, 50_000
_PODS_PER_SECOND_EACH = 30

# The rented host that large runs are estimated for, and the pods whose control planes it carries.
_HOST_CORES, _HOST_GIBIBYTES, _HOST_DOLLARS_PER_HOUR = 64, 128, 0.85
_HOST_PODS = 125_000
# Installation and cleanup.
_RENTED_SECONDS_AROUND = 600
_SHARD_MACHINES = 500_000


@dataclass(frozen=True)
class HostCapacity:
    """Free memory and disk of this machine in bytes, and its cores."""

    cores: int
    memory_available_bytes: int
    disk_free_bytes: int


@dataclass(frozen=True)
class CloudEstimate:
    """A run on rented hosts, one of them for BigFleet, and those of `load_workers` if there must
    be several.
    """

    machines: int
    shards: int
    hosts: int
    load_workers: int
    seconds: float
    dollars: float


def memory_bytes(settings: ProfileSettings) -> int:
    """The expected peak memory of the run."""
    bigfleet = settings.bigfleet
    shards = (bigfleet.most_shards - 1) * _SHARD_BYTES
    roles = shards + bigfleet.coordinators * _COORDINATOR_BYTES
    roles += max(0, len(settings.fleet.providers) - 1) * _PROVIDER_BYTES
    return settings.clusters * _CLUSTER_BYTES + roles + settings.max_pods * POD_BYTES


def disk_bytes(settings: ProfileSettings) -> int:
    """The expected disk use of logs and results."""
    return _RUN_DISK_BYTES + settings.max_pods * _POD_DISK_BYTES


def ramp_seconds(settings: ProfileSettings) -> float:
    """The expected length of the ramp: its steps, or binding if that is slower."""
    rate = _PODS_PER_SECOND_HERE / (1 + settings.pods / _PODS_THAT_HALVE_IT)
    if settings.pods > _HOST_PODS:
        rate = max(rate, settings.clusters * _PODS_PER_SECOND_EACH)
    return max(settings.phase_seconds("ramp"), settings.pods / rate)


def run_seconds(settings: ProfileSettings) -> float:
    """The time from the first process to the end of the soak."""
    return _START_SECONDS + ramp_seconds(settings) + settings.soak.seconds


def host_shortfalls(profile: Profile, host: HostCapacity) -> tuple[str, ...]:
    """Why this machine is too small for the profile; empty if it is not."""
    needs = (
        ("memory", memory_bytes(profile.settings), host.memory_available_bytes),
        ("disk", disk_bytes(profile.settings), host.disk_free_bytes),
    )
    return tuple(
        f"{profile.name} needs about {gibibytes(need)} of {name}, this machine has "
        f"{gibibytes(has)} free; choose a smaller profile or free some"
        for name, need, has in needs
        if need > has
    )


def check_host_capacity(profile: Profile, host: HostCapacity) -> None:
    """Raise InfrastructureError if this machine is too small for the profile.

    The error has the profile's needs and its estimated cost on rented hosts.
    """
    lacking = host_shortfalls(profile, host)
    if lacking:
        raise InfrastructureError("\n".join([*cost_lines(profile), *lacking]))


def cloud_estimate(profile: Profile) -> CloudEstimate:
    """Estimate hosts, shards, time and cost of a run on rented hosts."""
    settings = profile.settings
    machines, need = _machines(profile), _load_need(profile)
    hosts = 1 + need.hosts(_HOST_CORES)
    hosts += max(
        math.ceil(settings.max_pods / _HOST_PODS),
        math.ceil(memory_bytes(settings) / (_HOST_GIBIBYTES * GIBIBYTE)),
    )
    seconds = run_seconds(settings) + _RENTED_SECONDS_AROUND
    return CloudEstimate(
        machines=machines,
        shards=math.ceil(machines / _SHARD_MACHINES),
        hosts=hosts,
        load_workers=need.workers,
        seconds=seconds,
        dollars=hosts * _HOST_DOLLARS_PER_HOUR * seconds / 3600,
    )


def _machines(profile: Profile) -> int:
    """The machines of one cluster times the clusters, plus those of bursts.

    Clusters that differ are planned one by one. For shared machines this is the minimum by pod
    slots.
    """
    if profile.catalog.shares_machines:
        slots = max(instance_type.pods for instance_type in profile.catalog.instance_types)
        return profile.settings.clusters * math.ceil(
            profile.settings.max_pods / profile.settings.clusters / slots
        )
    if profile.settings.cluster_weights:
        return demand(make_plan(profile), profile.catalog).machines_claimed
    each = demand(make_plan(_one_cluster(profile)), profile.catalog).machines_claimed
    return each * profile.settings.clusters + sum(
        math.ceil(burst.pods / profile.catalog.archetype(burst.archetype).density)
        for burst in profile.settings.bursts
    )


def _load_need(profile: Profile) -> LoadNeed:
    """That of the ramp or of the churn, whichever is more; bursts are left out."""
    settings = profile.settings
    if settings.cluster_weights:
        return load_need(make_plan(profile))
    one, soak = load_need(make_plan(_one_cluster(profile))), settings.soak
    factor = soak.churn_burst.factor if soak.churn_burst else 1.0
    churn = factor * churn_requests_per_second(soak.churn_pods_per_second)
    return LoadNeed(max(settings.clusters * one.requests_per_second, churn))


def _one_cluster(profile: Profile) -> Profile:
    """The profile with one of its clusters, which are alike, without bursts and churn."""
    no_churn = msgspec.structs.replace(profile.settings.soak, churn_pods_per_second=0)
    one = msgspec.structs.replace(profile.settings, clusters=1, bursts=(), soak=no_churn)
    return Profile(profile.name, one, profile.gates, profile.catalog)


def cost_lines(profile: Profile) -> Iterator[str]:
    """The run's size, and its cost on rented hosts."""
    settings, needs = profile.settings, cloud_estimate(profile)
    yield (
        f"{profile.name}: {settings.pods:,} pods in {_plural(settings.clusters, 'cluster')} on "
        f"about {_plural(needs.machines, 'machine')}, {_plural(needs.shards, 'shard')}; about "
        f"{gibibytes(memory_bytes(settings))} memory and {gibibytes(disk_bytes(settings))} disk"
    )
    yield (
        f"  rented: about {_plural(needs.hosts, 'host')} of {_HOST_CORES} vCPU and "
        f"{_HOST_GIBIBYTES} GiB for {needs.seconds / 60:.0f} minutes, ${needs.dollars:,.0f} at "
        f"${_HOST_DOLLARS_PER_HOUR} per host and hour"
    )
    if needs.load_workers > 1:
        yield f"  load.workers: {needs.load_workers} at least, on hosts of their own"


def _plural(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def gibibytes(amount: int) -> str:
    """Format bytes as GiB."""
    return f"{amount / GIBIBYTE:,.1f} GiB"
