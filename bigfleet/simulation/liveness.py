"""Checks of worlds with a permanent fault: others are served, and retries back off."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator

from bigfleet.services.shard.sessions.session import ANSWER_TIMEOUT_SECONDS
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.convergence import unserved_workloads
from bigfleet.simulation.runtime.permanent_faults import offering_of
from bigfleet.simulation.story import StoryEvent
from bigfleet.simulation.world import World

# A cluster gets an available machine within this time, whatever fails elsewhere.
SERVED_WITHIN_SECONDS = 600.0
_POLL_INTERVAL_SECONDS = 20.0
# As in `services.shard.fleet.backoff`: the first retry interval.
_MIN_BACKOFF_SECONDS = 30.0


class Liveness:
    """Watches the clusters without a permanent fault; `problems` are sentences about those that
    were not served in time.
    """

    def __init__(self, world: World) -> None:
        self.problems: list[str] = []
        self._world = world
        self._since: dict[tuple[str, str], float] = {}

    async def watch(self) -> None:
        """Poll until cancelled."""
        sound = [c for c in self._world.clusters.values() if c.name not in self._broken_clusters]
        while True:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
            for cluster in sound:
                self._check(cluster)

    @property
    def _broken_clusters(self) -> set[str]:
        return set(self._world.spec.broken.clusters)

    def _check(self, cluster: SimulatedCluster) -> None:
        now = self._world.clock.unix_seconds()
        waiting = {
            (cluster.name, name): free for name, free in unserved_workloads(self._world, cluster)
        }
        for key in [key for key in self._since if key[0] == cluster.name and key not in waiting]:
            del self._since[key]
        for key, machine_id in waiting.items():
            since = self._since.setdefault(key, now)
            if now - since > SERVED_WITHIN_SECONDS:
                self._since[key] = math.inf  # told once
                self.problems.append(
                    f"pods of {key[1]} in {cluster.name} have waited for "
                    f"{SERVED_WITHIN_SECONDS:.0f} s beside machines that would take them, now "
                    f"{machine_id}"
                )


class Attempts:
    """Counts attempts that a permanent fault makes futile, from now on."""

    def __init__(self, world: World) -> None:
        self._world, self._from = world, len(world.story.events)
        sold_out = world.spec.broken.sold_out
        self._sold_out = {m.id for m in world.spec.machines if offering_of(m) == sold_out}

    def problems(self, seconds: float) -> Iterator[str]:
        """Things that were attempted too often in so many seconds, as sentences."""
        tries: Counter[str] = Counter()
        overdue_seconds: dict[str, float] = {}
        for entry in self._world.story.events[self._from :]:
            for what in self._futile(entry):
                if entry.at_seconds >= overdue_seconds.get(what, 0.0):
                    tries[what] += 1
                    # Until its answer is overdue, an operator is not known to be silent.
                    if entry.event == "bootstrap-requested":
                        overdue_seconds[what] = entry.at_seconds + ANSWER_TIMEOUT_SECONDS
        for what, times in tries.items():
            if times > max_attempts(seconds):
                yield f"{what} {times} times in {seconds:.0f} s"

    def _futile(self, entry: StoryEvent) -> Iterator[str]:
        """The attempt that the entry records, if it cannot succeed."""
        machine, cluster = entry.fields.get("machine"), entry.fields.get("cluster")
        broken = self._world.spec.broken
        # What fails there says nothing of the machine, so each has a backoff of its own.
        whom = f" for {cluster}" if cluster and cluster == broken.unready_cluster else ""
        if entry.event == "create-sent" and machine in self._sold_out:
            yield f"{machine}, which is sold out, was ordered"
        elif entry.event == "create-sent" and machine == broken.machine:
            yield f"{machine}, which never boots, was bought{whom}"
        elif entry.event == "configure-sent" and machine == broken.machine:
            yield f"{machine}, which never boots, was booted{whom}"
        elif entry.event == "configure-sent" and cluster == broken.unready_cluster:
            yield f"{machine} was booted into {cluster}, where none becomes Ready,"
        elif entry.event == "bootstrap-requested" and cluster == broken.silent_operator:
            yield f"the operator of {cluster}, which never answers, was asked"


def max_attempts(seconds: float) -> int:
    """The attempts allowed in so many seconds with exponential backoff."""
    return 2 + math.ceil(math.log2(1 + seconds / _MIN_BACKOFF_SECONDS))
