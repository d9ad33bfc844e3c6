"""gRPC service of the coordinator: calls the leader's handlers, maps errors to status codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import wraps
from typing import Any, NoReturn, TypeVar

import grpc.aio
import msgspec

from bigfleet.adapters.coordinator.client import LEADER_TRAILER, TERM_TRAILER
from bigfleet.api import grpc_status
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1 import provider_pb2 as provider_wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorServicer
from bigfleet.model.errors import BigFleetError, Fenced
from bigfleet.observe import metrics
from bigfleet.ports.clock import to_nanos
from bigfleet.services.coordinator import listings, snapshot, validation
from bigfleet.services.coordinator.failover_causes import MEMBER_TRAILER
from bigfleet.services.coordinator.handlers import LeaderHandlers
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader
from bigfleet.services.coordinator.leadership import Leadership
from bigfleet.services.coordinator.membership import JoiningMember, Membership
from bigfleet.services.coordinator.shards import HasLeft

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request")
Response = TypeVar("Response")
Row = TypeVar("Row")
# A long list yields to other calls after each of these.
_ROWS_AT_ONCE = 500


def _on_leader(
    call: Callable[[CoordinatorService, LeaderTerm, Request], Awaitable[Response]],
) -> Callable[[CoordinatorService, Request, Context], Awaitable[Response]]:
    """Make `call` a gRPC method that only the leader answers."""

    @wraps(call)
    async def method(self: CoordinatorService, request: Request, context: Context) -> Response:
        return await self.as_leader(context, lambda leader_term: call(self, leader_term, request))

    return method


class CoordinatorService(CoordinatorServicer):
    """`Coordinator` of one replica; only the leader answers.

    Every answer carries the trailers `bigfleet-leader` (HOST:PORT, empty when unknown),
    `bigfleet-term`, and `bigfleet-member`: the health of this replica's own etcd member.
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

    @_on_leader
    async def ReportShard(self, term: LeaderTerm, request: wire.ShardReport) -> wire.ReportAck:
        """Record a shard's report; the answer carries its instructions."""
        return await self._handlers.report(term, request)

    @_on_leader
    async def ClaimEpoch(
        self, term: LeaderTerm, request: provider_wire.ClaimEpochRequest
    ) -> provider_wire.ClaimEpochResponse:
        """Give an epoch to a shard whose state directory is empty."""
        epoch = await self._handlers.claim_epoch(term, request.shard_id)
        return provider_wire.ClaimEpochResponse(shard_epoch=epoch)

    @_on_leader
    async def ResolveCluster(
        self, term: LeaderTerm, request: wire.ResolveClusterRequest
    ) -> wire.ResolveClusterResponse:
        """Return the shard that serves a cluster, and choose one for a new cluster unless only an
        assigned one is asked for.
        """
        asking = "" if request.assigned_only else request.asking_shard_id
        row, address = await self._handlers.resolve(term, request.cluster_id, asking)
        return wire.ResolveClusterResponse(
            shard_id=row.shard, shard_address=address, coordinator_term=term.term
        )

    @_on_leader
    async def AssignDomain(
        self, term: LeaderTerm, request: wire.AssignDomainRequest
    ) -> wire.AssignDomainResponse:
        """Accepted once it is committed; carried out when the shards have acknowledged."""
        name = validation.domain(request.topology_key, request.topology_value)
        await self._handlers.assign(term, name, request.shard_id)
        return wire.AssignDomainResponse()

    @_on_leader
    async def UnassignDomain(
        self, term: LeaderTerm, request: wire.UnassignDomainRequest
    ) -> wire.UnassignDomainResponse:
        """Have the domain released; it then goes to the shard with the fewest machines."""
        name = validation.domain(request.topology_key, request.topology_value)
        await self._handlers.unassign(term, name)
        return wire.UnassignDomainResponse()

    @_on_leader
    async def RemoveShard(
        self, term: LeaderTerm, request: wire.RemoveShardRequest
    ) -> wire.RemoveShardResponse:
        """A live shard first releases its domains and clusters; a silent one is barred at once."""
        await self._handlers.remove(term, request.shard_id)
        return wire.RemoveShardResponse()

    @_on_leader
    async def SetQuota(
        self, term: LeaderTerm, request: wire.SetQuotaRequest
    ) -> wire.SetQuotaResponse:
        """Replace the allocation of one provider's region."""
        await self._handlers.set_quota(term, request.quota)
        return wire.SetQuotaResponse()

    @_on_leader
    async def JoinRaftCluster(
        self, term: LeaderTerm, request: wire.JoinRaftClusterRequest
    ) -> wire.JoinRaftClusterResponse:
        """Add a replica; it votes once it has caught up."""
        joining_member = JoiningMember(
            request.node_id, request.raft_address, request.raft_addresses
        )
        await self._membership.join(term, joining_member)
        return wire.JoinRaftClusterResponse()

    @_on_leader
    async def LeaveRaftCluster(
        self, term: LeaderTerm, request: wire.LeaveRaftClusterRequest
    ) -> wire.LeaveRaftClusterResponse:
        """Remove the replica that the request names, be it this one or another."""
        await self._membership.leave(term, request.node_id)
        return wire.LeaveRaftClusterResponse()

    async def SnapshotSave(
        self,
        request: wire.SnapshotSaveRequest,  # noqa: ARG002 - gRPC's
        context: Context,
    ) -> AsyncIterator[wire.SnapshotSaveChunk]:
        """Stream the state as of one moment."""

        async def taken(term: LeaderTerm) -> tuple[snapshot.Meta, bytes]:
            term.require_leadership()
            # Rows are immutable: a copy of the table is enough.
            copy = dict(term.registry.rows)
            data = await asyncio.to_thread(snapshot.data_of, copy)
            return snapshot.meta_of(data, term.term, to_nanos(term.clock.unix_seconds())), data

        meta, data = await self.as_leader(context, taken)
        yield wire.SnapshotSaveChunk(meta_json=msgspec.json.encode(meta))
        for chunk in snapshot.chunks(data):
            yield wire.SnapshotSaveChunk(data=chunk)

    @_on_leader
    async def ListShards(
        self, term: LeaderTerm, _: wire.ListShardsRequest
    ) -> wire.ListShardsResponse:
        """All shards that have not been removed."""
        return wire.ListShardsResponse(shards=await _rows(term, listings.shards(term)))

    @_on_leader
    async def ListDomainAssignments(
        self, term: LeaderTerm, _: wire.ListDomainAssignmentsRequest
    ) -> wire.ListDomainAssignmentsResponse:
        """All assigned domains, sorted by name."""
        rows = await _rows(term, listings.domains(term))
        return wire.ListDomainAssignmentsResponse(assignments=rows)

    @_on_leader
    async def ListClusterAssignments(
        self, term: LeaderTerm, _: wire.ListClusterAssignmentsRequest
    ) -> wire.ListClusterAssignmentsResponse:
        """All clusters with their shards, sorted by name."""
        rows = await _rows(term, listings.clusters(term))
        return wire.ListClusterAssignmentsResponse(assignments=rows)

    @_on_leader
    async def ListQuotas(
        self, term: LeaderTerm, _: wire.ListQuotasRequest
    ) -> wire.ListQuotasResponse:
        """All quotas, sorted by provider and region."""
        return wire.ListQuotasResponse(quotas=await _rows(term, listings.quotas(term)))

    @_on_leader
    async def ListProviders(
        self, term: LeaderTerm, _: wire.ListProvidersRequest
    ) -> wire.ListProvidersResponse:
        """All providers that shards have reported."""
        return wire.ListProvidersResponse(providers=await _rows(term, listings.providers(term)))

    @_on_leader
    async def ListShardReports(
        self, term: LeaderTerm, request: wire.ListShardReportsRequest
    ) -> wire.ListShardReportsResponse:
        """The latest reports that this leader received, of one shard or of all."""
        rows = await _rows(term, listings.reports(term, request.shard_id))
        return wire.ListShardReportsResponse(reports=rows)

    async def as_leader(
        self, context: Context, act: Callable[[LeaderTerm], Awaitable[Response]]
    ) -> Response:
        """Run `act` in the current term; UNAVAILABLE when this replica does not lead."""
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
        if isinstance(error, Fenced) and not isinstance(error, HasLeft):
            metrics.coordinator_incidents.labels("stale_shard").inc()
        self._set_leader_trailers(context)
        await grpc_status.abort(context, error)

    def _set_leader_trailers(self, context: Context) -> None:
        leader = self._leadership.leader
        current = self._leadership.leader_term or leader or self._leadership.leadership_status
        context.set_trailing_metadata(
            (
                (LEADER_TRAILER, leader.address if leader else ""),
                (TERM_TRAILER, str(current.term if current else 0)),
                (MEMBER_TRAILER, self._member_health()),
            )
        )


async def _rows(term: LeaderTerm, rows: Iterable[Row]) -> list[Row]:
    term.require_leadership()
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if len(found) % _ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found
