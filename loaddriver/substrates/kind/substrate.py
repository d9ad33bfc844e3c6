"""The kind substrate: kind clusters, and BigFleet's roles as pods in them."""

from __future__ import annotations

import asyncio
import platform
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import aiohttp

import kind.cluster
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError
from controlplane.errors import BinaryError
from kind.errors import KindError
from loaddriver.substrates import fleet_identities
from loaddriver.substrates.applying import Manifest, apply
from loaddriver.substrates.base import (
    Capabilities,
    Cluster,
    Endpoint,
    RoleSpec,
    SubstrateError,
    UnexpectedExit,
)
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.kind import removal
from loaddriver.substrates.kind.addresses import AddressBook
from loaddriver.substrates.kind.cluster import KindCluster, StartFailed
from loaddriver.substrates.kind.cluster_objects import secret
from loaddriver.substrates.kind.containers import Container
from loaddriver.substrates.kind.diagnostics import write_diagnostics
from loaddriver.substrates.kind.health_monitor import HealthMonitor
from loaddriver.substrates.kind.layout import ROLE_NAMESPACE, Layout, kind_name
from loaddriver.substrates.kind.pod_logs import write_plain
from loaddriver.substrates.kind.prerequisites import Prerequisites
from loaddriver.substrates.kind.roles import (
    RoleEnvironment,
    access_secret,
    prepare_files,
    role_workload,
)
from loaddriver.substrates.placeholders import IDENTITY
from loaddriver.substrates.probes import answers
from loaddriver.substrates.processes import last_lines
from loaddriver.substrates.reaper.cleanup import RUN_VARIABLE, end_processes

_POD_LOGS = "/var/log/pods"
_END_SECONDS = 20.0
_FAILURES = (KindError, BinaryError, ApiError, *CONNECTION_ERRORS)


