"""An API server with its etcd, as child processes."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, InlineAccess, KubeClient
from loaddriver.substrates import audit, components, probes, readiness
from loaddriver.substrates.base import Cluster, SubstrateError
from loaddriver.substrates.components import Binaries, ControlPlaneConfig, Layout
from loaddriver.substrates.credentials import HEALTH_CHECK, Credentials, issue
from loaddriver.substrates.ports import LOOPBACK
from loaddriver.substrates.processes import Process, Supervisor, until_ready

_COMPONENT = "kube-apiserver"


@dataclass(frozen=True)
class ClusterContext:
    """The shared context of a cluster's processes."""

    name: str
    binaries: Binaries
    layout: Layout
    settings: ControlPlaneConfig
    supervisor: Supervisor

    def start(self, component: str, command: Sequence[str]) -> Process:
        """Start a component with its own log."""
        return self.supervisor.start(
            f"{self.name}/{component}",
            command,
            self.layout.logs / f"{component}.log",
            self._environment(component),
        )

    def _environment(self, component: str) -> Mapping[str, str]:
        data, most = str(self.layout.data), self.settings.api_server_mib
        collector = {"GOGC": str(self.settings.gc_percent)}
        if most is not None and component == _COMPONENT:
            collector = {"GOGC": "off", "GOMEMLIMIT": f"{most}MiB"}
        return {"HOME": data, "TMPDIR": data, **collector}


class ApiServer:
    """etcd and kube-apiserver of a cluster, without controllers."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context

    async def start_alone(self) -> Cluster:
        """Start it and wait until it responds. Raises SubstrateError."""
        async with as_substrate_errors(self._context):
            return self.cluster(await self.start())

    async def start(self) -> Credentials:
        """Start it and wait until it responds."""
        layout = self._context.layout
        layout.data.mkdir(mode=0o700)
        layout.logs.mkdir(parents=True, exist_ok=True)
        self._credentials = issue(
            layout.data / "credentials", self._context.name, layout.api_server
        )
        audit.write_policy(layout.audit_policy)
        await self._start_etcd()
        await self._start_server()
        return self._credentials

    async def kill(self) -> None:
        """Kill kube-apiserver, as in a crash; etcd keeps acknowledged writes."""
        name = f"{self._context.name}/{_COMPONENT}"
        supervisor = self._context.supervisor
        supervisor.expect_exit(name)
        for process in supervisor.running(name):
            process.send(signal.SIGKILL)
            await process.wait()

    async def restart(self) -> None:
        """Restart it after `kill` and wait until it responds. Raises SubstrateError."""
        async with as_substrate_errors(self._context):
            await self._start_server()

    def client(self, port: int) -> KubeClient:
        """An administrator's client for the component on this port."""
        ca_pem = self._credentials.ca_certificate.read_text()
        token = self._credentials.tokens[HEALTH_CHECK.role]
        return KubeClient.with_access(InlineAccess(f"https://{LOOPBACK}:{port}", ca_pem, token))

    def cluster(self, credentials: Credentials) -> Cluster:
        """The cluster, for its users."""
        layout, own = self._context.layout, HEALTH_CHECK.role
        kubeconfigs = {role: path for role, path in credentials.kubeconfigs.items() if role != own}
        return Cluster(self._context.name, layout.api_server, kubeconfigs, layout.audit_log)

    async def _start_etcd(self) -> None:
        context = self._context
        process = context.start("etcd", components.etcd(context.binaries, context.layout))
        connector = aiohttp.UnixConnector(str(context.layout.etcd_socket))
        async with aiohttp.ClientSession(connector=connector) as session:
            await until_ready(
                process,
                lambda: probes.answers(session, "http://etcd/health"),
                context.settings.start_deadline_seconds,
            )

    async def _start_server(self) -> None:
        context = self._context
        command = components.kube_apiserver(context.binaries, context.layout, self._credentials)
        process = context.start(_COMPONENT, command)
        async with self.client(context.layout.api_server_port) as api:
            await until_ready(
                process,
                lambda: readiness.answers(api, "/readyz"),
                context.settings.start_deadline_seconds,
            )


@asynccontextmanager
async def as_substrate_errors(context: ClusterContext) -> AsyncIterator[None]:
    """Convert errors of requests during a cluster's start to SubstrateError."""
    try:
        yield
    except (ApiError, *CONNECTION_ERRORS) as error:
        raise SubstrateError(
            f"cluster {context.name} did not start: {error or 'no response'}; "
            f"logs of its components: {context.layout.logs}"
        ) from error
