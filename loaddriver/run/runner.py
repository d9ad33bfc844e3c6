"""One part of a run: starts everything, plays the load, judges, takes everything down again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bigfleet.api.install import install
from bigfleet.api.kube.client import KubeClient
from loaddriver.errors import ExitCode
from loaddriver.judge.facts import Accident
from loaddriver.judge.schema import Summary
from loaddriver.live import View
from loaddriver.record.watching import now_micros
from loaddriver.run.accidents import accident_of, raise_death, undisturbed
from loaddriver.run.conclusion import Evidence, conclude
from loaddriver.run.federating import federating_of
from loaddriver.run.fleet import JOURNALS, shards_of, ways_to_ask
from loaddriver.run.guarding import guarded
from loaddriver.run.options import RunOptions
from loaddriver.run.pace import Pace
from loaddriver.run.pairing import save_profile
from loaddriver.run.part import Part
from loaddriver.run.playing import LoadPlace, Playing
from loaddriver.run.scrape import components, shortfalls
from loaddriver.run.selfaudit import SelfAuditor, machine_cpu_seconds, own_tree_cpu_seconds
from loaddriver.run.strangers import why_unknown
from loaddriver.run.supply import Supply
from loaddriver.run.unmet import counts, unmet_needs
from loaddriver.substrates.base import Cluster, Endpoint, Substrate
from loaddriver.substrates.processes import Supervisor
from loaddriver.substrates.runscope import RunScope

READY = "up; Ctrl-C or `make down` takes everything down"
# All of these cost CPU time of the cores that are being measured.
_LOOK_SECONDS = 5.0
_SHOW_SECONDS = 1.0
_PODS_ARE_STRANGERS = "here a pod's processes cannot be told from others'"


@dataclass
class Runner:
    """The pieces of one part, and what is known of it so far.

    `stop_asked` says that an interruption came when nothing was left but to finish.
    """

    options: RunOptions
    part: Part
    substrate: Substrate
    supply: Supply
    scope: RunScope
    view: View
    clusters: Sequence[Cluster] = ()
    roles: Mapping[str, Endpoint] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)
    started_micros: int = field(default_factory=now_micros)
    stop_asked: bool = False

    def __post_init__(self) -> None:
        self._shown_phase, self._shown_at = "", 0.0
        self._own = Supervisor(self.scope.run_id)
        self._pace = Pace(self.part.prepared.profile)
        self._federating = federating_of(
            self.part, self.substrate, self.scope.data_directory, self.options.child_environment()
        )
        in_pods = self.substrate.capabilities.roles_in_pods
        self._playing = Playing(
            self.part.prepared,
            LoadPlace(
                self._own,
                self.options.child_environment(),
                self.part.folder / "logs",
                self.scope.data_directory / "load",
            ),
            # What runs in pods is no child of ours, so there the whole machine counts.
            SelfAuditor(
                machine_cpu_seconds if in_pods else own_tree_cpu_seconds,
                _PODS_ARE_STRANGERS if in_pods else why_unknown(),
            ),
        )

    async def run(self) -> Summary:
        """Everything from the first process to the written report."""
        try:
            accident = await self._accident_of(
                self._as_long_as_all_lives(self._measured(), self._follow_shortfalls())
            )
            summary, self.stop_asked = await undisturbed(self._conclude(accident))
            if self.options.keep and accident is None:
                await self._keep(summary)
            return summary
        finally:
            _, asked = await undisturbed(self._stop())
            self.stop_asked |= asked

    async def hold(self) -> Accident | None:
        """Start everything but the load and keep it up; what ended it, if not a request to end."""
        try:
            self._playing.course.phase = "held up"
            accident = await self._accident_of(self._as_long_as_all_lives(self._held()))
        finally:
            await undisturbed(self._stop())
        wanted = accident is not None and accident.exit_code is ExitCode.INTERRUPTED
        return None if wanted else accident

    async def _keep(self, summary: Summary) -> None:
        self.view.say(f"{summary.verdict}; the report: {self.part.folder / 'report.html'}")
        end = await self._accident_of(self._as_long_as_all_lives(self._kept()))
        if end is not None and end.exit_code is not ExitCode.INTERRUPTED:
            self.view.say(end.sentence)

    async def _accident_of(self, steps: Coroutine[Any, Any, None]) -> Accident | None:
        logs = self.part.folder / "logs"
        return await accident_of(steps, lambda: self._playing.course.phase, logs)

    async def _as_long_as_all_lives(
        self, work: Coroutine[Any, Any, None], *guards: Coroutine[Any, Any, None]
    ) -> None:
        await guarded(work, raise_death(self.substrate), raise_death(self._own), *guards)

    async def _held(self) -> None:
        await self._start()
        await self._kept()

    async def _kept(self) -> None:
        """Until interrupted, as `make down` does."""
        for cluster in self.clusters:
            path = cluster.kubeconfigs["admin"]
            self.view.say(f"  {cluster.name}: kubectl --kubeconfig {path} get nodes")
        for line in ways_to_ask(self.roles.values()):
            self.view.say(f"  {line}")
        self.view.say(READY)
        await asyncio.Event().wait()

    async def _stop(self) -> None:
        self.view.say("stopping")
        if self._federating is not None:
            await self._federating.finish()
        await self._own.stop(self._own.running(), 1.0)
        await self.substrate.stop()

    async def _measured(self) -> None:
        save_profile(self.part.prepared.profile, self.part.folder)
        await self._start()
        await self._playing.play(self.clusters, self._show, self._federating)
        self.components = await components(self.roles.values()) if self.roles else {}

    async def _start(self) -> None:
        names = self.part.prepared.cluster_names
        self.view.say(f"starting {len(names)} control plane{'s' * (len(names) > 1)}")
        self.clusters = await self.substrate.start_clusters(names)
        await asyncio.gather(*(_install(cluster) for cluster in self.clusters))
        self.view.say(self.supply.announcement)
        self.roles = await self.supply.start(self.substrate, self.clusters)
        if self._federating is not None:
            role = await self._federating.found(self.clusters, self.view.say)
            self.roles = {**self.roles, role.name: role}

    async def _conclude(self, accident: Accident | None) -> Summary:
        unmet = await unmet_needs(shards_of(self.roles.values()))
        self.view.say("judging")
        played = await self._playing.finish()
        federated = await self._federating.finish() if self._federating else None
        evidence = Evidence(
            part=self.part,
            substrate=self.substrate.name,
            capabilities=self.substrate.capabilities,
            versions=self.substrate.versions(),
            load_folder=self.scope.data_directory / "load",
            journals=sorted((self.part.folder / "logs").glob(JOURNALS)),
            started_micros=self.started_micros,
            course=self._playing.course,
            played=played,
            components={**self.components, **counts(unmet)} if self.components else {},
            shortfalls=unmet,
            federated=federated,
            accident=accident,
        )
        return conclude(evidence)

    async def _follow_shortfalls(self) -> None:
        """Keep the live view's one number that only the shards know."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if shards := shards_of(self.roles.values()):
                self._pace.shortfalls = await shortfalls(shards)

    def _show(self) -> None:
        now, phase = time.monotonic(), self._playing.course.phase
        if phase == self._shown_phase and now < self._shown_at + _SHOW_SECONDS:
            return
        self._shown_phase, self._shown_at = phase, now
        self.view.show(self._pace.progress(self._playing.course, self._playing.watchers))


async def _install(cluster: Cluster) -> None:
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        await install(client)
