"""The gRPC face of the coordinator: decodes, delegates to the leader's desk, says refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
import msgspec

from bigfleet.adapters.coordinator.client import LEADER_TRAILER, TERM_TRAILER
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1 import provider_pb2 as provider_wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorServicer
from bigfleet.model.errors import (
    BigFleetError,
    Fenced,
    IllegalTransition,
    InvalidInput,
    Unavailable,
    UnknownObject,
)
from bigfleet.observe import metrics
from bigfleet.services.coordinator import checks, listings, snapshot
from bigfleet.services.coordinator.desk import Desk
from bigfleet.services.coordinator.leadership import Leadership
from bigfleet.services.coordinator.membership import Membership, Newcomer
from bigfleet.services.coordinator.reign import NotLeading, Reign
from bigfleet.services.coordinator.succession import MEMBER_TRAILER

Context = grpc.aio.ServicerContext[Any, Any]
Answer = TypeVar("Answer")
_NANOS = 1_000_000_000

_CODES: Mapping[type[BigFleetError], grpc.StatusCode] = {
    Fenced: grpc.StatusCode.FAILED_PRECONDITION,
    IllegalTransition: grpc.StatusCode.ABORTED,
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    NotLeading: grpc.StatusCode.UNAVAILABLE,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    UnknownObject: grpc.StatusCode.NOT_FOUND,
    BigFleetError: grpc.StatusCode.ABORTED,
}


class CoordinatorService(CoordinatorServicer):
    """`Coordinator` of one replica; only the leader answers.

    Every answer carries the trailers `bigfleet-leader` (HOST:PORT, empty when unknown),
    `bigfleet-term`, and `bigfleet-member`: how this replica's own etcd does.
    """

    def __init__(
        self,
        leadership: Leadership,
        desk: Desk,
        membership: Membership,
        member_health: Callable[[], str],
    ) -> None:
        self._leadership, self._desk, self._membership = leadership, desk, membership
        self._member_health = member_health

    async def ReportShard(self, request: wire.ShardReport, context: Context) -> wire.ReportAck:
        """Soft state in, orders out."""
        return await self._lead(context, lambda reign: self._desk.report(reign, request))

    async def ClaimEpoch(
        self, request: provider_wire.ClaimEpochRequest, context: Context
    ) -> provider_wire.ClaimEpochResponse:
        """A shard that has lost its state directory begins anew."""

        async def begin_anew(reign: Reign) -> provider_wire.ClaimEpochResponse:
            epoch = await self._desk.begin_anew(reign, request.shard_id)
            return provider_wire.ClaimEpochResponse(shard_epoch=epoch)

        return await self._lead(context, begin_anew)

    async def ResolveCluster(
        self, request: wire.ResolveClusterRequest, context: Context
    ) -> wire.ResolveClusterResponse:
        """Whom a cluster was given to first."""

        async def resolve(reign: Reign) -> wire.ResolveClusterResponse:
            row, address = await self._desk.resolve(
                reign, request.cluster_id, request.asking_shard_id
            )
            return wire.ResolveClusterResponse(
                shard_id=row.shard, shard_address=address, coordinator_term=reign.term
            )

        return await self._lead(context, resolve)

    async def AssignDomain(
        self, request: wire.AssignDomainRequest, context: Context
    ) -> wire.AssignDomainResponse:
        """Accepted once it is written; carried out when the shards have answered."""

        async def assign(reign: Reign) -> wire.AssignDomainResponse:
            name = checks.domain(request.topology_key, request.topology_value)
            await self._desk.assign(reign, name, request.shard_id)
            return wire.AssignDomainResponse()

        return await self._lead(context, assign)

    async def UnassignDomain(
        self, request: wire.UnassignDomainRequest, context: Context
    ) -> wire.UnassignDomainResponse:
        """Its shard is told to release it; then whoever has the fewest machines gets it."""

        async def unassign(reign: Reign) -> wire.UnassignDomainResponse:
            name = checks.domain(request.topology_key, request.topology_value)
            await self._desk.unassign(reign, name)
            return wire.UnassignDomainResponse()

        return await self._lead(context, unassign)

    async def RemoveShard(
        self, request: wire.RemoveShardRequest, context: Context
    ) -> wire.RemoveShardResponse:
        """A live shard releases what it has first; a silent one is barred at once."""

        async def remove(reign: Reign) -> wire.RemoveShardResponse:
            await self._desk.remove(reign, request.shard_id)
            return wire.RemoveShardResponse()

        return await self._lead(context, remove)

    async def SetQuota(
        self, request: wire.SetQuotaRequest, context: Context
    ) -> wire.SetQuotaResponse:
        """Replaces the allocation of one provider's region."""

        async def set_quota(reign: Reign) -> wire.SetQuotaResponse:
            await self._desk.set_quota(reign, request.quota)
            return wire.SetQuotaResponse()

        return await self._lead(context, set_quota)

    async def JoinRaftCluster(
        self, request: wire.JoinRaftClusterRequest, context: Context
    ) -> wire.JoinRaftClusterResponse:
        """A new replica; it gets its vote when it has caught up."""

        async def join(reign: Reign) -> wire.JoinRaftClusterResponse:
            newcomer = Newcomer(request.node_id, request.raft_address, request.raft_addresses)
            await self._membership.join(reign, newcomer)
            return wire.JoinRaftClusterResponse()

        return await self._lead(context, join)

    async def LeaveRaftCluster(
        self, request: wire.LeaveRaftClusterRequest, context: Context
    ) -> wire.LeaveRaftClusterResponse:
        """A replica that does not come back."""

        async def leave(reign: Reign) -> wire.LeaveRaftClusterResponse:
            await self._membership.leave(reign, request.node_id)
            return wire.LeaveRaftClusterResponse()

        return await self._lead(context, leave)

    async def SnapshotSave(
        self,
        request: wire.SnapshotSaveRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> AsyncIterator[wire.SnapshotSaveChunk]:
        """The state at one moment."""

        async def taken(reign: Reign) -> tuple[snapshot.Meta, bytes]:
            reign.require()
            # What rows there are is fixed here; a row never changes.
            copy = dict(reign.registry.rows)
            data = await asyncio.to_thread(snapshot.data_of, copy)
            taken_unix_ns = int(reign.clock.unix_seconds() * _NANOS)
            return snapshot.meta_of(data, reign.term, taken_unix_ns), data

        meta, data = await self._lead(context, taken)
        yield wire.SnapshotSaveChunk(meta_json=msgspec.json.encode(meta))
        for chunk in snapshot.chunks(data):
            yield wire.SnapshotSaveChunk(data=chunk)

    async def ListShards(
        self,
        request: wire.ListShardsRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> wire.ListShardsResponse:
        """Those that have not been removed."""
        rows = await self._list(context, listings.shards)
        return wire.ListShardsResponse(shards=rows)

    async def ListDomainAssignments(
        self,
        request: wire.ListDomainAssignmentsRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> wire.ListDomainAssignmentsResponse:
        """In order of their names."""
        rows = await self._list(context, listings.domains)
        return wire.ListDomainAssignmentsResponse(assignments=rows)

    async def ListClusterAssignments(
        self,
        request: wire.ListClusterAssignmentsRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> wire.ListClusterAssignmentsResponse:
        """In order of their names."""
        rows = await self._list(context, listings.clusters)
        return wire.ListClusterAssignmentsResponse(assignments=rows)

    async def ListQuotas(
        self,
        request: wire.ListQuotasRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> wire.ListQuotasResponse:
        """In order of provider and region."""
        rows = await self._list(context, listings.quotas)
        return wire.ListQuotasResponse(quotas=rows)

    async def ListProviders(
        self,
        request: wire.ListProvidersRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> wire.ListProvidersResponse:
        """As shards have reported them."""
        rows = await self._list(context, listings.providers)
        return wire.ListProvidersResponse(providers=rows)

    async def ListShardReports(
        self, request: wire.ListShardReportsRequest, context: Context
    ) -> wire.ListShardReportsResponse:
        """What this leader has heard; of one shard, or of all."""
        rows = await self._list(context, lambda reign: listings.reports(reign, request.shard_id))
        return wire.ListShardReportsResponse(reports=rows)

    async def _list(
        self, context: Context, rows: Callable[[Reign], Iterable[Answer]]
    ) -> list[Answer]:
        async def read(reign: Reign) -> list[Answer]:
            reign.require()
            return [row async for row in _unhurried(rows(reign))]

        return await self._lead(context, read)

    async def _lead(self, context: Context, act: Callable[[Reign], Awaitable[Answer]]) -> Answer:
        reign = self._leadership.reign
        try:
            if reign is None:
                raise NotLeading("this replica is not the leader")
            answer = await act(reign)
        except BigFleetError as error:
            await self._refuse(context, error)
        self._say_who_leads(context)
        return answer

    async def _refuse(self, context: Context, error: BigFleetError) -> NoReturn:
        if isinstance(error, Fenced):
            metrics.coordinator_incidents.labels("stale_shard").inc()
        self._say_who_leads(context)
        await context.abort(_CODES[type(error)], str(error))
        raise AssertionError("abort always raises")

    def _say_who_leads(self, context: Context) -> None:
        leader, reign = self._leadership.leader, self._leadership.reign
        leadership_status = self._leadership.leadership_status
        term = (
            reign.term
            if reign
            else leader.term
            if leader
            else leadership_status.term
            if leadership_status
            else 0
        )
        context.set_trailing_metadata(
            (
                (LEADER_TRAILER, leader.address if leader else ""),
                (TERM_TRAILER, str(term)),
                (MEMBER_TRAILER, self._member_health()),
            )
        )


async def _unhurried(rows: Iterable[Answer]) -> AsyncIterator[Answer]:
    """A list of 100,000 rows shall not keep anybody else waiting."""
    for number, row in enumerate(rows):
        if number % 500 == 499:
            await asyncio.sleep(0)
        yield row
