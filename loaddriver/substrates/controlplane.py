"""One control plane as child processes: started in order of need, proved to work."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from bigfleet.api.kube.client import NO_ANSWER, ApiError, BearerAccess, KubeClient
from loaddriver.substrates import audit, components, probes, proof
from loaddriver.substrates.base import Cluster, SubstrateError
from loaddriver.substrates.components import Binaries, ControlPlaneSettings, Layout
from loaddriver.substrates.credentials import HEALTH_CHECK, Credentials, issue
from loaddriver.substrates.ports import LOOPBACK
from loaddriver.substrates.processes import Process, Supervisor, until_ready

_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok of one cluster."""

    def __init__(
        self,
        name: str,
        binaries: Binaries,
        layout: Layout,
        settings: ControlPlaneSettings,
        supervisor: Supervisor,
    ) -> None:
        self._name = name
        self._binaries = binaries
        self._layout = layout
        self._settings = settings
        self._supervisor = supervisor

    async def start(self) -> Cluster:
        """Start all components and return once a Node became usable. Raises SubstrateError."""
        try:
            return await self._start_all()
        except (ApiError, *NO_ANSWER) as error:
            raise SubstrateError(
                f"cluster {self._name} did not start: {error or 'no answer'}; "
                f"logs of its components: {self._layout.logs}"
            ) from error

    async def _start_all(self) -> Cluster:
        credentials = self._prepare()
        await self._start_etcd()
        server = self._start_api_server(credentials)
        async with self._api(credentials, self._layout.api_server_port) as api:
            await until_ready(server, lambda: proof.answers(api, "/readyz"), self._deadline)
            await proof.grant_harness_roles(api)
            others = self._start_others(credentials)
            await self._all_healthy(credentials, others)
            await self._prove(api, others)
        return self._cluster(credentials)

    def _prepare(self) -> Credentials:
        layout = self._layout
        layout.data.mkdir(mode=0o700)
        layout.logs.mkdir(parents=True, exist_ok=True)
        credentials = issue(layout.data / "credentials", self._name, layout.api_server)
        audit.write_policy(layout.audit_policy)
        components.write_scheduler_configuration(
            layout.scheduler_configuration, credentials.kubeconfigs["kube-scheduler"]
        )
        return credentials

    async def _start_etcd(self) -> None:
        process = self._start("etcd", components.etcd(self._binaries, self._layout))
        connector = aiohttp.UnixConnector(str(self._layout.etcd_socket))
        async with aiohttp.ClientSession(connector=connector) as session:
            await until_ready(
                process, lambda: probes.answers(session, "http://etcd/health"), self._deadline
            )

    def _start_api_server(self, credentials: Credentials) -> Process:
        command = components.kube_apiserver(self._binaries, self._layout, credentials)
        return self._start("kube-apiserver", command)

    def _start_others(self, credentials: Credentials) -> tuple[Process, Process, Process]:
        binaries, layout = self._binaries, self._layout
        manager = components.kube_controller_manager(binaries, layout, credentials, self._settings)
        scheduler = components.kube_scheduler(binaries, layout, credentials)
        return (
            self._start("kube-controller-manager", manager),
            self._start("kube-scheduler", scheduler),
            self._start("kwok", components.kwok(binaries, credentials)),
        )

    async def _all_healthy(
        self, credentials: Credentials, others: tuple[Process, Process, Process]
    ) -> None:
        manager, scheduler, _ = others
        async with (
            self._api(credentials, self._layout.controller_manager_port) as manager_api,
            self._api(credentials, self._layout.scheduler_port) as scheduler_api,
        ):
            await until_ready(
                manager, lambda: proof.answers(manager_api, "/healthz"), self._deadline
            )
            await until_ready(
                scheduler, lambda: proof.answers(scheduler_api, "/readyz"), self._deadline
            )

    async def _prove(self, api: KubeClient, others: tuple[Process, Process, Process]) -> None:
        """A controller makes a service account; kwok and another make a Node usable."""
        manager, _, kwok = others
        await until_ready(manager, lambda: proof.answers(api, _DEFAULT_ACCOUNT), self._deadline)
        await proof.add_check_node(api)
        await until_ready(kwok, lambda: proof.check_node_is_usable(api), self._deadline)
        await proof.remove_check_node(api)

    def _start(self, component: str, command: Sequence[str]) -> Process:
        environment = {
            "GOGC": str(self._settings.gc_percent),
            "HOME": str(self._layout.data),
            "TMPDIR": str(self._layout.data),
        }
        return self._supervisor.start(
            f"{self._name}/{component}",
            command,
            self._layout.logs / f"{component}.log",
            environment,
        )

    def _api(self, credentials: Credentials, port: int) -> KubeClient:
        ca_pem = credentials.ca_certificate.read_text()
        token = credentials.tokens[HEALTH_CHECK.role]
        return KubeClient.with_token(BearerAccess(f"https://{LOOPBACK}:{port}", ca_pem, token))

    @property
    def _deadline(self) -> float:
        return self._settings.start_deadline_seconds

    def _cluster(self, credentials: Credentials) -> Cluster:
        return Cluster(
            name=self._name,
            api_server=self._layout.api_server,
            kubeconfigs={
                role: path
                for role, path in credentials.kubeconfigs.items()
                if role != HEALTH_CHECK.role
            },
            audit_log=self._layout.audit_log,
        )
