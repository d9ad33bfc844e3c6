"""Which objects a cluster's pods come from: exact sums, sizes like those of real tenants."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec

from loaddriver.apportion import apportion, cumulative, divide, largest_divisible
from loaddriver.catalog import Archetype, Gang, pod_shares
from loaddriver.errors import ProfileError
from loaddriver.profile import Profile, Settings

# How many replicas services have at large companies: many small, few large.
_REPLICA_BANDS = ((0.55, 1, 5), (0.30, 6, 25), (0.12, 26, 100), (0.03, 101, 400))
_MOST_STATEFUL_REPLICAS = 25


class Workload(msgspec.Struct, frozen=True, kw_only=True, tag="workload", rename="camel"):
    """One object and the pods it asks for.

    `size` is the position among the archetype's pod sizes; `group` is set for a
    gang, whose pods must share the domain that `topology` names.
    """

    cluster: int
    step: int
    namespace: str
    name: str
    archetype: str
    kind: Literal["Deployment", "StatefulSet", "Job"]
    size: int
    replicas: int
    priority: int
    spread: bool
    group: str | None
    topology: Literal["sameRack", "sameZone"] | None


class _Draft(msgspec.Struct, frozen=True):
    """A workload before it has a name and a step."""

    archetype: Archetype
    size: int
    replicas: int
    spread: bool
    gang: Gang | None


def draw_workloads(profile: Profile, cluster: int) -> tuple[Workload, ...]:
    """The workloads of one cluster in creation order; their replicas add up to podsPerCluster.

    Raises ProfileError when gangs alone cannot make up that number.
    """
    settings = profile.settings
    quotas = _gang_quotas(profile)
    plain = _plain_quotas(profile, quotas)
    drafts: list[_Draft] = []
    for archetype in profile.catalog.archetypes:
        random = _stream(settings.seed, f"workloads/{cluster}/{archetype.name}")
        drafts.extend(_gang_drafts(archetype, quotas.get(archetype.name, {}), random))
        drafts.extend(_plain_drafts(archetype, plain.get(archetype.name, 0), random))
    _stream(settings.seed, f"order/{cluster}").shuffle(drafts)
    return tuple(_named(drafts, cluster, settings))


def _stream(seed: int, concern: str) -> Random:
    """A random stream of its own; text seeds are hashed the same way in every process."""
    return Random(f"{seed}/{concern}")


def _archetype_quotas(profile: Profile) -> dict[str, int]:
    settings = profile.settings
    return apportion(settings.pods_per_cluster, pod_shares(settings.weights, profile.catalog))


def _gang_quotas(profile: Profile) -> dict[str, dict[int, int]]:
    """Pods in gangs, by archetype and size; each number divides into whole gangs."""
    quotas: dict[str, dict[int, int]] = {}
    for name, pods in _archetype_quotas(profile).items():
        archetype = profile.catalog.archetype(name)
        if archetype.gang is None:
            continue
        least, most = archetype.gang.size.min, archetype.gang.size.max
        shares = {position: size.share for position, size in enumerate(archetype.sizes)}
        parts = apportion(round(pods * archetype.gang.share), shares)
        quotas[name] = {
            position: largest_divisible(part, least, most) for position, part in parts.items()
        }
    return quotas


def _plain_quotas(profile: Profile, gangs: dict[str, dict[int, int]]) -> dict[str, int]:
    """Pods outside gangs by archetype; they also take what did not fill a whole gang."""
    archetypes = _archetype_quotas(profile)
    plain = {name: pods - sum(gangs.get(name, {}).values()) for name, pods in archetypes.items()}
    leftover = 0
    for name in archetypes:
        gang = profile.catalog.archetype(name).gang
        if gang is not None and gang.share == 1:
            leftover += plain.pop(name)
    if leftover and not any(plain.values()):
        raise ProfileError([_gangs_do_not_add_up(profile, leftover)])
    if leftover:
        plain[max(plain, key=lambda name: plain[name])] += leftover
    return plain


def _gangs_do_not_add_up(profile: Profile, leftover: int) -> str:
    pods = profile.settings.pods_per_cluster
    return (
        f"{profile.name}/profile.yaml: podsPerCluster = {pods}: the weights name gangs only, and "
        f"whole gangs leave {leftover} pods over; add an archetype without gangs or "
        f"write podsPerCluster: {pods - leftover}"
    )


def _gang_drafts(archetype: Archetype, quotas: dict[int, int], random: Random) -> Iterator[_Draft]:
    gang = archetype.gang
    for position, pods in quotas.items():
        assert gang is not None  # only archetypes with gangs have quotas for them
        for size in divide(pods, gang.size.min, gang.size.max, random):
            yield _Draft(archetype, position, size, spread=False, gang=gang)


def _plain_drafts(archetype: Archetype, pods: int, random: Random) -> Iterator[_Draft]:
    shares = {position: size.share for position, size in enumerate(archetype.sizes)}
    spread_share = archetype.spread.share if archetype.spread else 0.0
    for position, part in apportion(pods, shares).items():
        for spread, rest in apportion(part, {True: spread_share, False: 1 - spread_share}).items():
            while rest:
                replicas = min(_replicas(archetype, random), rest)
                rest -= replicas
                yield _Draft(archetype, position, replicas, spread=spread, gang=None)


def _replicas(archetype: Archetype, random: Random) -> int:
    weights = [weight for weight, _, _ in _REPLICA_BANDS]
    _, least, most = random.choices(_REPLICA_BANDS, weights)[0]
    drawn = random.randint(least, most)
    return min(drawn, _MOST_STATEFUL_REPLICAS) if archetype.kind == "StatefulSet" else drawn


def _named(drafts: list[_Draft], cluster: int, settings: Settings) -> Iterator[Workload]:
    """Names in creation order; an object belongs to the step in which its middle falls."""
    per_step = settings.pods_per_cluster / settings.ramp.steps
    counts: dict[str, int] = {}
    starts = cumulative([draft.replicas for draft in drafts])
    for draft, before in zip(drafts, starts, strict=True):
        archetype = draft.archetype
        middle = before + draft.replicas / 2
        counts[archetype.name] = counts.get(archetype.name, 0) + 1
        name = f"{archetype.name}-{counts[archetype.name]:05d}"
        yield Workload(
            cluster=cluster,
            step=1 + min(int(middle / per_step), settings.ramp.steps - 1),
            namespace=f"tenant-{archetype.name}",
            name=name,
            archetype=archetype.name,
            kind=archetype.kind,
            size=draft.size,
            replicas=draft.replicas,
            priority=archetype.priority,
            spread=draft.spread,
            group=name if draft.gang else None,
            topology=draft.gang.topology if draft.gang else None,
        )
