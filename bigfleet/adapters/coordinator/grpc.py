"""A shard's gRPC client of the coordinator."""

from __future__ import annotations

from collections.abc import Sequence

from bigfleet.adapters.coordinator.client import LeaderConnection
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2 import ClaimEpochRequest

CALL_SECONDS = 2.0


class GrpcCoordinator:
    """A `ports.coordinator.Coordinator`: the replicas at `addresses` (HOST:PORT)."""

    def __init__(self, addresses: Sequence[str], identity: Identity | None = None) -> None:
        self._connection = LeaderConnection(addresses, identity)

    async def report(self, report: wire.ShardReport) -> wire.ReportAck:
        """See `ports.coordinator.Coordinator`."""
        return await self._connection.call_leader(
            lambda stub: stub.ReportShard(report, timeout=CALL_SECONDS)
        )

    async def claim_epoch(self, shard_id: str) -> int:
        """See `ports.coordinator.Coordinator`."""
        request = ClaimEpochRequest(shard_id=shard_id)
        answer = await self._connection.call_leader(
            lambda stub: stub.ClaimEpoch(request, timeout=CALL_SECONDS)
        )
        return int(answer.shard_epoch)

    async def resolve(
        self, cluster: str, shard_id: str, *, assigned_only: bool = False
    ) -> wire.ResolveClusterResponse:
        """See `ports.coordinator.Coordinator`."""
        request = wire.ResolveClusterRequest(
            cluster_id=cluster, asking_shard_id=shard_id, assigned_only=assigned_only
        )
        return await self._connection.call_leader(
            lambda stub: stub.ResolveCluster(request, timeout=CALL_SECONDS)
        )

    async def close(self) -> None:
        """Close all channels."""
        await self._connection.close()
