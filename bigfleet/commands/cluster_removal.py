"""`bigfleet fleet remove-cluster`: removes a cluster through the shard that serves it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import grpc
import grpc.aio

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from bigfleet.api.v1alpha1 import coordinator_pb2, shardadmin_pb2
from bigfleet.api.v1alpha1.shardadmin_pb2_grpc import ShardAdminStub
from bigfleet.commands.fleet_views import state_of
from bigfleet.commands.tables import count
from bigfleet.model.errors import BigFleetError, Unavailable, UnknownObject

_CALL_TIMEOUT_SECONDS = 30.0
_ROLE = "shard"
# Errors of the request itself, with the shard's message.
_REFUSALS = {
    grpc.StatusCode.NOT_FOUND: UnknownObject,
    grpc.StatusCode.FAILED_PRECONDITION: BigFleetError,
    grpc.StatusCode.INVALID_ARGUMENT: BigFleetError,
    grpc.StatusCode.ABORTED: BigFleetError,
}


async def remove(flags: argparse.Namespace, identity: Identity | None) -> str:
    """Request the removal; return a message about what is done or would be.

    BigFleetError with the shard's message if it rejects the request, Unavailable if it does not
    respond.
    """
    address = flags.shard[0] if flags.shard else await _serving(flags, identity)
    request = shardadmin_pb2.RemoveClusterRequest(
        cluster_id=flags.cluster, force=flags.force, dry_run=flags.dry_run
    )
    plan = await _call(address, identity, request)
    if plan.served_at:  # an unserved cluster was assigned to another shard
        plan = await _call(plan.served_at, identity, request)
    if plan.served_by:
        raise Unavailable(f"cluster {flags.cluster} is moving to shard {plan.served_by}; try again")
    return _message(flags.cluster, plan, dry_run=flags.dry_run)


async def _serving(flags: argparse.Namespace, identity: Identity | None) -> str:
    """The address of the shard that serves the cluster, or of any live shard if none does."""
    async with LeaderClient(flags.coordinator, identity) as client:
        clusters = await client.call(
            "ListClusterAssignments", coordinator_pb2.ListClusterAssignmentsRequest()
        )
        listed = await client.call("ListShards", coordinator_pb2.ListShardsRequest())
    shards: Sequence[coordinator_pb2.ShardRegistryEntry] = listed.shards
    owner = {row.cluster_id: row.shard_id for row in clusters.assignments}.get(flags.cluster)
    for shard in shards:
        fits = shard.shard_id == owner if owner else state_of(shard) == "live"
        if fits and shard.address:
            return shard.address
    if owner:
        raise Unavailable(f"cluster {flags.cluster}: the address of its shard {owner} is unknown")
    raise Unavailable("no shard has reported lately; `fleet shards` lists them")


async def _call(
    address: str, identity: Identity | None, request: shardadmin_pb2.RemoveClusterRequest
) -> shardadmin_pb2.RemoveClusterResponse:
    async with transport.channel(address, identity, _ROLE) as channel:
        try:
            plan: shardadmin_pb2.RemoveClusterResponse = await ShardAdminStub(
                channel
            ).RemoveCluster(request, timeout=_CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            if (refusal := _REFUSALS.get(error.code())) is not None:
                raise refusal(error.details() or "rejected without a reason") from None
            reason = await explain_failure(error, address, identity, _ROLE)
            raise Unavailable(f"shard at {address}: {reason}") from None
    return plan


def _message(cluster: str, plan: shardadmin_pb2.RemoveClusterResponse, *, dry_run: bool) -> str:
    parts = (
        f"{count(plan.configured_machines, 'machine')} in use drained without asking its operator, "
        f"{plan.transitioning_machines:,} more in transition, "
        f"{plan.reserved_machines:,} reserved ones released once idle, "
        f"{count(plan.needs, 'need')} deleted"
    )
    if plan.already_requested:
        return f"in progress: cluster {cluster} is being removed; remaining: {parts}"
    if dry_run:
        return f"would remove cluster {cluster}: {parts}"
    return (
        f"accepted: cluster {cluster} is being removed: {parts}. Run the command again to see what "
        "remains; once nothing does, the cluster is unknown"
    )
