"""The measured part of a run: the load, recorders, anchors and self-audit."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bigfleet.kube.client import KubeClient
from loaddriver.anchors.controller import AnchorController
from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.fedhpa.federation_run import FederationRun
from loaddriver.judge.facts import HarnessHealth
from loaddriver.judge.gangs import GroupKey
from loaddriver.load.commands import LoadPlace
from loaddriver.load.files import cluster_endpoint
from loaddriver.load.process import LoadProcess
from loaddriver.load.progress import LoadProgress
from loaddriver.load.workers import WorkerRecord
from loaddriver.record.cluster_watch import Reader
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import now_micros
from loaddriver.run.failures import guarded, raise_worker_death
from loaddriver.run.fleet_changes import FleetChanges
from loaddriver.run.inputs import RunInputs
from loaddriver.run.load_phases import LoadPhases, RunProgress
from loaddriver.run.recorders import ClusterRecorders
from loaddriver.run.selfaudit import SelfAuditor
from loaddriver.sizing.market import UNCHANGED, PlayedMarket
from loaddriver.substrates.base import Cluster, UnexpectedExit
from loaddriver.substrates.credentials import LOAD_DRIVER
from loaddriver.substrates.processes import Process, Supervisor


@dataclass
class AnchorControllers:
    """The anchor controllers of all clusters, running from `start` to `stop`."""

    _controllers: dict[str, AnchorController] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def prepare(self, clusters: Sequence[Cluster], planned: Mapping[GroupKey, int]) -> None:
        """Create controllers for all clusters with planned groups.

        The watches of these clusters must be passed to `readers`.
        """
        for cluster in clusters:
            if not any(name == cluster.name for name, _ in planned):
                continue  # no group here
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs[LOAD_DRIVER])
            await self._clients.enter_async_context(client)
            groups = {
                group: size for (name, group), size in planned.items() if name == cluster.name
            }
            self._controllers[cluster.name] = AnchorController(client, cluster.name, groups)

    @property
    def readers(self) -> Mapping[str, Reader]:
        """The readers of each cluster's watch events, by cluster."""
        return self._controllers

    def start(self) -> None:
        """Start to anchor groups."""
        for anchors in self._controllers.values():
            self._tasks.append(asyncio.create_task(anchors.run(self._stop)))

    async def failed(self) -> None:
        """Wait for a controller to fail and raise its error."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def stop(self) -> None:
        """Stop all controllers."""
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._clients.aclose()

    def outcomes(self) -> list[GroupOutcome]:
        """The outcome of each group so far; empty if anchors are off."""
        return [each for anchors in self._controllers.values() for each in anchors.outcomes()]


# Effectively never during a run.
_OLD_GENERATION_ROUNDS = 1_000_000_000


@contextmanager
def full_collections_paused() -> Iterator[None]:
    """Pause full garbage collections; young generations are still collected.

    A run keeps records of every pod, millions of objects that are never garbage. A full collection
    blocks the event loop for seconds where cores are busy, so that load steps are released late.
    """
    young, middle, old = gc.get_threshold()
    gc.collect()
    gc.set_threshold(young, middle, _OLD_GENERATION_ROUNDS)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


@dataclass(frozen=True)
class MeasurementResult:
    """What was recorded; `load` and `harness_health` are None if the load never started. `market`
    is what prices and supply did; `load_workers` is empty if one process played the load.
    """

    observed: Sequence[Observations]
    groups: Sequence[GroupOutcome]
    load: LoadProgress | None
    harness_health: HarnessHealth | None
    market: PlayedMarket = UNCHANGED
    load_workers: Sequence[WorkerRecord] = ()


@dataclass(frozen=True)
class LoadEnvironment:
    """How the load is started: supervisor, environment and folders. Its workers join at `listen`,
    HOST:PORT; if that is empty, they are started here. `first_worker_exit` waits for the end of
    one that runs elsewhere.
    """

    supervisor: Supervisor
    environment: Mapping[str, str]
    logs: Path
    folder: Path
    first_worker_exit: Callable[[], Awaitable[UnexpectedExit]]
    listen: str = ""


class Measurement:
    """Plays one plan on running clusters. `run_progress` has the progress."""

    def __init__(
        self, inputs: RunInputs, load_environment: LoadEnvironment, auditor: SelfAuditor
    ) -> None:
        self._inputs, self._load_environment, self._auditor = inputs, load_environment, auditor
        self._anchor_controllers = AnchorControllers()
        self._load: LoadProcess | None = None
        self._self_audit: HarnessHealth | None = None
        self._fleet_changes: FleetChanges | None = None
        self.recorders = ClusterRecorders()
        self.run_progress = RunProgress()

    async def play(
        self,
        clusters: Sequence[Cluster],
        on_progress: Callable[[], None],
        federation_run: FederationRun | None,
        fleet_changes: FleetChanges | None = None,
    ) -> None:
        """Play from the first watch to the last request of the load. Raises what ended it early."""
        if self._inputs.profile.settings.anchors == "on":
            await self._anchor_controllers.prepare(clusters, self._inputs.same_rack_groups())
        await self.recorders.start(clusters, self._anchor_controllers.readers)
        self._anchor_controllers.start()
        self._fleet_changes = fleet_changes
        load = await self._start_load(clusters)
        settings = self._inputs.profile.settings
        phases = LoadPhases(
            self._inputs.plan, settings.ramp, settings.soak, load, self.recorders, on_progress
        )
        self.run_progress = phases.run_progress
        try:
            with full_collections_paused():
                await guarded(
                    phases.play(),
                    self.recorders.failed(),
                    self._anchor_controllers.failed(),
                    self._auditor.watch(),
                    self._auditor.remote.watch(),
                    load.failed(),
                    raise_worker_death(self._load_environment.first_worker_exit),
                    *(self._federation(federation_run) if federation_run else ()),
                    *([self._change(fleet_changes)] if fleet_changes else ()),
                )
        finally:
            self._self_audit = self._auditor.end()
        for name in load.process_names:
            self._load_environment.supervisor.expect_exit(name)
        await self._auditor.remote.end()
        await load.finish()

    def _federation(self, federation_run: FederationRun) -> list[Coroutine[Any, Any, None]]:
        run_progress = self.run_progress

        def show(phase: str) -> None:
            run_progress.detail = f"federation: {phase}" if phase else ""

        return [federation_run.play(run_progress.soak_begun, show), federation_run.failed()]

    async def _change(self, fleet_changes: FleetChanges) -> None:
        run_progress = self.run_progress

        def show(what: str) -> None:
            run_progress.detail = what

        def began_micros() -> int:
            return run_progress.soak_started_micros or now_micros()

        await fleet_changes.play(run_progress.soak_begun, show, began_micros)

    async def finish(self) -> MeasurementResult:
        """Stop recording and return the result; safe if nothing was started."""
        await self._anchor_controllers.stop()
        workers = self._load.workers() if self._load else ()
        health, remote = self._self_audit, self._auditor.remote.use
        if health is not None:
            health = replace(health, load_workers=workers, cpu=replace(health.cpu, remote=remote))
        return MeasurementResult(
            observed=await self.recorders.finish(),
            groups=self._anchor_controllers.outcomes(),
            load=self._load.progress() if self._load else None,
            harness_health=health,
            load_workers=workers,
            market=self._fleet_changes.played_market if self._fleet_changes else UNCHANGED,
        )

    async def _start_load(self, clusters: Sequence[Cluster]) -> LoadProcess:
        self._load_environment.folder.mkdir(mode=0o700)
        endpoints = [cluster_endpoint(c.name, c.kubeconfigs[LOAD_DRIVER]) for c in clusters]
        workers = self._inputs.profile.settings.load.workers
        place = LoadPlace(workers, self._load_environment.listen)
        self._load = LoadProcess(self._inputs.plan, endpoints, self._load_environment.folder, place)
        await self._load.start(self._spawn)
        await self._auditor.remote.begin()
        self._auditor.begin()
        return self._load

    async def _spawn(
        self, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        load_environment = self._load_environment
        environment = {**load_environment.environment, **variables}
        return load_environment.supervisor.start(
            name, command, load_environment.logs / f"{name}.log", environment
        )
