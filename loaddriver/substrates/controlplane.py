"""A control plane as child processes: started in order of dependency, and verified."""

from __future__ import annotations

from pathlib import Path

import yaml

from bigfleet.kube.client import KubeClient
from loaddriver.substrates import components, metrics, readiness
from loaddriver.substrates.apiserver import ApiServer, ClusterContext, as_substrate_errors
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.credentials import Credentials
from loaddriver.substrates.processes import Process, until_ready

_NODE_READY = "node-ready"
_HAS_NETWORK = {
    "jq": {
        "key": f'.status.conditions.[] | select(.type == "{components.NO_NETWORK}") | .status',
        "operator": "In",
        "values": ["False"],
    }
}
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok of a cluster."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._server = ApiServer(context)

    async def start(self) -> Cluster:
        """Start all components and wait until a Node is usable. Raises SubstrateError."""
        async with as_substrate_errors(self._context):
            credentials = await self._server.start()
            async with self._server.client(self._context.layout.api_server_port) as api:
                await readiness.grant_harness_roles(api)
                if self._context.settings.before_controllers:
                    await self._context.settings.before_controllers(api)
                if self._context.settings.resource_metrics:
                    await metrics.prepare(api)
                others = self._start_others(credentials)
                await self._all_healthy(others)
                await self._verify(api, others)
                if self._context.settings.resource_metrics:
                    await self._start_metrics_server(api, credentials)
            return self._server.cluster(credentials)

    def _start_others(self, credentials: Credentials) -> tuple[Process, Process, Process]:
        binaries, layout = self._context.binaries, self._context.layout
        settings, start = self._context.settings, self._context.start
        components.write_scheduler_configuration(
            layout.scheduler_configuration,
            credentials.kubeconfigs["kube-scheduler"],
            settings.scheduler_config,
        )
        manager = components.kube_controller_manager(binaries, layout, credentials, settings)
        scheduler = components.kube_scheduler(binaries, layout, credentials)
        write_kwok_stages(layout.kwok_stages, settings.network_agents)
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
        layout = self._context.layout
        async with (
            self._server.client(layout.controller_manager_port) as manager_api,
            self._server.client(layout.scheduler_port) as scheduler_api,
        ):
            await until_ready(
                manager, lambda: readiness.answers(manager_api, "/healthz"), self._deadline
            )
            await until_ready(
                scheduler, lambda: readiness.answers(scheduler_api, "/readyz"), self._deadline
            )

    async def _verify(self, api: KubeClient, others: tuple[Process, Process, Process]) -> None:
        """Verify that controllers create a service account, and that a Node becomes usable."""
        manager, _, kwok = others
        await until_ready(manager, lambda: readiness.answers(api, _DEFAULT_ACCOUNT), self._deadline)
        await readiness.add_check_node(api)
        await until_ready(kwok, lambda: readiness.check_node_is_usable(api), self._deadline)
        await readiness.remove_check_node(api)

    async def _start_metrics_server(self, api: KubeClient, credentials: Credentials) -> None:
        layout = self._context.layout
        command = metrics.metrics_server(self._context.binaries, layout, credentials)
        server = self._context.start("metrics-server", command)
        await metrics.register(api, layout)
        await until_ready(server, lambda: metrics.is_available(api), self._deadline)

    @property
    def _deadline(self) -> float:
        return self._context.settings.start_deadline_seconds


def write_kwok_stages(path: Path, network_agents: bool) -> None:
    """Write kwok's configuration; with `network_agents` only Nodes with a network become Ready."""
    documents = list(yaml.load_all(components.KWOK_STAGES.read_text(), yaml.CSafeLoader))
    (stage,) = (each for each in documents if each.get("metadata") == {"name": _NODE_READY})
    if network_agents:
        stage["spec"]["selector"]["matchExpressions"].append(_HAS_NETWORK)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
