"""Reads a provider's machines and the coordinator's lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.audit.observations import CoordinatorView, DomainRow, ProviderView
from bigfleet.model.domain import Domain
from bigfleet.model.machine import Machine


async def read_provider(address: str, identity: Identity | None) -> ProviderView:
    """All machines of the provider at `address`. BigFleetError if it does not answer."""
    provider = GrpcProvider(address, identity)
    machines: dict[str, Machine] = {}
    rejected: dict[str, str] = {}
    name = ""
    try:
        async for page in provider.list():
            machines.update((machine.id, machine) for machine in page.machines)
            rejected.update((each, str(error)) for each, error in page.rejected.items())
            name = name or page.provider_name
    finally:
        await provider.close()
    return ProviderView(name, machines, rejected)


async def read_coordinator(
    replicas: Sequence[str], identity: Identity | None
) -> tuple[CoordinatorView, Sequence[str]]:
    """The leader's lists, and the addresses of the providers that shards have reported.
    BigFleetError if no replica leads.
    """
    async with LeaderClient(replicas, identity) as client:
        shards = await client.call("ListShards", wire.ListShardsRequest())
        domains = await client.call("ListDomainAssignments", wire.ListDomainAssignmentsRequest())
        clusters = await client.call("ListClusterAssignments", wire.ListClusterAssignmentsRequest())
        quotas = await client.call("ListQuotas", wire.ListQuotasRequest())
        providers = await client.call("ListProviders", wire.ListProvidersRequest())
        reports = await client.call("ListShardReports", wire.ListShardReportsRequest())
    view = CoordinatorView(
        shards={each.shard_id: each.address for each in shards.shards},
        domains={
            _domain(each): DomainRow(each.shard_id, each.state) for each in domains.assignments
        },
        clusters={each.cluster_id: each.shard_id for each in clusters.assignments},
        quotas={(each.provider, each.region): dict(each.per_shard) for each in quotas.quotas},
        removing={each.cluster_id for report in reports.reports for each in report.removals},
    )
    return view, [each.address for each in providers.providers if each.address]


def _domain(row: Any) -> Domain:
    return Domain(row.topology_key, row.topology_value)
