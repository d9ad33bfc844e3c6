"""The measured part of a run: the load, and everything that watches what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.fedhpa.federation_run import FederationRun
from loaddriver.judge.facts import HarnessHealth
from loaddriver.load.files import cluster_endpoint
from loaddriver.load.process import LoadProcess, LoadProgress
from loaddriver.record.recorder import Observations
from loaddriver.run.anchoring import AnchorControllers
from loaddriver.run.collecting import full_collections_paused
from loaddriver.run.guarding import guarded
from loaddriver.run.inputs import RunInputs
from loaddriver.run.load_phases import LoadPhases, RunProgress
from loaddriver.run.recorders import ClusterRecorders
from loaddriver.run.selfaudit import SelfAuditor
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.processes import Process, Supervisor

_LOCUST = "locust"


@dataclass(frozen=True)
class MeasurementResult:
    """All that was seen; `load` and `harness_health` are None where it did not come to the load."""

    observed: Sequence[Observations]
    groups: Sequence[GroupOutcome]
    load: LoadProgress | None
    harness_health: HarnessHealth | None


@dataclass(frozen=True)
class LoadEnvironment:
    """Where the load process lives: who starts it, with which variables, and its folders."""

    supervisor: Supervisor
    environment: Mapping[str, str]
    logs: Path
    folder: Path


class Measurement:
    """One plan, played on clusters that are up. `run_progress` says how far it is."""

    def __init__(
        self, inputs: RunInputs, load_environment: LoadEnvironment, auditor: SelfAuditor
    ) -> None:
        self._prepared, self._load_environment, self._auditor = inputs, load_environment, auditor
        self._anchor_controllers = AnchorControllers()
        self._load: LoadProcess | None = None
        self._self_audit: HarnessHealth | None = None
        self.recorders = ClusterRecorders()
        self.run_progress = RunProgress()

    async def play(
        self,
        clusters: Sequence[Cluster],
        on_progress: Callable[[], None],
        federation_run: FederationRun | None,
    ) -> None:
        """From the first watch to the load's last request. Raises what ended it early."""
        if self._prepared.profile.settings.anchors == "on":
            await self._anchor_controllers.prepare(clusters, self._prepared.same_rack_groups())
        await self.recorders.start(clusters, self._anchor_controllers.readers)
        self._anchor_controllers.start()
        load = await self._start_load(clusters)
        settings = self._prepared.profile.settings
        phases = LoadPhases(
            self._prepared.plan, settings.ramp, settings.soak, load, self.recorders, on_progress
        )
        self.run_progress = phases.run_progress
        try:
            with full_collections_paused():
                await guarded(
                    phases.play(),
                    self.recorders.failed(),
                    self._anchor_controllers.failed(),
                    self._auditor.watch(),
                    *(self._federation(federation_run) if federation_run else ()),
                )
        finally:
            self._self_audit = self._auditor.end()
        self._load_environment.supervisor.expect_exit(_LOCUST)
        await load.finish()

    def _federation(self, federation_run: FederationRun) -> list[Coroutine[Any, Any, None]]:
        run_progress = self.run_progress

        def show(phase: str) -> None:
            run_progress.detail = f"federation: {phase}" if phase else ""

        return [federation_run.play(run_progress.soak_begun, show), federation_run.failed()]

    async def finish(self) -> MeasurementResult:
        """Stop watching and hand over; harmless when nothing was started."""
        await self._anchor_controllers.stop()
        return MeasurementResult(
            observed=await self.recorders.finish(),
            groups=self._anchor_controllers.outcomes(),
            load=self._load.progress() if self._load else None,
            harness_health=self._self_audit,
        )

    async def _start_load(self, clusters: Sequence[Cluster]) -> LoadProcess:
        self._load_environment.folder.mkdir(mode=0o700)
        endpoints = [cluster_endpoint(c.name, c.kubeconfigs["load-driver"]) for c in clusters]
        self._load = LoadProcess(self._prepared.plan, endpoints, self._load_environment.folder)
        await self._load.start(self._spawn)
        (process,) = self._load_environment.supervisor.running(_LOCUST)
        self._auditor.begin(process.pid)
        return self._load

    async def _spawn(
        self, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        load_environment = self._load_environment
        environment = {**load_environment.environment, **variables}
        return load_environment.supervisor.start(
            name, command, load_environment.logs / f"{name}.log", environment
        )
