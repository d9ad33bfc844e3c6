"""One cluster's recorder: its audit log and its watches, from before the load until after it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from bigfleet.api.kube.client import KubeClient
from loaddriver.manifests import STEP_LABEL
from loaddriver.record.audit import AuditReader, AuditStamps, PodListener
from loaddriver.record.tail import Tail
from loaddriver.record.tally import Deaf, Tally
from loaddriver.record.watching import ClusterWatch, WatchStamps, now_micros


@dataclass(frozen=True)
class Observations:
    """What one cluster's recorder holds when observation has ended at `ended_micros`.

    `audit` is None where the API server's log is not ours to read; `audit_restarts` counts how
    often the log was cut back under our hands.
    """

    cluster: str
    audit: AuditStamps | None
    watch: WatchStamps
    watch_resumed: int
    watch_listed: int
    audit_restarts: int
    ended_micros: int


class ClusterRecorder:
    """Records from `run` on until it is cancelled; `finish` then reads what is left."""

    def __init__(self, cluster: str, client: KubeClient, audit_log: Path | None) -> None:
        self.cluster = cluster
        self.tally = Tally()
        self._audit: AuditReader | None = None
        self._tail: Tail | None = None
        listener: PodListener = self.tally
        if audit_log is not None:
            self._audit = AuditReader(STEP_LABEL, self.tally)
            self._tail = Tail(audit_log, self._audit.take)
            listener = Deaf()
        self._watch = ClusterWatch(client, WatchStamps(listener))

    async def run(self) -> None:
        """Follow everything until cancelled. Start it before the first request of the load."""
        async with asyncio.TaskGroup() as following:
            following.create_task(self._watch.follow_pods())
            following.create_task(self._watch.follow_nodes())
            if self._tail is not None:
                following.create_task(self._tail.follow())

    def nodes(self) -> tuple[int, int]:
        """Nodes that exist now, and how many of them are ready."""
        there = [n for n in self._watch.stamps.nodes.values() if n.deleted_micros is None]
        return len(there), sum(node.ready for node in there)

    async def started(self) -> None:
        """Return once both watches have listed: only then may the load start."""
        await self._watch.listed_once()

    def finish(self) -> Observations:
        """Read the log to its end and hand over everything. `run` must have ended before."""
        ended_micros = now_micros()
        if self._tail is not None:
            self._tail.finish()
        return Observations(
            cluster=self.cluster,
            audit=self._audit.stamps if self._audit else None,
            watch=self._watch.stamps,
            watch_resumed=self._watch.resumed,
            watch_listed=self._watch.listed,
            audit_restarts=self._tail.restarts if self._tail else 0,
            ended_micros=ended_micros,
        )
