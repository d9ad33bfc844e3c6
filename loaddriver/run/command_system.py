"""An autoscaler under test that the profile starts by command lines, one per cluster.

Commands get the environment of the harness, with KUBECONFIG for their cluster, SCALETEST_CLUSTER
with its name and SCALETEST_FLEET, a file with the profile's machines, a JSON object in each line.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loaddriver.profile.settings import CommandSettings
from loaddriver.sizing.inventory import InventoryMachine, save_inventory
from loaddriver.substrates.base import Cluster, Endpoint, Substrate
from loaddriver.substrates.processes import Process, Supervisor, start_failure
from loaddriver.substrates.reaper.cleanup import removal_file, write_removal

SYSTEM = "system"
_POLL_INTERVAL_SECONDS = 1.0
_GRACE_SECONDS = 10.0


@dataclass
class CommandNodeSource:
    """Runs the commands of `settings`; `scratch` is deleted at the end of the run.

    What keeps running is a child of `supervisor`, which reports an early exit; logs are those of
    the run, as `<cluster>/system.log`.
    """

    settings: CommandSettings
    machines: Sequence[InventoryMachine]
    supervisor: Supervisor
    environment: Mapping[str, str]
    scratch: Path
    logs: Path
    _started: list[Cluster] = field(default_factory=list)

    @property
    def description(self) -> str:
        """What is started."""
        line = self.settings.start
        return f"starting in each cluster: {line}" if line else "the clusters have their autoscaler"

    async def start(
        self, substrate: Substrate, clusters: Sequence[Cluster]
    ) -> Mapping[str, Endpoint]:
        """Start it in each cluster, and wait until it is ready. It has no roles of BigFleet's."""
        save_inventory(self.machines, self._fleet)
        for cluster in clusters:
            if not substrate.capabilities.own_clusters:
                self._announce_removal(cluster)
            self._started.append(cluster)
        await asyncio.gather(*(self._start_in(cluster) for cluster in clusters))
        return {}

    async def stop(self) -> None:
        """End what runs, then run the stop command in each cluster. Raises SubstrateError."""
        for cluster in self._started:
            running = self.supervisor.running(_name(cluster, SYSTEM))
            await self.supervisor.stop(running, _GRACE_SECONDS)
        started, self._started = self._started, []
        if self.settings.stop is not None:
            stops = (self._run_to_its_end(c, "stop", self.settings.stop) for c in started)
            await asyncio.gather(*stops)
            for cluster in started:
                self._removal(cluster).unlink(missing_ok=True)

    async def _start_in(self, cluster: Cluster) -> None:
        process: Process | None = None
        if self.settings.start is not None:
            if self.settings.stop is not None:
                await self._run_to_its_end(cluster, "start", self.settings.start)
            else:
                process = self._spawn(cluster, SYSTEM, self.settings.start)
        if self.settings.ready is not None:
            await self._until_ready(cluster, self.settings.ready, process)

    async def _until_ready(self, cluster: Cluster, line: str, process: Process | None) -> None:
        deadline = asyncio.get_running_loop().time() + self.settings.ready_seconds
        while True:
            probe = self._spawn(cluster, "ready", line)
            self.supervisor.expect_exit(probe.name)
            left = deadline - asyncio.get_running_loop().time()
            if not await probe.wait_at_most(max(left, 0.0)):
                await self.supervisor.stop([probe], 0.0)
            if probe.returncode == 0:
                return
            if process is not None and process.returncode is not None:
                raise start_failure(process, "ended before it was ready")
            if asyncio.get_running_loop().time() >= deadline:
                limit = f"within command.readySeconds = {self.settings.ready_seconds:g} s"
                raise start_failure(probe, f"did not end with exit code 0 {limit}")
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def _run_to_its_end(self, cluster: Cluster, part: str, line: str) -> None:
        process = self._spawn(cluster, part, line)
        self.supervisor.expect_exit(process.name)
        if not await process.wait_at_most(self.settings.ready_seconds):
            await self.supervisor.stop([process], _GRACE_SECONDS)
            raise start_failure(
                process,
                f"did not end within command.readySeconds = {self.settings.ready_seconds:g} s",
            )
        if process.returncode != 0:
            raise start_failure(process, f"ended with exit code {process.returncode}")

    def _spawn(self, cluster: Cluster, part: str, line: str) -> Process:
        name = _name(cluster, part)
        log = self.logs / f"{name}.log"
        return self.supervisor.start(name, shlex.split(line), log, self._environment_of(cluster))

    def _environment_of(self, cluster: Cluster) -> dict[str, str]:
        return {
            **self.environment,
            "KUBECONFIG": str(cluster.kubeconfigs["admin"]),
            "SCALETEST_CLUSTER": cluster.name,
            "SCALETEST_FLEET": str(self._fleet),
        }

    def _announce_removal(self, cluster: Cluster) -> None:
        """If the harness is killed, its reaper runs the stop command in a cluster that remains."""
        if self.settings.stop is not None:
            here = ["env", "-C", os.getcwd(), *shlex.split(self.settings.stop)]
            write_removal(self.scratch, here, self._environment_of(cluster), _part(cluster))

    def _removal(self, cluster: Cluster) -> Path:
        return removal_file(self.scratch, _part(cluster))

    @property
    def _fleet(self) -> Path:
        return self.scratch / "fleet.jsonl"


def _name(cluster: Cluster, part: str) -> str:
    return f"{cluster.name}/{part}"


def _part(cluster: Cluster) -> str:
    return f"1-system-{cluster.name}"
