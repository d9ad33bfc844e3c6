"""How a replica that comes later is let in by those that are there."""

from __future__ import annotations

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.settings import Settings

_PATIENCE_SECONDS = 30.0


async def ask_for_admission(settings: Settings) -> None:
    """Returns once the leader has this replica among its members; at once if it ever was.

    Unavailable when none of `settings.join` leads, BigFleetError when the leader refuses.
    """
    if settings.member().data.exists():
        return
    request = wire.JoinRaftClusterRequest(
        node_id=settings.node_id,
        raft_address=settings.peers[settings.node_id],
        raft_addresses=settings.peers.values(),
    )
    async with LeaderClient(settings.join, settings.identity) as client:
        await client.call("JoinRaftCluster", request, _PATIENCE_SECONDS)
