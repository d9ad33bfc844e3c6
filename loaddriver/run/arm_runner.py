"""Runs one arm: starts everything, plays the load, judges, and stops everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bigfleet.api.install import install
from bigfleet.kube.client import KubeClient
from loaddriver.errors import ExitCode, InfrastructureError
from loaddriver.judge.facts import RunFailure
from loaddriver.judge.schema import Summary
from loaddriver.record.fleet_audit import FleetAudit
from loaddriver.record.provenance import Provenance
from loaddriver.record.watching import now_micros
from loaddriver.report.results import seal_results
from loaddriver.run import scrape
from loaddriver.run.bigfleet_roles import JOURNALS, inspect_commands, shards_of
from loaddriver.run.conclusion import Evidence, conclude
from loaddriver.run.context import RunContext, RunOptions
from loaddriver.run.failures import failure_of, guarded, raise_component_death, uninterrupted
from loaddriver.run.federation import make_federation_run
from loaddriver.run.fleet_audit import FleetAuditor
from loaddriver.run.fleet_changes import make_fleet_changes
from loaddriver.run.inputs import Arm
from loaddriver.run.live_view import View
from loaddriver.run.measurement import LoadEnvironment, Measurement
from loaddriver.run.node_source import NodeSource
from loaddriver.run.node_sources import make_node_source
from loaddriver.run.paired_run import save_profile, save_scheduler_config
from loaddriver.run.progress import ProgressReporter
from loaddriver.run.provenance import ROOT, read_provenance
from loaddriver.run.selfaudit import make_auditor
from loaddriver.substrates.base import Cluster, Endpoint, Substrate
from loaddriver.substrates.choice import make_substrate
from loaddriver.substrates.processes import Supervisor
from loaddriver.substrates.runscope import RunScope


async def measure(context: RunContext, arm: Arm) -> tuple[Summary, bool]:
    """Run to the verdict; also return whether a stop was requested while judging.

    Raises InfrastructureError if the arm cannot start.
    """
    runner = await _arm_runner(context, arm, arm.inputs.profile.settings.pods_per_cluster)
    summary = await runner.run()
    seal_results(arm.folder, summary)
    return summary, runner.stop_requested


async def hold(context: RunContext, arm: Arm) -> None:
    """Keep the clusters and BigFleet up, without load, until interrupted."""
    runner = await _arm_runner(context, arm, None)
    if (failure := await runner.hold()) is not None:
        raise InfrastructureError(failure.sentence)


async def _arm_runner(context: RunContext, arm: Arm, pods_per_cluster: int | None) -> ArmRunner:
    """A runner of one arm, for any number of pods if it is not said. Cleans up what it starts."""
    logs, options, view = arm.folder / "logs", context.options, context.view
    settings = arm.inputs.profile.settings
    scope = RunScope.within(context.lock, arm.run_id, logs)
    for sentence in scope.swept:
        view.say(sentence)
    try:
        substrate = make_substrate(
            context.prerequisites,
            scope,
            logs,
            options.child_environment(),
            pods_per_cluster=pods_per_cluster,
            resource_metrics=settings.resource_metrics and not arm.bare_of,
            bigfleet=options.bigfleet_command,
            scheduler_config=options.scheduler_config,
            before_controllers=install if settings.on_bigfleet else None,
            identities=None if arm.bare_of else settings.fleet.identities,
        )
        root = options.system.root if options.system else ROOT
        sources = (arm.inputs, context.prerequisites, root, options.bigfleet)
        provenance = partial(read_provenance, *sources)
        own = Supervisor(scope.run_id)
        source = make_node_source(context.prerequisites, options, arm, scope.data_directory, own)
        return ArmRunner(options, arm, substrate, source, scope, view, provenance, own)
    except BaseException:
        view.say(await scope.close())
        raise


READY = "up; Ctrl-C or `make down` stops everything"
# Polling costs CPU on the cores that are being measured.
_POLL_INTERVAL_SECONDS = 5.0
_DISPLAY_INTERVAL_SECONDS = 1.0


@dataclass
class ArmRunner:
    """The pieces of one part, and what is known of it so far.

    `stop_requested` says that an interruption came when nothing was left but to finish.
    """

    options: RunOptions
    arm: Arm
    substrate: Substrate
    node_source: NodeSource
    scope: RunScope
    view: View
    read_provenance: Callable[[], Provenance]
    own: Supervisor
    provenance: Provenance | None = None
    clusters: Sequence[Cluster] = ()
    roles: Mapping[str, Endpoint] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)
    started_micros: int = field(default_factory=now_micros)
    stop_requested: bool = False

    def __post_init__(self) -> None:
        self._shown_phase, self._shown_at = "", 0.0
        self._shortfall_history = scrape.ShortfallHistory()
        self._progress_reporter = ProgressReporter(self.arm.inputs.profile)
        self._federation_run = make_federation_run(
            self.arm, self.substrate, self.scope.data_directory, self.options.child_environment()
        )
        self._measurement = Measurement(
            self.arm.inputs,
            LoadEnvironment(
                self.own,
                self.options.child_environment(),
                self.arm.folder / "logs",
                self.scope.data_directory / "load",
                self.substrate.first_worker_exit,
                self.options.load_listen,
            ),
            make_auditor(self._pids, self.arm.inputs.beside, self.substrate, self._session),
        )

    @property
    def _session(self) -> int | None:
        """The process that plays another run at the same time."""
        return self.options.at_once.session if self.options.at_once else None

    def _pids(self) -> dict[str, int]:
        """The process ids of the run's components and of the load."""
        return {**self.substrate.pids(), **self.own.pids()}

    async def run(self) -> Summary:
        """Run from the first process to the written report."""
        try:
            run_failure = await self._failure_of(
                self._while_components_run(self._measure(), self._follow_shortfalls())
            )
            summary, self.stop_requested = await uninterrupted(self._conclude(run_failure))
            if self.options.keep and run_failure is None:
                await self._keep(summary)
            return summary
        finally:
            _, requested = await uninterrupted(self._stop())
            self.stop_requested |= requested

    async def hold(self) -> RunFailure | None:
        """Keep everything but the load up; return what ended it, None if interrupted."""
        try:
            self._measurement.run_progress.phase = "held up"
            run_failure = await self._failure_of(self._while_components_run(self._start_and_wait()))
        finally:
            await uninterrupted(self._stop())
        interrupted = run_failure is not None and run_failure.exit_code is ExitCode.INTERRUPTED
        return None if interrupted else run_failure

    async def _keep(self, summary: Summary) -> None:
        self.view.say(f"{summary.verdict}; report: {self.arm.folder / 'report.html'}")
        end = await self._failure_of(self._while_components_run(self._wait_for_interrupt()))
        if end is not None and end.exit_code is not ExitCode.INTERRUPTED:
            self.view.say(end.sentence)

    async def _failure_of(self, steps: Coroutine[Any, Any, None]) -> RunFailure | None:
        logs = self.arm.folder / "logs"
        return await failure_of(steps, lambda: self._measurement.run_progress.phase, logs)

    async def _while_components_run(
        self, work: Coroutine[Any, Any, None], *guards: Coroutine[Any, Any, None]
    ) -> None:
        await guarded(
            work, raise_component_death(self.substrate), raise_component_death(self.own), *guards
        )

    async def _start_and_wait(self) -> None:
        await self._start()
        await self._wait_for_interrupt()

    async def _wait_for_interrupt(self) -> None:
        """Wait to be interrupted, as `make down` does."""
        for cluster in self.clusters:
            path = cluster.kubeconfigs["admin"]
            self.view.say(f"  {cluster.name}: kubectl --kubeconfig {path} get nodes")
        for line in inspect_commands(self.roles.values()):
            self.view.say(f"  {line}")
        self.view.say(READY)
        await asyncio.Event().wait()

    async def _stop(self) -> None:
        self.view.say("stopping")
        async with AsyncExitStack() as ends:  # also if what comes before fails
            ends.push_async_callback(self._clean_up)
            ends.push_async_callback(self.substrate.stop)
            ends.push_async_callback(lambda: self.own.stop(self.own.running(), 1.0))
            ends.push_async_callback(self.node_source.stop)
            if self._federation_run is not None:
                await self._federation_run.finish()

    async def _clean_up(self) -> None:
        self.view.say(await self.scope.close())

    async def _measure(self) -> None:
        save_profile(self.arm.inputs.profile, self.arm.folder)
        save_scheduler_config(self.options.scheduler_config, self.arm.folder)
        self.provenance = await asyncio.to_thread(self.read_provenance)
        await self._start()
        before = await scrape.durations(self.roles.values())
        own, machines, roles = self.node_source, self.arm.inputs.machines, self.roles.values()
        changes = make_fleet_changes(self.substrate, own, self.clusters, roles, self._add_role)
        await self._measurement.play(self.clusters, self._show, self._federation_run, changes)
        if self.roles:
            found = await scrape.components(self.roles.values(), before, machines)
            more = {**self._shortfall_history.numbers(), **(changes.numbers() if changes else {})}
            self.components = {**found, **more} if found else found

    def _add_role(self, endpoint: Endpoint) -> None:
        self.roles = {**self.roles, endpoint.name: endpoint}

    async def _start(self) -> None:
        names = self.arm.inputs.cluster_names
        self.view.say(f"starting {len(names)} control plane{'s' * (len(names) > 1)}")
        self.clusters = await self.substrate.start_clusters(names)
        unprepared = self.substrate.capabilities.unprepared_clusters
        if self.arm.inputs.profile.settings.on_bigfleet and unprepared:
            await asyncio.gather(*(_install(cluster) for cluster in self.clusters))
        self.view.say(self.node_source.description)
        self.roles = await self.node_source.start(self.substrate, self.clusters)
        if self._federation_run is not None:
            role = await self._federation_run.start(self.clusters, self.view.say)
            self.roles = {**self.roles, role.name: role}

    async def _conclude(self, run_failure: RunFailure | None) -> Summary:
        unmet = await scrape.unmet_needs(shards_of(self.roles.values()))
        measured, ended_micros = await self._measurement.finish(), now_micros()
        fleet_audit = await self._audit_fleet() if run_failure is None else None
        self.view.say("judging")
        federated = await self._federation_run.finish() if self._federation_run else None
        evidence = Evidence(
            arm=self.arm,
            substrate=self.substrate.name,
            capabilities=self.substrate.capabilities,
            versions=self.substrate.versions(),
            load_folder=self.scope.data_directory / "load",
            journals=sorted((self.arm.folder / "logs").glob(JOURNALS)),
            started_micros=self.started_micros,
            ended_micros=ended_micros,
            run_progress=self._measurement.run_progress,
            measured=measured,
            components={**self.components, **scrape.unmet_counts(unmet)} if self.components else {},
            shortfalls=unmet,
            federated=federated,
            run_failure=run_failure,
            provenance=self.provenance,
            fleet_audit=fleet_audit,
            at_once=self.options.at_once is not None,
        )
        return conclude(evidence)

    async def _audit_fleet(self) -> FleetAudit | None:
        """Compare the parts of the fleet, once nothing is measured any more."""
        self.view.say("auditing the fleet")
        auditor = FleetAuditor(self.options, self.scope.run_id, self.arm.folder)
        return await auditor.run(self.arm.inputs.profile.settings, self.roles, self.clusters)

    async def _follow_shortfalls(self) -> None:
        """Poll the shards for the number of shortfalls in the live view."""
        while True:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
            if shards := shards_of(self.roles.values()):
                number = self._progress_reporter.shortfalls = await scrape.shortfalls(shards)
                self._shortfall_history.note(time.monotonic(), number)

    def _show(self) -> None:
        now, progress = time.monotonic(), self._measurement.run_progress
        if progress.phase == self._shown_phase and now < self._shown_at + _DISPLAY_INTERVAL_SECONDS:
            return
        self._shown_phase, self._shown_at = progress.phase, now
        self.view.show(self._progress_reporter.progress(progress, self._measurement.recorders))


async def _install(cluster: Cluster) -> None:
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        await install(client)
