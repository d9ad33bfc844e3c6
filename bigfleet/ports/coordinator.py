"""The coordinator as a shard sees it: it keeps shards apart, and is never waited for."""

from __future__ import annotations

from typing import Protocol

from bigfleet.api.v1alpha1.coordinator_pb2 import (
    ReportAck,
    ResolveClusterResponse,
    ShardReport,
)


class Coordinator(Protocol):
    """Client of the coordinator.

    Every call may raise Unavailable (no leader answered), InvalidInput (the request is rejected)
    and Fenced (a newer shard of this name has reported, or this one was removed: not retryable).
    """

    async def report(self, report: ShardReport) -> ReportAck:
        """Report the shard's state; returns its instructions."""
        ...

    async def claim_epoch(self, shard_id: str) -> int:
        """A new epoch for a shard that has lost its own, larger than any it has reported; 0 if it
        has never reported. Also raises Unavailable while a process of the shard is or may be alive.
        """
        ...

    async def resolve(
        self, cluster: str, shard_id: str, *, assigned_only: bool = False
    ) -> ResolveClusterResponse:
        """The shard that serves `cluster`. If there is none, assigns the cluster to `shard_id`;
        with `assigned_only` raises UnknownObject.
        """
        ...

    async def close(self) -> None:
        """Close all connections; no call follows."""
        ...
