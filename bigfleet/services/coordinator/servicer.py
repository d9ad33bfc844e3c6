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
from bigfleet.services.coordinator import listings, snapshot, validation
from bigfleet.services.coordinator.failover_causes import MEMBER_TRAILER
from bigfleet.services.coordinator.handlers import LeaderHandlers
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader
from bigfleet.services.coordinator.leadership import Leadership
from bigfleet.services.coordinator.membership import JoiningMember, Membership

Context = grpc.aio.ServicerContext[Any, Any]
Response = TypeVar("Response")
_NANOS = 1_000_000_000

_CODES: Mapping[type[BigFleetError], grpc.StatusCode] = {
    Fenced: grpc.StatusCode.FAILED_PRECONDITION,
    IllegalTransition: grpc.StatusCode.ABORTED,
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    NotLeader: grpc.StatusCode.UNAVAILABLE,
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
        handlers: LeaderHandlers,
        membership: Membership,
        member_health: Callable[[], str],
    ) -> None:
        self._leadership, self._handlers, self._membership = leadership, handlers, membership
        self._member_health = member_health

    async def ReportShard(self, request: wire.ShardReport, context: Context) -> wire.ReportAck:
        """Soft state in, orders out."""
        return await self._as_leader(
            context, lambda leader_term: self._handlers.report(leader_term, request)
        )

    async def ClaimEpoch(
        self, request: provider_wire.ClaimEpochRequest, context: Context
    ) -> provider_wire.ClaimEpochResponse:
        """A shard that has lost its state directory begins anew."""

        async def claim_epoch(leader_term: LeaderTerm) -> provider_wire.ClaimEpochResponse:
            epoch = await self._handlers.claim_epoch(leader_term, request.shard_id)
            return provider_wire.ClaimEpochResponse(shard_epoch=epoch)

        return await self._as_leader(context, claim_epoch)

    async def ResolveCluster(
        self, request: wire.ResolveClusterRequest, context: Context
    ) -> wire.ResolveClusterResponse:
        """Whom a cluster was given to first."""

        async def resolve(leader_term: LeaderTerm) -> wire.ResolveClusterResponse:
            row, address = await self._handlers.resolve(
                leader_term, request.cluster_id, request.asking_shard_id
            )
            return wire.ResolveClusterResponse(
                shard_id=row.shard, shard_address=address, coordinator_term=leader_term.term
            )

        return await self._as_leader(context, resolve)

    async def AssignDomain(
        self, request: wire.AssignDomainRequest, context: Context
    ) -> wire.AssignDomainResponse:
        """Accepted once it is written; carried out when the shards have answered."""

        async def assign(leader_term: LeaderTerm) -> wire.AssignDomainResponse:
            name = validation.domain(request.topology_key, request.topology_value)
            await self._handlers.assign(leader_term, name, request.shard_id)
            return wire.AssignDomainResponse()

        return await self._as_leader(context, assign)

    async def UnassignDomain(
        self, request: wire.UnassignDomainRequest, context: Context
    ) -> wire.UnassignDomainResponse:
        """Its shard is told to release it; then whoever has the fewest machines gets it."""

        async def unassign(leader_term: LeaderTerm) -> wire.UnassignDomainResponse:
            name = validation.domain(request.topology_key, request.topology_value)
            await self._handlers.unassign(leader_term, name)
            return wire.UnassignDomainResponse()

        return await self._as_leader(context, unassign)

    async def RemoveShard(
        self, request: wire.RemoveShardRequest, context: Context
    ) -> wire.RemoveShardResponse:
        """A live shard releases what it has first; a silent one is barred at once."""

        async def remove(leader_term: LeaderTerm) -> wire.RemoveShardResponse:
            await self._handlers.remove(leader_term, request.shard_id)
            return wire.RemoveShardResponse()

        return await self._as_leader(context, remove)

    async def SetQuota(
        self, request: wire.SetQuotaRequest, context: Context
    ) -> wire.SetQuotaResponse:
        """Replaces the allocation of one provider's region."""

        async def set_quota(leader_term: LeaderTerm) -> wire.SetQuotaResponse:
            await self._handlers.set_quota(leader_term, request.quota)
            return wire.SetQuotaResponse()

        return await self._as_leader(context, set_quota)

    async def JoinRaftCluster(
        self, request: wire.JoinRaftClusterRequest, context: Context
    ) -> wire.JoinRaftClusterResponse:
        """A new replica; it gets its vote when it has caught up."""

        async def join(leader_term: LeaderTerm) -> wire.JoinRaftClusterResponse:
            joining_member = JoiningMember(
                request.node_id, request.raft_address, request.raft_addresses
            )
            await self._membership.join(leader_term, joining_member)
            return wire.JoinRaftClusterResponse()

        return await self._as_leader(context, join)

    async def LeaveRaftCluster(
        self, request: wire.LeaveRaftClusterRequest, context: Context
    ) -> wire.LeaveRaftClusterResponse:
        """A replica that does not come back."""

        async def leave(leader_term: LeaderTerm) -> wire.LeaveRaftClusterResponse:
            await self._membership.leave(leader_term, request.node_id)
            return wire.LeaveRaftClusterResponse()

        return await self._as_leader(context, leave)

    async def SnapshotSave(
        self,
        request: wire.SnapshotSaveRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> AsyncIterator[wire.SnapshotSaveChunk]:
        """The state at one moment."""

        async def taken(leader_term: LeaderTerm) -> tuple[snapshot.Meta, bytes]:
            leader_term.require_leadership()
            # What rows there are is fixed here; a row never changes.
            copy = dict(leader_term.registry.rows)
            data = await asyncio.to_thread(snapshot.data_of, copy)
            taken_unix_ns = int(leader_term.clock.unix_seconds() * _NANOS)
            return snapshot.meta_of(data, leader_term.term, taken_unix_ns), data

        meta, data = await self._as_leader(context, taken)
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
        rows = await self._list(
            context, lambda leader_term: listings.reports(leader_term, request.shard_id)
        )
        return wire.ListShardReportsResponse(reports=rows)

    async def _list(
        self, context: Context, rows: Callable[[LeaderTerm], Iterable[Response]]
    ) -> list[Response]:
        async def read(leader_term: LeaderTerm) -> list[Response]:
            leader_term.require_leadership()
            return [row async for row in _cooperatively(rows(leader_term))]

        return await self._as_leader(context, read)

    async def _as_leader(
        self, context: Context, act: Callable[[LeaderTerm], Awaitable[Response]]
    ) -> Response:
        leader_term = self._leadership.leader_term
        try:
            if leader_term is None:
                raise NotLeader("this replica is not the leader")
            response = await act(leader_term)
        except BigFleetError as error:
            await self._abort(context, error)
        self._set_leader_trailers(context)
        return response

    async def _abort(self, context: Context, error: BigFleetError) -> NoReturn:
        if isinstance(error, Fenced):
            metrics.coordinator_incidents.labels("stale_shard").inc()
        self._set_leader_trailers(context)
        await context.abort(_CODES[type(error)], str(error))
        raise AssertionError("abort always raises")

    def _set_leader_trailers(self, context: Context) -> None:
        leader, leader_term = self._leadership.leader, self._leadership.leader_term
        leadership_status = self._leadership.leadership_status
        term = (
            leader_term.term
            if leader_term
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


async def _cooperatively(rows: Iterable[Response]) -> AsyncIterator[Response]:
    """A list of 100,000 rows shall not keep anybody else waiting."""
    for number, row in enumerate(rows):
        if number % 500 == 499:
            await asyncio.sleep(0)
        yield row
