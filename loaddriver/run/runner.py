"""One run: starts everything, plays the load, judges, and takes everything down again."""

from __future__ import annotations

import asyncio
import errno
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigfleet.api.install import install
from bigfleet.api.kube.client import NO_ANSWER, ApiError, KubeClient
from bigfleet.model.errors import BigFleetError
from loaddriver.errors import ExitCode, InfrastructureError, LoaddriverError
from loaddriver.inventory import save_inventory
from loaddriver.judge.facts import Accident
from loaddriver.judge.schema import Summary
from loaddriver.live import View
from loaddriver.load import LoadProcess
from loaddriver.load_files import endpoint
from loaddriver.record.watching import now_micros
from loaddriver.run.anchoring import Anchoring
from loaddriver.run.conclusion import Evidence, conclude
from loaddriver.run.fleet import SHARD, start_fleet
from loaddriver.run.folder import point_latest
from loaddriver.run.guarding import guarded
from loaddriver.run.options import RunOptions
from loaddriver.run.pace import Pace
from loaddriver.run.phases import Course, Phases
from loaddriver.run.prepared import Prepared
from loaddriver.run.scrape import components, shortfalls
from loaddriver.run.watchers import Watchers
from loaddriver.substrates.base import Cluster, Death, Endpoint, Substrate
from loaddriver.substrates.processes import Process, Supervisor
from loaddriver.substrates.runscope import RunScope

READY = "up; Ctrl-C or `make down` takes everything down"
_LOCUST = "locust"
_SAID_LINES = 5
_LOOK_SECONDS = 2.0