class KindSubstrate:
    """Clusters and roles of a run. Create it inside a running event loop and always `stop` it.

    Roles that serve all clusters run in the first of them. Pods get those variables of
    `environment` that do not depend on this machine.
    """

    name = "kind"

    def __init__(
        self,
        run_id: str,
        data_directory: Path,
        log_directory: Path,
        prerequisites: Prerequisites,
        environment: Mapping[str, str],
        settings: ControlPlaneConfig | None = None,
    ) -> None:
        self._run_id = run_id
        self._data_directory = data_directory
        self._log_directory = log_directory
        self._prerequisites = prerequisites
        self._environment = dict(environment)
        self._settings = settings or ControlPlaneConfig()
        engine = prerequisites.setup.tools.engine
        # Marked, so that kind's own processes end with the run whatever ends it.
        marked = replace(engine, environment={**engine.environment, RUN_VARIABLE: run_id})
        self._tools = replace(prerequisites.setup.tools, engine=marked)
        self._setup = replace(prerequisites.setup, tools=self._tools)
        self._clusters: dict[str, KindCluster] = {}
        self._book = AddressBook({})
        self._health = HealthMonitor()
        self._roles: dict[str, Container] = {}
        self._versions: dict[str, str] = {}
        self._record: Path | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Containers share this machine's clock where they share its kernel."""
        return Capabilities(
            audit_log=True,
            own_scheduler=False,
            own_clock=platform.system() == "Linux",
            roles_in_pods=True,
        )

    async def start_clusters(self, names: Sequence[str]) -> list[Cluster]:
        """Create the named clusters in parallel. Raises SubstrateError."""
        for name in names:
            data = self._data_directory / name
            data.mkdir(mode=0o700)
            layout = Layout(name, kind_name(name, self._run_id), data, self._log_directory)
            self._clusters[name] = KindCluster(
                layout, self._prerequisites, self._setup, self._settings
            )
        layouts = [cluster.layout for cluster in self._clusters.values()]
        kind_names = [layout.kind_name for layout in layouts]
        self._record = removal.announce(self._data_directory, self._tools, kind_names)
        tasks = [asyncio.create_task(self._start_cluster(name)) for name in names]
        try:
            started = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._book = AddressBook(
            {name: cluster.access.address for name, cluster in self._clusters.items()}
        )
        return started

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Apply the role's objects to its cluster, also after a declared exit.

        Raises SubstrateError.
        """
        home = role.cluster or next(iter(self._clusters), None)
        if home not in self._clusters:
            raise SubstrateError(f"role {role.name}: cluster {home or 'for it'} was not started")
        async with self._step(f"starting {role.name}", self._clusters[home]):
            return await self._start_role(role, home)

    def pids(self) -> dict[str, int]:
        """None: components run in pods."""
        return {}

    def expect_exit(self, name: str) -> None:
        """Declare that a role, or `<cluster>/<component>`, will exit."""
        self._health.expect(name)

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first undeclared exit, and collect diagnostics."""
        cluster, exit = await self._health.first_exit()
        bundle = await self._gather(cluster)
        log_path = self._log_directory / f"{exit.component}.log"
        return UnexpectedExit(
            exit.component, exit.returncode, log_path, last_lines(log_path), bundle
        )

    async def stop(self) -> None:
        """Collect the logs of all pods, then remove all clusters. Raises SubstrateError.

        Idempotent.
        """
        await self._health.stop()
        clusters, self._clusters = self._clusters.values(), {}
        record, self._record = self._record, None
        if record is None:
            return
        # kind may still be creating a cluster, whose container does not respond.
        await asyncio.to_thread(end_processes, self._run_id, _END_SECONDS)
        await asyncio.gather(*(self._fetch_logs(c) for c in clusters if c.answers))
        failed_cluster = self._health.failed_cluster
        if failed_cluster is not None and not self._bundle(failed_cluster).exists():
            await self._gather(failed_cluster)  # the run ended before it was reported
        for cluster in clusters:
            await cluster.close()
        environment = self._prerequisites.setup.tools.engine.environment
        try:
            await asyncio.to_thread(removal.remove, record, environment)
        except (KindError, OSError) as error:
            raise SubstrateError(f"the kind clusters could not be removed: {error}") from error

    def versions(self) -> dict[str, str]:
        """Versions of the control plane's components, kind and the engine."""
        image = self._prerequisites.setup.node_image.reference
        return {**self._prerequisites.versions, **self._versions, "nodeImage": image}

    async def _start_cluster(self, name: str) -> Cluster:
        cluster = self._clusters[name]
        async with self._step(f"creating cluster {name}", cluster):
            started = await cluster.start(lambda _: None)
            self._versions |= await cluster.versions()
            self._health.watch(cluster, (await cluster.containers()).values())
        return started

    async def _start_role(self, role: RoleSpec, home: str) -> Endpoint:
        cluster = self._clusters[home]
        ports = self._book.place(role, home)
        place = RoleEnvironment(
            image=self._prerequisites.bigfleet.reference,
            api_server=cluster.access.api_server,
            ports=ports,
            peers=self._book.seen_from(home),
            environment=self._environment,
        )
        workload = role_workload(role, place)
        await asyncio.to_thread(prepare_files, role, cluster.layout)
        await apply(cluster.access.client, list(self._secrets(role)))
        await cluster.start_workload(workload)
        observe = self._book.from_here(role, role.observe_port) if role.observe_port else None
        async with aiohttp.ClientSession() as session:
            ready = partial(answers, session, f"http://{observe}/readyz")
            container = await cluster.until(
                role.name, ready if observe else _at_once, self._roles.get(role.name)
            )
        self._roles[role.name] = container
        self._health.track(home, container)
        addresses = {port: self._book.from_here(role, port) for port in role.ports}
        readonly = fleet_identities.read_only(self._data_directory) if role.peer_identity else None
        log_path = self._log_directory / f"{role.name}.log"
        return Endpoint(role.name, observe, log_path, addresses, readonly)

    def _secrets(self, role: RoleSpec) -> Iterator[Manifest]:
        """How it gets into clusters, and who it is to its peers."""
        for name, identity in role.kubeconfigs.items():
            texts = {
                f"{other}.kubeconfig": each.access.kubeconfig(identity)
                for other, each in self._clusters.items()
            }
            yield secret(ROLE_NAMESPACE, access_secret(role, name), texts)
        if role.peer_identity:
            own = fleet_identities.issue(self._data_directory, role.peer_identity)
            yield secret(ROLE_NAMESPACE, access_secret(role, IDENTITY), own.file_contents())

    @asynccontextmanager
    async def _step(self, what: str, cluster: KindCluster) -> AsyncIterator[None]:
        """Convert a failure to one message, with a bundle of diagnostics."""
        try:
            yield
        except (SubstrateError, *_FAILURES) as error:
            bundle = await self._gather(cluster)
            log_tail = self._log_tail(error.component) if isinstance(error, StartFailed) else ""
            raise SubstrateError(
                f"{what} failed: {error or 'no response'}{log_tail}\n  diagnostics: {bundle}"
            ) from error

    def _log_tail(self, component: str) -> str:
        lines = last_lines(self._log_directory / f"{component}.log")
        return "\n  last lines:" + "".join(f"\n    {line}" for line in lines or ("(none)",))

    def _bundle(self, cluster: KindCluster) -> Path:
        return self._log_directory / "bundle" / cluster.layout.cluster

    async def _gather(self, cluster: KindCluster) -> Path:
        await self._fetch_logs(cluster)
        export = partial(kind.cluster.export_logs, self._tools, cluster.layout.kind_name)
        await write_diagnostics(self._bundle(cluster), cluster.get, export)
        return self._bundle(cluster)

    async def _fetch_logs(self, cluster: KindCluster) -> None:
        """Collect logs to the paths of a local run; skips what is unavailable."""
        copy, log = cluster.layout.data / "pod-logs", cluster.layout.cluster_logs / "node.log"
        with suppress(KindError, OSError):
            await asyncio.to_thread(log.write_text, await cluster.node.output())
            await cluster.node.copy_out(_POD_LOGS, copy)
            elsewhere = f"{cluster.layout.cluster}/pods"
            await asyncio.to_thread(
                write_plain, copy, cluster.component_by_container, elsewhere, self._log_directory
            )
        shutil.rmtree(copy, ignore_errors=True)


async def _at_once() -> bool:
    return True
