"""The leader's tables as wire messages, sorted."""

from __future__ import annotations

from collections.abc import Iterator

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import UnknownObject
from bigfleet.services.coordinator.leader_term import LeaderTerm

_NO_REPORT_YET = 0


def shards(leader_term: LeaderTerm) -> Iterator[wire.ShardRegistryEntry]:
    """By id; a heartbeat of 0 means that this leader has no report of the shard yet."""
    now = leader_term.clock.monotonic_seconds()
    for row in sorted(leader_term.registry.known_shards(), key=lambda row: row.id):
        received = leader_term.reports.of(row.id)
        yield wire.ShardRegistryEntry(
            shard_id=row.id,
            address=row.address,
            registered_at_unix_ns=row.registered_at_unix_ns,
            last_heartbeat_unix_ns=(
                received.snapshot.received_at_unix_ns if received else _NO_REPORT_YET
            ),
            leaving=row.leaving,
            seconds_since_report=now - received.at_seconds if received else 0.0,
        )


def domains(leader_term: LeaderTerm) -> Iterator[wire.DomainAssignment]:
    """By topology key and value."""
    for name, row in sorted(leader_term.registry.domains.items()):
        yield wire.DomainAssignment(
            topology_key=name[0],
            topology_value=name[1],
            shard_id=row.shard,
            state=row.state.value,
            transfer_target=row.to,
            reason=row.reason,
        )


def clusters(leader_term: LeaderTerm) -> Iterator[wire.ClusterAssignment]:
    """By cluster."""
    for row in sorted(leader_term.registry.clusters.values(), key=lambda row: row.id):
        yield wire.ClusterAssignment(cluster_id=row.id, shard_id=row.shard)


def quotas(leader_term: LeaderTerm) -> Iterator[wire.QuotaAllocation]:
    """By provider and region."""
    for (provider, region), row in sorted(leader_term.registry.quotas.items()):
        known = leader_term.registry.shards
        live = [shard for shard in row.per_shard if shard in known and not known[shard].removed]
        yield wire.QuotaAllocation(
            provider=provider,
            region=region,
            per_shard=row.per_shard,
            for_now={s: row.slice_of(s) for s in live if row.slice_of(s) != row.per_shard[s]},
            reasons=row.reasons,
        )


def providers(leader_term: LeaderTerm) -> Iterator[wire.ProviderEntry]:
    """By name and region."""
    for _, row in sorted(leader_term.registry.providers.items()):
        yield wire.ProviderEntry(name=row.name, address=row.address, region=row.region)


def reports(leader_term: LeaderTerm, shard_id: str) -> Iterator[wire.ShardReportSnapshot]:
    """By shard; "" is every shard. UnknownObject for one that never reported."""
    if shard_id and shard_id not in leader_term.registry.shards:
        raise UnknownObject(f"no shard {shard_id}; `bigfleet fleet shards` lists them")
    for row in sorted(leader_term.registry.known_shards(), key=lambda row: row.id):
        received = leader_term.reports.of(row.id)
        if received is not None and shard_id in ("", row.id):
            yield received.snapshot
