"""A kind cluster: creation, verification, and the containers of its pods."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import kind.cluster
from bigfleet.kube.client import KubeClient
from kind.setup import Setup
from loaddriver.substrates import audit, components, readiness
from loaddriver.substrates.applying import apply
from loaddriver.substrates.base import Cluster, SubstrateError
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.credentials import (
    HEALTH_CHECK,
    Tokens,
    issue_tokens,
    kubeconfig,
    write_kubeconfigs,
)
from loaddriver.substrates.kind import cluster_objects
from loaddriver.substrates.kind.addresses import NodeAddress
from loaddriver.substrates.kind.config import SCHEDULER_KUBECONFIG, kind_config
from loaddriver.substrates.kind.containers import Container, read_containers, start_failure
from loaddriver.substrates.kind.layout import API_SERVER_PORT, Layout
from loaddriver.substrates.kind.manifests import Workload, workload_objects
from loaddriver.substrates.kind.node import Node
from loaddriver.substrates.kind.pod_logs import ContainerKey
from loaddriver.substrates.kind.prerequisites import Prerequisites
from loaddriver.substrates.kind.services import verify_services
from loaddriver.substrates.ports import LOOPBACK

_CA_IN_NODE = "/etc/kubernetes/pki/ca.crt"
_DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
_POLL_INTERVAL_SECONDS = 0.2
# Kubernetes' components by image name.
_VERSIONED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class Access:
    """Access to a running cluster; the client is the substrate's own."""

    cluster: Cluster
    address: NodeAddress
    client: KubeClient
    tokens: Tokens
    ca_pem: str

    @property
    def api_server(self) -> str:
        """The API server's address for containers and pods of the run."""
        return f"https://{self.address.address}:{API_SERVER_PORT}"

    def kubeconfig(self, role: str) -> str:
        """A self-contained kubeconfig for pods."""
        authority = {"certificate-authority-data": b64encode(self.ca_pem.encode()).decode()}
        token = self.tokens.by_role[role]
        return kubeconfig(self.cluster.name, self.api_server, authority, token).decode()


class StartFailed(SubstrateError):
    """A component did not start; its log may have the cause."""

    def __init__(self, component: str, what: str) -> None:
        super().__init__(f"{component} {what}")
        self.component = component


