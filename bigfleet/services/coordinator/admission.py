"""How a replica that comes later is let in by those that are there."""

from __future__ import annotations

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.config import CoordinatorConfig

_JOIN_TIMEOUT_SECONDS = 30.0


async def join_cluster(config: CoordinatorConfig) -> None:
    """Returns once the leader has this replica among its members; at once if it ever was.

    Unavailable when none of `config.join` leads, BigFleetError when the leader refuses.
    """
    if config.member().data.exists():
        return
    request = wire.JoinRaftClusterRequest(
        node_id=config.node_id,
        raft_address=config.peers[config.node_id],
        raft_addresses=config.peers.values(),
    )
    async with LeaderClient(config.join, config.identity) as client:
        await client.call("JoinRaftCluster", request, _JOIN_TIMEOUT_SECONDS)
