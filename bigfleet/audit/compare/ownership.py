"""Domains, clusters and quotas: does each have one shard, and the one it was given? Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from bigfleet.audit.compare.fleet_index import OWNED, FleetIndex
from bigfleet.audit.differences import Difference, Kind, difference
from bigfleet.audit.observations import CoordinatorView, Region, ShardView
from bigfleet.model.domain import Domain
from bigfleet.model.machine import MachineState


def differences(index: FleetIndex) -> Iterator[Difference]:
    """Differences in who owns what."""
    coordinator = index.seen.coordinator
    if coordinator is not None:
        yield from _domains_without_shard(index, coordinator)
        yield from _domains_of_others(index, coordinator)
        yield from _quotas(index, coordinator)
    yield from _clusters(index)


def _domains_without_shard(index: FleetIndex, coordinator: CoordinatorView) -> Iterator[Difference]:
    if not index.seen.providers:
        return
    machines = Counter(index.domain(machine) for machine in index.machines.values())
    for domain, count in machines.items():
        row = coordinator.domains.get(domain)
        if row is None or not row.shard:
            yield difference(
                Kind.DOMAIN_WITHOUT_SHARD,
                f"domain {domain}",
                provider=f"has {count:,} machines in it",
                coordinator="gives it to no shard",
            )


def _domains_of_others(index: FleetIndex, coordinator: CoordinatorView) -> Iterator[Difference]:
    """A domain that is moving is left out: machines reserved in it stay with its last shard."""
    for domain, shards in _claims(index).items():
        row = coordinator.domains.get(domain)
        if row is not None and row.state != OWNED:
            continue
        owner = row.shard if row else ""
        stated = f"owned by {owner}" if owner else "gives it to no shard"
        if len(shards) > 1:
            yield difference(
                Kind.DOMAIN_OF_TWO_SHARDS,
                f"domain {domain}",
                coordinator=stated,
                shards=f"{' and '.join(shards)} decide about its free machines",
            )
        elif shards[0] != owner:
            yield difference(
                Kind.DOMAIN_OF_ANOTHER_SHARD,
                f"domain {domain}",
                coordinator=stated,
                shards=f"{shards[0]} decides about its free machines",
            )


def _claims(index: FleetIndex) -> Mapping[Domain, list[str]]:
    """By domain, the shards that decide about free machines in it."""
    claims: defaultdict[Domain, list[str]] = defaultdict(list)
    for name in sorted(index.seen.shards):
        decided = index.seen.shards[name].machines.values()
        for domain in {machine.domain for machine in decided if not machine.cluster}:
            claims[domain].append(name)
    return claims


def _quotas(index: FleetIndex, coordinator: CoordinatorView) -> Iterator[Difference]:
    """Counted as shards do: their elastic machines that exist or are being created."""
    held: Counter[tuple[Region, str]] = Counter()
    for machine in index.machines.values():
        if machine.capacity_type.elastic and machine.state is not MachineState.SPECULATIVE:
            held[index.region(machine), index.owner(machine)] += 1
    for (region, shard), machines in held.items():
        most = coordinator.quotas.get(region)
        if most is not None and shard and machines > most.get(shard, 0):
            where = " ".join(filter(None, region))
            yield difference(
                Kind.QUOTA_EXCEEDED,
                f"quota of {shard} at {where}",
                coordinator=f"at most {most.get(shard, 0):,} machines",
                provider=f"has {machines:,} machines of {shard}",
            )


def _clusters(index: FleetIndex) -> Iterator[Difference]:
    """Without a coordinator, only the caller says which clusters there should be."""
    seen, coordinator = index.seen, index.seen.coordinator
    assigned = coordinator.clusters if coordinator else {}
    leaving = coordinator.removing if coordinator else ()
    for cluster in sorted({*seen.clusters, *assigned}.difference(leaving)):
        name, shard = f"cluster {cluster}", index.shard_of_cluster(cluster)
        if coordinator is not None and cluster not in assigned:
            stated = "no shard serves it"
            yield difference(Kind.CLUSTER_NOT_SERVED, name, coordinator=stated)
        elif shard is not None and (problem := _not_serving(shard, cluster)):
            yield difference(Kind.CLUSTER_NOT_SERVED, name, shard=f"{shard.id}: {problem}")
    yield from _clusters_of_two_shards(index)


def _not_serving(shard: ShardView, cluster: str) -> str:
    if cluster not in shard.reported:
        return "has no roll-up of it"
    return "" if cluster in shard.connected else "has no session with its operator"


def _clusters_of_two_shards(index: FleetIndex) -> Iterator[Difference]:
    serving: defaultdict[str, list[str]] = defaultdict(list)
    for shard, cluster in sorted(index.pods):
        serving[cluster].append(shard)
    for cluster, shards in serving.items():
        if len(shards) > 1:
            yield difference(
                Kind.CLUSTER_OF_TWO_SHARDS,
                f"cluster {cluster}",
                shards=f"{' and '.join(shards)} have needs of it",
            )
