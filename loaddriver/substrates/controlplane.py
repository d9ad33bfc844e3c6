"""One control plane as child processes: started in order of need, proved to work."""

from __future__ import annotations

from bigfleet.api.kube.client import KubeClient
from loaddriver.substrates import components, metrics, proof, stages
from loaddriver.substrates.apiserver import ApiServer, Ground, named_failures
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.credentials import Credentials
from loaddriver.substrates.processes import Process, until_ready

_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok of one cluster."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._server = ApiServer(ground)

    async def start(self) -> Cluster:
        """Start all components and return once a Node became usable. Raises SubstrateError."""
        async with named_failures(self._ground):
            credentials = await self._server.start()
            async with self._server.client(self._ground.layout.api_server_port) as api:
                await proof.grant_harness_roles(api)
                if self._ground.settings.before_controllers:
                    await self._ground.settings.before_controllers(api)
                if self._ground.settings.resource_metrics:
                    await metrics.prepare(api)
                others = self._start_others(credentials)
                await self._all_healthy(others)
                await self._prove(api, others)
                if self._ground.settings.resource_metrics:
                    await self._start_metrics_server(api, credentials)
            return self._server.cluster(credentials)

    def _start_others(self, credentials: Credentials) -> tuple[Process, Process, Process]:
        binaries, layout = self._ground.binaries, self._ground.layout
        settings, start = self._ground.settings, self._ground.start
        components.write_scheduler_configuration(
            layout.scheduler_configuration, credentials.kubeconfigs["kube-scheduler"]
        )
        manager = components.kube_controller_manager(binaries, layout, credentials, settings)
        scheduler = components.kube_scheduler(binaries, layout, credentials)
        stages.write(layout.kwok_stages, settings.network_agents)
        kwok = components.kwok(binaries, layout, credentials)
        if settings.resource_metrics:
            kwok += metrics.kwok_flags(layout)
        return (
            start("kube-controller-manager", manager),
            start("kube-scheduler", scheduler),
            start("kwok", kwok),
        )

    async def _all_healthy(self, others: tuple[Process, Process, Process]) -> None:
        manager, scheduler, _ = others
        layout = self._ground.layout
        async with (
            self._server.client(layout.controller_manager_port) as manager_api,
            self._server.client(layout.scheduler_port) as scheduler_api,
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

    async def _start_metrics_server(self, api: KubeClient, credentials: Credentials) -> None:
        layout = self._ground.layout
        command = metrics.metrics_server(self._ground.binaries, layout, credentials)
        server = self._ground.start("metrics-server", command)
        await metrics.register(api, layout)
        await until_ready(server, lambda: metrics.is_available(api), self._deadline)

    @property
    def _deadline(self) -> float:
        return self._ground.settings.start_deadline_seconds
