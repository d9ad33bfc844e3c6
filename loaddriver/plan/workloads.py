"""Draws the workload objects of a cluster: exact pod counts, realistic replica numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random

import msgspec

from loaddriver.apportion import apportion, divide, largest_divisible, prefix_sums
from loaddriver.errors import ProfileError
from loaddriver.plan.records import RAMP, Workload
from loaddriver.profile.archetypes import Archetype, Gang
from loaddriver.profile.catalog import pod_shares
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import Ramp

# The distribution of replicas at large companies: (share, min, max).
_REPLICA_RANGES = ((0.55, 1, 5), (0.30, 6, 25), (0.12, 26, 100), (0.03, 101, 400))
_MAX_STATEFUL_REPLICAS = 25


class WorkloadSpec(msgspec.Struct, frozen=True):
    """A workload without name, cluster and step."""

    archetype: Archetype
    size: int
    replicas: int
    spread: bool
    gang: Gang | None

    def to_workload(self, name: str, cluster: int, step: int, origin: str) -> Workload:
        """Create the workload."""
        return Workload(
            cluster=cluster,
            step=step,
            namespace=f"tenant-{self.archetype.name}",
            name=name,
            archetype=self.archetype.name,
            kind=self.archetype.kind,
            size=self.size,
            replicas=self.replicas,
            priority=self.archetype.priority,
            spread=self.spread,
            group=name if self.gang else None,
            topology=self.gang.topology if self.gang else None,
            origin=origin,
        )


def draw_workloads(profile: Profile, cluster: int) -> tuple[Workload, ...]:
    """The workloads of one cluster in creation order; their replicas add up to podsPerCluster.

    Raises ProfileError if whole gangs cannot make up that number.
    """
    settings, shared = profile.settings, profile.catalog.shares_machines
    quotas = _gang_quotas(profile, cluster)
    plain = _plain_quotas(profile, cluster, quotas)
    specs: list[WorkloadSpec] = []
    for archetype in profile.catalog.archetypes:
        random = random_stream(settings.seed, f"workloads/{cluster}/{archetype.name}")
        gangs, others = quotas.get(archetype.name, {}), plain.get(archetype.name, 0)
        if shared:
            specs.extend(_shared_specs(archetype, sum(gangs.values()), others, random))
        else:
            specs.extend(_gang_specs(archetype, gangs, random))
            specs.extend(_plain_specs(archetype, others, random))
    random_stream(settings.seed, f"order/{cluster}").shuffle(specs)
    return tuple(_named(specs, cluster, settings.ramp))


def draw_objects(archetype: Archetype, pods: int, random: Random) -> list[WorkloadSpec]:
    """Draw objects of one archetype with exactly `pods` pods.

    With gangs, `pods` must be a sum of gang sizes.
    """
    gang = archetype.gang
    if archetype.pods_per_machine is None:
        in_gangs = pods if gang is not None else 0
        return list(_shared_specs(archetype, in_gangs, pods - in_gangs, random))
    positions = range(len(archetype.sizes))
    shares = [size.share for size in archetype.sizes]
    specs: list[WorkloadSpec] = []
    for replicas in _parts(archetype, pods, random):
        [size] = random.choices(positions, shares)
        spread = archetype.spread is not None and random.random() < archetype.spread.share
        specs.append(WorkloadSpec(archetype, size, replicas, spread and gang is None, gang))
    return specs


def _parts(archetype: Archetype, pods: int, random: Random) -> list[int]:
    if archetype.gang is not None:
        return divide(pods, archetype.gang.size.min, archetype.gang.size.max, random)
    return list(_object_sizes(archetype, pods, random))


def random_stream(seed: int, concern: str) -> Random:
    """An independent random stream; text seeds hash the same in every process."""
    return Random(f"{seed}/{concern}")


def _archetype_quotas(profile: Profile, cluster: int) -> dict[str, int]:
    settings = profile.settings
    shares = pod_shares(settings.weights_in(cluster), profile.catalog)
    return apportion(settings.pods_per_cluster, shares)


def _gang_quotas(profile: Profile, cluster: int) -> dict[str, dict[int, int]]:
    """Pods in gangs, by archetype and size; each number is a sum of whole gangs."""
    quotas: dict[str, dict[int, int]] = {}
    for name, pods in _archetype_quotas(profile, cluster).items():
        archetype = profile.catalog.archetype(name)
        if archetype.gang is None:
            continue
        least, most = archetype.gang.size.min, archetype.gang.size.max
        # On shared machines any gang may have any size.
        sizes = archetype.sizes if archetype.pods_per_machine is not None else archetype.sizes[:1]
        shares = {position: size.share for position, size in enumerate(sizes)}
        parts = apportion(round(pods * archetype.gang.share), shares)
        quotas[name] = {
            position: largest_divisible(part, least, most) for position, part in parts.items()
        }
    return quotas


def _plain_quotas(
    profile: Profile, cluster: int, gangs: dict[str, dict[int, int]]
) -> dict[str, int]:
    """Pods outside gangs by archetype, including the remainders of gangs."""
    archetypes = _archetype_quotas(profile, cluster)
    plain = {name: pods - sum(gangs.get(name, {}).values()) for name, pods in archetypes.items()}
    leftover = 0
    for name in archetypes:
        gang = profile.catalog.archetype(name).gang
        if gang is not None and gang.share == 1:
            leftover += plain.pop(name)
    if leftover and not any(plain.values()):
        raise ProfileError([_gang_remainder_error(profile, leftover)])
    if leftover:
        plain[max(plain, key=lambda name: plain[name])] += leftover
    return plain


def _gang_remainder_error(profile: Profile, leftover: int) -> str:
    pods = profile.settings.pods_per_cluster
    return (
        f"{profile.name}/profile.yaml: podsPerCluster = {pods}: the weights name only gangs, and "
        f"whole gangs leave {leftover} pods over; add an archetype without gangs or "
        f"write podsPerCluster: {pods - leftover}"
    )


def _gang_specs(
    archetype: Archetype, quotas: dict[int, int], random: Random
) -> Iterator[WorkloadSpec]:
    gang = archetype.gang
    for position, pods in quotas.items():
        assert gang is not None  # only archetypes with gangs have quotas for them
        for size in divide(pods, gang.size.min, gang.size.max, random):
            yield WorkloadSpec(archetype, position, size, spread=False, gang=gang)


def _plain_specs(archetype: Archetype, pods: int, random: Random) -> Iterator[WorkloadSpec]:
    shares = {position: size.share for position, size in enumerate(archetype.sizes)}
    spread_share = archetype.spread.share if archetype.spread else 0.0
    for position, part in apportion(pods, shares).items():
        for spread, rest in apportion(part, {True: spread_share, False: 1 - spread_share}).items():
            for replicas in _object_sizes(archetype, rest, random):
                yield WorkloadSpec(archetype, position, replicas, spread=spread, gang=None)


def _shared_specs(
    archetype: Archetype, in_gangs: int, others: int, random: Random
) -> Iterator[WorkloadSpec]:
    """Objects on shared machines, where any object may have any size."""
    gang = archetype.gang
    if gang is not None and in_gangs:
        gangs = divide(in_gangs, gang.size.min, gang.size.max, random)
        for replicas, size in _with_sizes(archetype, gangs, random):
            yield WorkloadSpec(archetype, size, replicas, spread=False, gang=gang)
    spread_share = archetype.spread.share if archetype.spread else 0.0
    for replicas, size in _with_sizes(
        archetype, list(_object_sizes(archetype, others, random)), random
    ):
        spread = random.random() < spread_share
        yield WorkloadSpec(archetype, size, replicas, spread=spread, gang=None)


def _with_sizes(
    archetype: Archetype, replicas: list[int], random: Random
) -> Iterator[tuple[int, int]]:
    """Each object's replicas and the position of its size.

    Objects in random order are assigned to sizes by cumulative pods, so that each size gets its
    share as closely as whole objects allow. With independent draws, a few large objects would make
    the demand of one seed a multiple of another's.
    """
    random.shuffle(replicas)
    borders = list(accumulate(size.share for size in archetype.sizes[:-1]))
    total = sum(replicas)
    for own, before in zip(replicas, prefix_sums(replicas), strict=True):
        yield own, bisect_right(borders, (before + own / 2) / total)


def _object_sizes(archetype: Archetype, pods: int, random: Random) -> Iterator[int]:
    while pods:
        replicas = min(_replicas(archetype, random), pods)
        pods -= replicas
        yield replicas


def _replicas(archetype: Archetype, random: Random) -> int:
    if archetype.replicas:
        [band] = random.choices(archetype.replicas, [each.share for each in archetype.replicas])
        drawn = random.randint(band.min, band.max)
        return min(drawn, archetype.max_replicas or drawn)
    weights = [weight for weight, _, _ in _REPLICA_RANGES]
    _, least, most = random.choices(_REPLICA_RANGES, weights)[0]
    drawn = random.randint(least, most)
    if archetype.kind == "StatefulSet":
        drawn = min(drawn, _MAX_STATEFUL_REPLICAS)
    return min(drawn, archetype.max_replicas or drawn)


def _named(specs: list[WorkloadSpec], cluster: int, ramp: Ramp) -> Iterator[Workload]:
    """Name objects in creation order; an object belongs to the step of its middle pod."""
    borders = _step_borders(ramp, sum(spec.replicas for spec in specs))
    counts: dict[str, int] = {}
    starts = prefix_sums([spec.replicas for spec in specs])
    for spec, before in zip(specs, starts, strict=True):
        name = spec.archetype.name
        counts[name] = counts.get(name, 0) + 1
        step = 1 + bisect_right(borders, before + spec.replicas / 2)
        yield spec.to_workload(f"{name}-{counts[name]:05d}", cluster, step, RAMP)


def _step_borders(ramp: Ramp, pods: int) -> Sequence[float]:
    """The borders between steps, counted in pods.

    Steps are equal; in a knee run, step n has n times the pods of the first.
    """
    parts = [number if ramp.pacing == "knee" else 1 for number in range(1, ramp.steps + 1)]
    return [pods * before / sum(parts) for before in prefix_sums(parts)[1:]]
