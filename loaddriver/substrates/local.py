"""The local substrate: real binaries and BigFleet roles as child processes on loopback."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bigfleet.api.auth.identity import Identity, Principal
from loaddriver.substrates import fleet_identities
from loaddriver.substrates.apiserver import ApiServer, ClusterContext
from loaddriver.substrates.base import (
    Capabilities,
    Cluster,
    Endpoint,
    OnThisMachine,
    RoleSpec,
    SubstrateError,
    UnexpectedExit,
)
from loaddriver.substrates.components import Binaries, ControlPlaneConfig, Layout
from loaddriver.substrates.controlplane import ControlPlane
from loaddriver.substrates.ports import LOOPBACK, HeldPorts, free_port
from loaddriver.substrates.processes import Process, Supervisor
from loaddriver.substrates.roles import arguments_of, own_values, until_serving

# The data is temporary, and a graceful stop of kube-apiserver takes many seconds.
_COMPONENT_GRACE_SECONDS = 0.3
_ROLE_GRACE_SECONDS = 1.0
_ROLE_EXIT_SECONDS = 30.0
# sun_path of a Unix socket holds 108 bytes, the last of them zero.
_SOCKET_PATH_BYTES = 107
# Placeholders in a role's arguments, for values such as addresses.
_STATE, _IDENTITY, _API_SERVER, _ETCD = "state", "identity", "api-server", "etcd"


class LocalSubstrate(OnThisMachine):
    """Clusters and roles of a run. Create it inside a running event loop and always `stop` it.

    `data_directory` is the run scope's, in memory if possible; BigFleet roles inherit
    `environment` and are started by `bigfleet`, a command line. Their identities come from the
    authority in `identities`, a folder of `bigfleet certs`, or from one of the run's own.
    """

    name = "local"
    capabilities = Capabilities(
        audit_log=True,
        own_scheduler=True,
        own_clock=True,
        roles_in_pods=False,
        prepares_clusters=True,
    )

    def __init__(
        self,
        run_id: str,
        data_directory: Path,
        log_directory: Path,
        binaries: Binaries,
        environment: Mapping[str, str],
        settings: ControlPlaneConfig | None = None,
        bigfleet: Sequence[str] = (sys.executable, "-m", "bigfleet"),
        identities: Path | None = None,
    ) -> None:
        self._data_directory = data_directory
        if identities is not None:
            fleet_identities.adopt(data_directory, identities)
        self._log_directory = log_directory
        self._binaries = binaries
        self._environment = dict(environment)
        self._settings = settings or ControlPlaneConfig()
        self._bigfleet = bigfleet
        self._ports = HeldPorts()
        self._supervisor = Supervisor(run_id)
        self._names: list[str] = []
        self._clusters: dict[str, Cluster] = {}
        self._alone: dict[str, Cluster] = {}
        self._roles: set[str] = set()
        self._addresses: dict[str, str] = {}

    async def start_clusters(self, names: Sequence[str]) -> list[Cluster]:
        """Start the named clusters, in parallel.

        Raises the SubstrateError of the first failure, once the others have been cancelled.
        """
        planes = [ControlPlane(self._context(name)) for name in names]
        self._names += names
        tasks = [asyncio.create_task(plane.start()) for plane in planes]
        try:
            started = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._clusters |= {cluster.name: cluster for cluster in started}
        return started

    async def start_api_server(self, name: str) -> tuple[Cluster, ApiServer]:
        """Start an API server without controllers, not of the run. Raises SubstrateError."""
        self._names.append(name)
        server = ApiServer(self._context(name))
        self._alone[name] = await server.start_alone()
        return self._alone[name], server

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Start `bigfleet ...`, or restart it after an exit. Raises SubstrateError."""
        await self._supervisor.await_expected_exit(role.name, _ROLE_EXIT_SECONDS)
        addresses = {port: f"{LOOPBACK}:{self._port_of(role, port)}" for port in role.ports}
        self._addresses |= {_peer(role.name, port): at for port, at in addresses.items()}
        self._addresses |= {
            name: f"{LOOPBACK}:{self._ports.hold(name)}" for name in role.preallocated_ports
        }
        command, environment = self._role_command(role, addresses)
        log_path = self._log_directory / f"{role.name}.log"
        process = self._supervisor.start(role.name, command, log_path, environment)
        self._roles.add(role.name)
        observe = addresses[role.observe_port] if role.observe_port else None
        await until_serving(process, observe, self._settings.start_deadline_seconds)
        readonly = fleet_identities.read_only(self._data_directory) if role.peer_identity else None
        return Endpoint(role.name, observe, log_path, addresses, readonly)

    async def kill_role(self, name: str) -> None:
        """Kill a running role with SIGKILL, and return once it has ended."""
        self._supervisor.expect_exit(name)
        for process in self._supervisor.running(name):
            if process.name == name:
                process.send(signal.SIGKILL)
                await process.wait()

    def identity(self, name: Principal) -> Identity:
        """The identity of `name`, by the authority of the run."""
        return fleet_identities.issue(self._data_directory, name)

    def identities(self, names: Sequence[Principal]) -> list[Identity]:
        """The identities of `names`, by the authority of the run."""
        return fleet_identities.issue_all(self._data_directory, names)

    def pids(self) -> dict[str, int]:
        """The process ids of components, as `<cluster>/<component>`, and of roles."""
        return self._supervisor.pids()

    def expect_exit(self, name: str) -> None:
        """Declare that a role, or `<cluster>/<component>`, will exit."""
        self._supervisor.expect_exit(name)

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first undeclared exit."""
        return await self._supervisor.first_unexpected_exit()

    async def stop(self) -> None:
        """Stop all roles in reverse order of start, then all clusters in parallel."""
        await self._supervisor.stop(self._running_roles(), _ROLE_GRACE_SECONDS)
        await asyncio.gather(*(self._stop_cluster(name) for name in self._names))
        self._ports.release()

    def versions(self) -> dict[str, str]:
        """The version of each control plane component."""
        return dict(self._binaries.versions)

    def _running_roles(self) -> list[Process]:
        return [each for each in self._supervisor.running() if each.name in self._roles]

    async def _stop_cluster(self, name: str) -> None:
        processes = self._supervisor.running(f"{name}/")
        await self._supervisor.stop(processes, _COMPONENT_GRACE_SECONDS)

    def _context(self, name: str) -> ClusterContext:
        layout = Layout(
            data=self._data_directory / name,
            logs=self._log_directory / name,
            api_server_port=self._ports.hold(f"{name}/kube-apiserver"),
            controller_manager_port=self._ports.hold(f"{name}/kube-controller-manager"),
            scheduler_port=self._ports.hold(f"{name}/kube-scheduler"),
            metrics_server_port=self._ports.hold(f"{name}/metrics-server"),
            kubelet_port=free_port() if self._settings.resource_metrics else 0,
        )
        if len(bytes(layout.etcd_socket)) > _SOCKET_PATH_BYTES:
            raise SubstrateError(
                f"{layout.etcd_socket} is too long for a socket; use a shorter cluster name"
            )
        return ClusterContext(name, self._binaries, layout, self._settings, self._supervisor)

    def _port_of(self, role: RoleSpec, port: str) -> int:
        """Held for BigFleet's roles, which set SO_REUSEPORT, but not for other programs."""
        if role.program is not None:
            return free_port()
        return self._ports.hold(f"{role.name}/{port}")

    def _role_command(
        self, role: RoleSpec, addresses: Mapping[str, str]
    ) -> tuple[list[str], Mapping[str, str]]:
        """The command line and the environment of a role."""
        values = {
            **self._addresses,
            **own_values(role, addresses),
            **{name: str(self._log_directory / file) for name, file in role.outputs.items()},
            **{name: str(self._access(role, name)) for name in role.kubeconfigs},
            _STATE: str(self._data_directory / role.name),
            _ETCD: str(self._binaries.etcd),
        }
        if role.peer_identity:
            own = fleet_identities.issue(self._data_directory, role.peer_identity)
            values[_IDENTITY] = str(own.directory)
        kubeconfig = ""
        if role.cluster:
            cluster = {**self._clusters, **self._alone}[role.cluster]
            values[_API_SERVER] = cluster.api_server
            if role.identity:
                kubeconfig = str(cluster.kubeconfigs[role.identity])
        arguments = arguments_of(role, values)
        if role.program is not None:
            return [str(role.program), *arguments], {**self._environment, "KUBECONFIG": kubeconfig}
        access = ["--kubeconfig", kubeconfig] if kubeconfig else []
        return [*self._bigfleet, *arguments, *access], self._environment

    def _access(self, role: RoleSpec, name: str) -> Path:
        folder = self._data_directory / f"{role.name}-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        for cluster in self._clusters.values():
            kubeconfig = cluster.kubeconfigs[role.kubeconfigs[name]]
            shutil.copy(kubeconfig, folder / f"{cluster.name}.kubeconfig")
        return folder


def _peer(role: str, port: str) -> str:
    """The placeholder of another role's port."""
    return f"{role}/{port}"