class KindCluster:
    """A cluster of a run; call `start` first."""

    def __init__(
        self,
        layout: Layout,
        prerequisites: Prerequisites,
        setup: Setup,
        settings: ControlPlaneConfig,
    ) -> None:
        self.layout = layout
        self.node = Node(setup.tools.engine, layout.node)
        self._prerequisites = prerequisites
        self._setup = setup
        self._settings = settings
        self._access: Access | None = None
        # The component of every container ever observed.
        self.component_by_container: dict[ContainerKey, str] = {}

    @property
    def access(self) -> Access:
        """Access. Raises SubstrateError before the cluster responds."""
        if self._access is None:
            raise SubstrateError(f"cluster {self.layout.cluster} has not started")
        return self._access

    @property
    def answers(self) -> bool:
        """Whether its API is available."""
        return self._access is not None

    async def start(self, progress: Callable[[str], None]) -> Cluster:
        """Create it and verify that a simulated Node becomes usable and that Services work."""
        tokens = self._write_files()
        await asyncio.to_thread(self._create, progress)
        images = (self._prerequisites.bigfleet, self._prerequisites.kwok)
        for image in images:
            await asyncio.to_thread(
                kind.cluster.load, self._setup.tools, self.layout.kind_name, image.archive
            )
        self._access = await self._gain_access(tokens)
        await self._apply_cluster_objects(self._access.client)
        await self._verify(self._access)
        return self._access.cluster

    async def close(self) -> None:
        """Close connections; does not remove the cluster."""
        if self._access is not None:
            await self._access.client.close()

    async def get(self, path: str) -> bytes:
        """GET from its API. Raises as KubeClient does, and SubstrateError before it has started."""
        return await self.access.client.get(path)

    async def start_workload(self, workload: Workload) -> None:
        """Apply a workload; does not wait for it."""
        await apply(self.access.client, workload_objects(workload))

    async def containers(self) -> dict[str, Container]:
        """The containers on the cluster's node, by component."""
        query = {"fieldSelector": f"spec.nodeName={self.layout.node}", "resourceVersion": "0"}
        body = await self.access.client.get("/api/v1/pods", query)
        found = read_containers(self.layout.cluster, body)
        self.component_by_container |= {
            (c.namespace, c.pod, c.name): c.component for c in found.values()
        }
        return found

    async def versions(self) -> dict[str, str]:
        """Versions of the control plane's components, by image tag."""
        body = await self.get("/api/v1/nodes/" + self.layout.node)
        names = (name for image in json.loads(body)["status"]["images"] for name in image["names"])
        tags = (name.rpartition("/")[2].partition(":") for name in names if "@" not in name)
        found = {name: tag.removeprefix("v") for name, _, tag in tags}
        return {name: found[name].partition("-0")[0] for name in _VERSIONED if name in found}

    def _write_files(self) -> Tokens:
        layout = self.layout
        tokens = issue_tokens(layout.credentials)
        layout.config.mkdir()
        layout.volumes.mkdir()
        layout.cluster_logs.mkdir(parents=True, exist_ok=True)
        audit.write_policy(layout.audit_policy)
        components.write_scheduler_configuration(
            layout.scheduler_configuration, SCHEDULER_KUBECONFIG
        )
        # Created by us: if the API server created it, only root could read it.
        layout.audit_log.touch()
        return tokens

    def _create(self, progress: Callable[[str], None]) -> None:
        kind.cluster.create(
            self._setup,
            self.layout.kind_name,
            kind_config(self._setup.node_image, self.layout, self._settings),
            self.layout.data / "kind.kubeconfig",
            self.layout.cluster_logs / "kind.log",
            progress,
        )

    async def _gain_access(self, tokens: Tokens) -> Access:
        layout = self.layout
        ca_pem, address = await asyncio.gather(self.node.read(_CA_IN_NODE), self.node.address())
        ca = layout.credentials / "ca.crt"
        ca.write_text(ca_pem)
        server = f"https://{LOOPBACK}:{address.published[API_SERVER_PORT]}"
        kubeconfigs = write_kubeconfigs(layout.credentials, layout.cluster, server, ca, tokens)
        client = await KubeClient.from_kubeconfig(kubeconfigs.pop(HEALTH_CHECK.role))
        cluster = Cluster(
            name=layout.cluster,
            api_server=server,
            kubeconfigs=kubeconfigs,
            audit_log=layout.audit_log,
            own_namespaces=audit.OWN_NAMESPACES,
        )
        return Access(cluster, address, client, tokens, ca_pem)

    async def _apply_cluster_objects(self, client: KubeClient) -> None:
        """No pod of the load may land on the real node, no real pod on a fake one."""
        taints = {"spec": {"taints": [cluster_objects.CONTROL_PLANE_TAINT]}}
        await client.patch(f"/api/v1/nodes/{self.layout.node}", taints)
        for daemon_set in json.loads(await client.get(_DAEMON_SETS))["items"]:
            path = f"{_DAEMON_SETS}/{daemon_set['metadata']['name']}"
            await client.patch(path, cluster_objects.away_from_fake_nodes())
        await readiness.grant_harness_roles(client)
        await apply(client, cluster_objects.namespaces())
        await apply(client, cluster_objects.volumes(self.layout))

    async def _verify(self, access: Access) -> None:
        """Verify it as a local cluster, and its network."""
        client, image = access.client, self._prerequisites.kwok.reference
        await apply(client, cluster_objects.kwok_files(access.kubeconfig("kwok")))
        kwok = cluster_objects.kwok(self.layout, image, self._settings)
        await self.start_workload(kwok)
        await readiness.add_check_node(client)
        services = verify_services(
            client, self.layout.cluster, self._prerequisites.bigfleet.reference, access.address
        )
        usable = self.until(kwok.component, partial(readiness.check_node_is_usable, client))
        await asyncio.gather(services, usable)
        await readiness.remove_check_node(client)

    async def until(
        self,
        component: str,
        ready: Callable[[], Awaitable[bool]],
        former: Container | None = None,
    ) -> Container:
        """Ask until it says yes; the component's container, which is not the `former` any more.

        StartFailed when it ends or hangs before, or takes too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.start_deadline_seconds
        while True:
            is_ready, found = await ready(), (await self.containers()).get(component)
            if found is not None:
                if failure := start_failure(found, former):
                    raise StartFailed(component, f"{failure} while starting")
                if is_ready and (former is None or found.identity != former.identity):
                    return found
            if loop.time() > deadline:
                seconds = self._settings.start_deadline_seconds
                raise StartFailed(component, f"was not ready within {seconds:g} s")
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
