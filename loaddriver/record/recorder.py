"""The recorder of a cluster: its audit log and watches, from before the load until after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bigfleet.kube.client import KubeClient
from loaddriver.record.audit import AuditReader, AuditTimestamps, PodListener
from loaddriver.record.cluster_watch import GATHER_SECONDS, ClusterWatch, Reader
from loaddriver.record.live_counts import LiveCounts, NullListener
from loaddriver.record.server_counts import ServerCounts, WriteCount, server_counts
from loaddriver.record.stamp_probe import StampProbe
from loaddriver.record.tail import Tail
from loaddriver.record.watching import WatchTimestamps, now_micros


@dataclass(frozen=True)
class Observations:
    """The recording of a cluster; observation ended at `ended_micros`.

    `audit` is None without an audit log that the harness can read. `audit_restarts` counts
    truncations of the log, `audit_events_lost` the events that the server counts and the harness
    never read (None if unknown). `watch_gaps` counts expired watches, where changes may have been
    missed; `watches` is their number, `watch_listed` counts lists, `watch_resumed` reconnections
    without loss.

    `writes` has the requests to change objects that the server answered, by verb and resource, and
    `bytes_moved` the bytes of what was written, read and watched; None if unknown. `pending` has
    kube-scheduler's last message on each pod without a node, by UID. `stamp_errors_seconds` are
    measured delays of receipts by watch, where those are the timestamps.
    """

    cluster: str
    audit: AuditTimestamps | None
    watch: WatchTimestamps
    watch_resumed: int
    watch_listed: int
    audit_restarts: int
    ended_micros: int
    pending: Mapping[str, str] = field(default_factory=dict)
    watches: int = 2
    watch_gaps: int = 0
    watch_events: int = 0
    audit_events_lost: int | None = None
    writes: Mapping[str, WriteCount] | None = None
    bytes_moved: int | None = None
    stamp_errors_seconds: Sequence[float] | None = None


class ClusterRecorder:
    """Records until `run` is cancelled; `finish` then reads the rest of the log.

    Without an audit log, watches provide the timestamps: changes are not batched, and
    CapacityRequests are watched as well, if the cluster has them, and a probe in `probe_namespace`,
    if there is one, measures how late receipts are. `beside` receive every event of Pods and Nodes.
    """

    def __init__(
        self,
        cluster: str,
        client: KubeClient,
        audit_log: Path | None,
        beside: Sequence[Reader] = (),
        *,
        capacity_requests: bool = True,
        probe_namespace: str = "",
    ) -> None:
        self.cluster = cluster
        self.live_counts = LiveCounts()
        self._client = client
        self._audit: AuditReader | None = None
        self._tail: Tail | None = None
        self._counts_before: ServerCounts | None = None
        self._counts: ServerCounts | None = None
        listener: PodListener = self.live_counts
        if audit_log is not None:
            self._audit = AuditReader(self.live_counts)
            self._tail = Tail(audit_log, self._audit.take)
            listener = NullListener()
        self._timestamps = WatchTimestamps(listener)
        batch_seconds = 0.0 if audit_log is None else GATHER_SECONDS
        self._probe = StampProbe(client, probe_namespace) if probe_namespace else None
        readers = [self._timestamps, *beside, *([self._probe] if self._probe else [])]
        self._watch = ClusterWatch(client, readers, batch_seconds)
        if audit_log is None and capacity_requests:
            self._watch.add_requests(self._timestamps)

    async def run(self) -> None:
        """Record until cancelled. Start it before the first request of the load."""
        async with asyncio.TaskGroup() as following:
            for follower in self._watch.followers():
                following.create_task(follower)
            if self._tail is not None:
                following.create_task(self._tail.follow())
            if self._probe is not None:
                following.create_task(self._probe.run())

    def nodes(self) -> tuple[int, int]:
        """The numbers of existing and of ready Nodes."""
        there = [n for n in self._timestamps.nodes.values() if n.deleted_micros is None]
        return len(there), sum(node.ready for node in there)

    async def started(self) -> None:
        """Wait until every watch has listed; the load may start only then."""
        await self._watch.listed_once()
        if self._audit is not None:
            self._counts_before = await server_counts(self._client)

    async def caught_up(self) -> None:
        """Wait until the watches have received the changes that they batch."""
        await asyncio.sleep(self._watch.batch_seconds)

    async def ask_for_counts(self) -> None:
        """Read the server's counts of writes and of audit events, to compare the log with.

        Call it after the load and before `finish`; a server that does not respond is no error.
        """
        if self._audit is not None:
            self._counts = await server_counts(self._client)

    def finish(self) -> Observations:
        """Read the log to its end and return the recording. `run` must have ended before."""
        ended_micros = now_micros()
        if self._tail is not None:
            self._tail.finish()
        stats = self._watch.stats
        return Observations(
            cluster=self.cluster,
            audit=self._audit.timestamps if self._audit else None,
            watch=self._timestamps,
            watch_resumed=sum(each.resumed for each in stats),
            watch_listed=sum(each.listed for each in stats),
            audit_restarts=self._tail.restarts if self._tail else 0,
            ended_micros=ended_micros,
            pending=self._timestamps.pending(),
            watches=len(stats),
            watch_gaps=sum(each.expired for each in stats),
            watch_events=sum(each.events for each in stats),
            audit_events_lost=self._events_lost(),
            writes=self._writes(),
            bytes_moved=self._bytes_moved(),
            stamp_errors_seconds=self._probe.errors_seconds if self._probe else None,
        )

    def _events_lost(self) -> int | None:
        written = self._counts.audit_events if self._counts else None
        if self._audit is None or written is None:
            return None
        return max(0, written - self._audit.timestamps.lines)

    def _writes(self) -> dict[str, WriteCount] | None:
        if self._counts is None or self._counts_before is None:
            return None
        return self._counts.writes_since(self._counts_before)

    def _bytes_moved(self) -> int | None:
        if self._counts is None or self._counts_before is None:
            return None
        return self._counts.bytes_moved - self._counts_before.bytes_moved
