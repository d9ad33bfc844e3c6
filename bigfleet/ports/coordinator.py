"""The coordinator as a shard sees it: it keeps shards apart, and nobody waits for it."""

from __future__ import annotations

from typing import Protocol

from bigfleet.api.v1alpha1.coordinator_pb2 import (
    ReportAck,
    ResolveClusterResponse,
    ShardReport,
)


class Coordinator(Protocol):
    """Every call may raise Unavailable (no leader answered), InvalidInput (it refuses what was
    sent) and Fenced (a newer shard of this name has reported, or this one was removed: final).
    """

    async def report(self, report: ShardReport) -> ReportAck:
        """Tell how the shard stands; returns what it is to do."""
        ...

    async def claim_epoch(self, shard_id: str) -> int:
        """A new epoch for a shard that has lost its own, larger than any that it has reported; 0
        for one that never has. Unavailable, too, while a process of it is alive, or may be.
        """
        ...

    async def resolve(self, cluster: str, shard_id: str) -> ResolveClusterResponse:
        """Who serves `cluster`; `shard_id` from now on, when nobody did."""
        ...

    async def close(self) -> None:
        """Let go of connections; no call follows."""
        ...
