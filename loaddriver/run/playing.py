"""The measured part of a run: the load, and everything that watches what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.federated.playing import Federating
from loaddriver.judge.facts import SelfAudit
from loaddriver.load import LoadProcess, LoadProgress
from loaddriver.load_files import endpoint
from loaddriver.record.recorder import Observations
from loaddriver.run.anchoring import Anchoring
from loaddriver.run.collecting import old_objects_left_alone
from loaddriver.run.guarding import guarded
from loaddriver.run.phases import Course, Phases
from loaddriver.run.prepared import Prepared
from loaddriver.run.selfaudit import SelfAuditor
from loaddriver.run.watchers import Watchers
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.processes import Process, Supervisor

_LOCUST = "locust"


@dataclass(frozen=True)
class Played:
    """All that was seen; `load` and `self_audit` are None where it did not come to the load."""

    observed: Sequence[Observations]
    groups: Sequence[GroupOutcome]
    load: LoadProgress | None
    self_audit: SelfAudit | None


@dataclass(frozen=True)
class LoadPlace:
    """Where the load process lives: who starts it, with which variables, and its folders."""

    supervisor: Supervisor
    environment: Mapping[str, str]
    logs: Path
    folder: Path


class Playing:
    """One plan, played on clusters that are up. `course` says how far it is."""

    def __init__(self, prepared: Prepared, place: LoadPlace, auditor: SelfAuditor) -> None:
        self._prepared, self._place, self._auditor = prepared, place, auditor
        self._anchoring = Anchoring()
        self._load: LoadProcess | None = None
        self._self_audit: SelfAudit | None = None
        self.watchers = Watchers()
        self.course = Course()

    async def play(
        self,
        clusters: Sequence[Cluster],
        changed: Callable[[], None],
        federating: Federating | None,
    ) -> None:
        """From the first watch to the load's last request. Raises what ended it early."""
        if self._prepared.profile.settings.anchors == "on":
            await self._anchoring.prepare(clusters, self._prepared.same_rack_groups())
        await self.watchers.start(clusters, self._anchoring.readers)
        self._anchoring.start()
        load = await self._start_load(clusters)
        settings = self._prepared.profile.settings
        phases = Phases(
            self._prepared.plan, settings.ramp, settings.soak, load, self.watchers, changed
        )
        self.course = phases.course
        try:
            with old_objects_left_alone():
                await guarded(
                    phases.play(),
                    self.watchers.failed(),
                    self._anchoring.failed(),
                    self._auditor.watch(),
                    *(self._federation(federating) if federating else ()),
                )
        finally:
            self._self_audit = self._auditor.end()
        self._place.supervisor.expect_exit(_LOCUST)
        await load.finish()

    def _federation(self, federating: Federating) -> list[Coroutine[Any, Any, None]]:
        course = self.course

        def show(phase: str) -> None:
            course.detail = f"federation: {phase}" if phase else ""

        return [federating.play(course.soak_begun, show), federating.failed()]

    async def finish(self) -> Played:
        """Stop watching and hand over; harmless when nothing was started."""
        await self._anchoring.stop()
        return Played(
            observed=await self.watchers.finish(),
            groups=self._anchoring.outcomes(),
            load=self._load.progress() if self._load else None,
            self_audit=self._self_audit,
        )

    async def _start_load(self, clusters: Sequence[Cluster]) -> LoadProcess:
        self._place.folder.mkdir(mode=0o700)
        endpoints = [endpoint(c.name, c.kubeconfigs["load-driver"]) for c in clusters]
        self._load = LoadProcess(self._prepared.plan, endpoints, self._place.folder)
        await self._load.start(self._spawn)
        (process,) = self._place.supervisor.running(_LOCUST)
        self._auditor.begin(process.pid)
        return self._load

    async def _spawn(
        self, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        place = self._place
        environment = {**place.environment, **variables}
        return place.supervisor.start(name, command, place.logs / f"{name}.log", environment)