@dataclass
class Runner:
    """The parts of one run, and what is known of it so far."""

    options: RunOptions
    prepared: Prepared
    substrate: Substrate
    scope: RunScope
    folder: Path
    view: View
    watchers: Watchers = field(default_factory=Watchers)
    anchoring: Anchoring = field(default_factory=Anchoring)
    clusters: Sequence[Cluster] = ()
    load: LoadProcess | None = None
    course: Course = field(default_factory=Course)
    roles: Mapping[str, Endpoint] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)
    started_micros: int = field(default_factory=now_micros)

    def __post_init__(self) -> None:
        self._own = Supervisor(self.scope.run_id)
        self._pace = Pace(self.prepared.profile)

    async def run(self) -> Summary:
        """Everything from the first process to the written report."""
        try:
            accident = await self._accident_of(
                self._as_long_as_all_lives(self._measured(), self._follow_shortfalls())
            )
            summary = await _undisturbed(self._conclude(accident))
            if self.options.keep and accident is None:
                await self._keep(summary)
            return summary
        finally:
            await self._stop()

    async def hold(self) -> Accident | None:
        """Start everything but the load and keep it up; what ended it, if not a request to end."""
        try:
            self.course.phase = "held up"
            accident = await self._accident_of(self._as_long_as_all_lives(self._held()))
        finally:
            await self._stop()
        wanted = accident is not None and accident.exit_code is ExitCode.INTERRUPTED
        return None if wanted else accident

    async def _keep(self, summary: Summary) -> None:
        self.view.say(f"{summary.verdict}; the report: {self.folder / 'report.html'}")
        end = await self._accident_of(self._as_long_as_all_lives(self._kept()))
        if end is not None and end.exit_code is not ExitCode.INTERRUPTED:
            self.view.say(end.sentence)

    async def _as_long_as_all_lives(
        self, work: Coroutine[Any, Any, None], *guards: Coroutine[Any, Any, None]
    ) -> None:
        await guarded(work, _raise_death(self.substrate), _raise_death(self._own), *guards)

    async def _held(self) -> None:
        await self._start()
        await self._kept()

    async def _kept(self) -> None:
        """Until interrupted, as `make down` does."""
        for cluster in self.clusters:
            path = cluster.kubeconfigs["admin"]
            self.view.say(f"  {cluster.name}: kubectl --kubeconfig {path} get nodes")
        self.view.say(READY)
        await asyncio.Event().wait()

    async def _stop(self) -> None:
        self.view.say("stopping")
        await self._own.stop(self._own.running(), 1.0)
        await self.substrate.stop()

    async def _measured(self) -> None:
        await self._start()
        await self.watchers.start(self.clusters)
        if self.prepared.profile.settings.anchors == "on":
            await self.anchoring.start(self.clusters, self.prepared.same_rack_groups())
        await self._play(self.clusters)
        self.components = await components(self.roles.values())

    async def _start(self) -> None:
        names = self.prepared.cluster_names
        self.view.say(f"starting {len(names)} control plane{'s' * (len(names) > 1)}")
        self.clusters = await self.substrate.start_clusters(names)
        await asyncio.gather(*(_install(cluster) for cluster in self.clusters))
        self.view.say("starting BigFleet: provider, shard; operator and pod controller per cluster")
        inventory = self.scope.data_directory / "inventory.jsonl"
        save_inventory(self.prepared.machines, inventory)
        self.roles = await start_fleet(
            self.substrate,
            self.prepared.profile.settings,
            self.clusters,
            inventory,
            self.scope.data_directory,
            self._journal,
        )

    async def _play(self, clusters: Sequence[Cluster]) -> None:
        settings, plan = self.prepared.profile.settings, self.prepared.plan
        self._load_folder.mkdir(mode=0o700)
        endpoints = [endpoint(c.name, c.kubeconfigs["load-driver"]) for c in clusters]
        self.load = LoadProcess(plan, endpoints, self._load_folder)
        await self.load.start(self._spawn)
        phases = Phases(plan, settings.ramp, settings.soak, self.load, self.watchers, self._show)
        self.course = phases.course
        await guarded(phases.play(), self.watchers.failed(), self.anchoring.failed())
        self._own.expect_exit(_LOCUST)
        await self.load.finish()

    async def _spawn(
        self, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        environment = {**self.options.child_environment(), **variables}
        return self._own.start(name, command, self.folder / "logs" / f"{name}.log", environment)

    async def _accident_of(self, steps: Coroutine[Any, Any, None]) -> Accident | None:
        """What ended the run early, if anything did."""
        try:
            await steps
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return Accident(ExitCode.INTERRUPTED, f"Interrupted ({self.course.phase}).")
        except LoaddriverError as error:
            return Accident(error.exit_code, str(error))
        except (BigFleetError, ApiError, *NO_ANSWER) as error:
            return Accident(ExitCode.INFRASTRUCTURE, _plain(error))
        except Exception as error:  # noqa: BLE001  a bug of ours must still end in a report
            (self.folder / "logs" / "runner-bug.txt").write_text(traceback.format_exc())
            return Accident(
                ExitCode.HARNESS_BUG,
                f"A bug in the harness: {error!r}; see logs/runner-bug.txt and please report it.",
            )
        return None

    async def _conclude(self, accident: Accident | None) -> Summary:
        groups = await self.anchoring.finish()
        summary = conclude(
            Evidence(
                prepared=self.prepared,
                substrate=self.substrate.name,
                versions=self.substrate.versions(),
                folder=self.folder,
                load_folder=self._load_folder,
                journal=self._journal,
                started_micros=self.started_micros,
                course=self.course,
                load=self.load.progress() if self.load else None,
                observed=await self.watchers.finish(),
                groups=groups,
                components=self.components,
                accident=accident,
            )
        )
        point_latest(self.folder)
        return summary

    async def _follow_shortfalls(self) -> None:
        """Keep the live view's one number that only the shard knows."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if SHARD in self.roles:
                self._pace.shortfalls = await shortfalls(self.roles[SHARD])

    def _show(self) -> None:
        self.view.show(self._pace.progress(self.course, self.watchers))

    @property
    def _journal(self) -> Path:
        return self.folder / "logs" / "machines.jsonl"

    @property
    def _load_folder(self) -> Path:
        return self.scope.data_directory / "load"


async def _undisturbed(work: Coroutine[Any, Any, Summary]) -> Summary:
    """Await `work` to its end: what was measured is judged and written even when asked to stop."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() or current is None:
                raise
            current.uncancel()
    return task.result()


async def _raise_death(of: Substrate | Supervisor) -> None:
    raise InfrastructureError(_obituary(await of.first_death()))


async def _install(cluster: Cluster) -> None:
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        await install(client)


def _obituary(death: Death) -> str:
    said = "\n".join(f"  {line}" for line in death.last_lines[-_SAID_LINES:])
    return f"{death.sentence}{f' It said last:{chr(10)}{said}' if said else ''}"


def _plain(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"The disk is full: {error.filename or 'while writing results'}."
    return str(error) or repr(error)
