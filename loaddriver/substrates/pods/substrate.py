"""The substrate of the runner of charts/scaletest: the parts run already, and are only found."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import aiohttp

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from loaddriver.process_counters import Readings
from loaddriver.substrates.base import (
    Capabilities,
    Cluster,
    Endpoint,
    RoleSpec,
    SubstrateError,
    UnexpectedExit,
)
from loaddriver.substrates.credentials import FEDERATION, LOAD_DRIVER
from loaddriver.substrates.pods import counters
from loaddriver.substrates.pods.mirror import Mirror
from loaddriver.substrates.pods.nested import READY, has_metrics, responds, verify
from loaddriver.substrates.pods.places import (
    REINSTALL,
    ClusterPlace,
    Prerequisites,
    RolePlace,
    host_client,
)
from loaddriver.substrates.pods.pod_health import PodHealth
from loaddriver.substrates.pods.pod_logs import PodLogs
from loaddriver.substrates.pods.pod_states import (
    PodAndContainer,
    PodContainer,
    differing_flags,
    read_pods,
)
from loaddriver.substrates.probes import answers
from loaddriver.substrates.proxy import CutOff, PartitionableProxy

# Pods may wait for a node, for their images, and for what is made before them.
_START_SECONDS = 600.0
_POLL_SECONDS = 0.5
# In the order in which a nested cluster's pod starts them; each has a log.
CONTROL_PLANE = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "metrics-server",
)
# The identities whose kubeconfigs a runner has.
IDENTITIES = ("admin", LOAD_DRIVER, "recorder", "substrate-check", FEDERATION)
_CHECK = "substrate-check"
AUDIT_LOG = "audit.log"
_LOAD_WORKER = "load-worker"


class PodsSubstrate:
    """A release's clusters and roles. Create it inside a running event loop and always `stop` it.

    It starts and ends nothing: that is what the release is for.
    """

    name = "pods"
    capabilities = Capabilities(
        audit_log=True,
        own_scheduler=True,
        own_clock=False,
        roles_in_pods=True,
    )

    def __init__(
        self, log_directory: Path, prerequisites: Prerequisites, *, resource_metrics: bool = False
    ) -> None:
        self._logs, self._prerequisites = log_directory, prerequisites
        self._resource_metrics = resource_metrics
        self._places, self._mounts = prerequisites.places, prerequisites.mounts
        self._components = components_of(prerequisites)
        self._client: KubeClient | None = None
        self._session = aiohttp.ClientSession()
        self._counters = counters.CounterReader(self._session)
        self._counters.add({k: counters.role_source(v) for k, v in self._places.roles.items()})
        self._mirrors: list[Mirror] = []
        self._following: list[asyncio.Task[None]] = []
        self._proxies: list[PartitionableProxy] = []
        self._pod_logs = PodLogs(log_directory, self._host, self._pods)
        survives = [name for name, role in self._places.roles.items() if role.restarts_allowed]
        self._health = self._make_health(survives, workers=False)

    async def start_clusters(self, names: Sequence[str]) -> list[Cluster]:
        """Wait until the named clusters work, and the load's workers run. Raises SubstrateError."""
        places = {place.name: place for place in self._places.clusters}
        if sorted(places) != sorted(names):
            raise SubstrateError(
                f"the profile wants {len(names)} clusters, the release has {len(places)}: "
                f"{REINSTALL}"
            )
        started = await asyncio.gather(*(self._start_cluster(places[name]) for name in names))
        await asyncio.gather(*(self._until(each, _now) for each in self._places.load_workers))
        await self._health.start()
        return list(started)

    async def start_api_server(self, name: str) -> tuple[Cluster, CutOff]:
        """Wait until the federation's API server works. Raises SubstrateError."""
        place = self._places.federation
        if place is None or place.name != name:
            raise SubstrateError(f"the release has no {name}: {REINSTALL}")
        check = self._mounts.kubeconfig(name, _CHECK)
        self._counters.add(counters.api_server_sources(place, check))
        ready = partial(responds, check)
        self._health.track((await self._until(f"{name}/kube-apiserver", ready)).container)
        proxy = PartitionableProxy(place.api_server, place.proxy)
        await proxy.start()
        self._proxies.append(proxy)
        return self._cluster(place), CutOff(proxy)

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Wait until the role is ready. Raises SubstrateError, also if its flags are not those of
        the profile.
        """
        place = self._places.roles.get(role.name)
        if place is None:
            known = ", ".join(sorted(self._places.roles))
            raise SubstrateError(f"the release has no {role.name}, only {known}")
        ready = partial(answers, self._session, f"http://{place.observe}{READY}")
        found = await self._until(role.name, ready)
        if differences := list(differing_flags(role, found.arguments)):
            raise SubstrateError(
                f"{role.name} does not run as the profile says: {'; '.join(differences)}: "
                f"{REINSTALL}"
            )
        for name, file in role.outputs.items():
            self._mirror(f"{place.files}/{name}", self._logs / file)
        self._health.track(found.container)
        return self._endpoint(role, place)

    def pids(self) -> dict[str, int]:
        """None: components run in pods."""
        return {}

    async def process_counters(self, *, only_replaceable: bool = False) -> Readings:
        """CPU and memory of each component, by its own metrics; None if it does not serve them."""
        return await self._counters.read(only_replaceable=only_replaceable)

    def expect_exit(self, name: str) -> None:
        """Declare that a role, or `<cluster>/<component>`, will exit."""
        self._health.expect(name)

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first undeclared exit of a part whose state is lost with it."""
        return await self._pod_logs.explain(*await self._health.first_exit())

    async def first_worker_exit(self) -> UnexpectedExit:
        """Wait for the first end of a worker of the load from now on; for ever, if the runner's pod
        sends it all.
        """
        health = self._make_health((), workers=True)
        if self._places.load_workers:
            await health.start()
        try:
            return await self._pod_logs.explain(*await health.first_exit())
        finally:
            await health.stop()

    async def stop(self) -> None:
        """Collect the logs of all containers; the release stays. Idempotent."""
        await self._health.stop()
        following, self._following = self._following, []
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        proxies, self._proxies = self._proxies, []
        await asyncio.gather(*(proxy.stop() for proxy in proxies))
        if self._client is not None:
            with suppress(ApiError, *CONNECTION_ERRORS):
                read = await self._read_pods()
                await self._pod_logs.collect(each.container for each in read.values())
            await self._client.close()
            self._client = None
        await self._session.close()

    def versions(self) -> dict[str, str]:
        """The version of each component, by the tag of its image."""
        return dict(self._prerequisites.versions)

    async def _start_cluster(self, place: ClusterPlace) -> Cluster:
        check = self._mounts.kubeconfig(place.name, _CHECK)
        await self._until(f"{place.name}/kwok", partial(responds, check))
        await verify(place, check, _START_SECONDS)
        if measured := self._resource_metrics:
            await self._until(f"{place.name}/metrics-server", partial(has_metrics, check))
        self._counters.add(counters.cluster_sources(place, check, resource_metrics=measured))
        return self._cluster(place)

    def _cluster(self, place: ClusterPlace) -> Cluster:
        kubeconfigs = {
            identity: self._mounts.kubeconfig(place.name, identity)
            for identity in IDENTITIES
            if identity != _CHECK
        }
        audit_log = self._logs / place.name / AUDIT_LOG
        self._mirror(f"{place.files}/{AUDIT_LOG}", audit_log)
        return Cluster(
            place.name, place.api_server, kubeconfigs, audit_log, catch_up=self._catch_up
        )

    def _mirror(self, url: str, path: Path) -> None:
        mirror = Mirror(self._session, url, self._mounts.token(), path)
        self._mirrors.append(mirror)
        self._following.append(asyncio.create_task(mirror.follow(), name=f"mirror of {path.name}"))

    async def _catch_up(self) -> None:
        await asyncio.gather(*(mirror.catch_up() for mirror in self._mirrors))

    def _endpoint(self, role: RoleSpec, place: RolePlace) -> Endpoint:
        at = {"listen": place.listen, "observe": place.observe}
        addresses = {port: at[port] for port in role.ports if at.get(port)}
        readonly = self._mounts.readonly if role.peer_identity else None
        log_path = self._pod_logs.path(role.name)
        return Endpoint(role.name, place.observe, log_path, addresses, readonly)

    async def _until(self, component: str, ready: Callable[[], Awaitable[bool]]) -> PodContainer:
        """Wait for the component's container, and for `ready`. Raises SubstrateError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while True:
            found = (await self._read_pods()).get(component)
            if found is not None and found.container.stuck:
                raise SubstrateError(f"{component} cannot start: {found.container.stuck}")
            if found is not None and found.container.identity and await ready():
                return found
            if loop.time() > deadline:
                what = "is not ready" if found else "has no pod"
                raise SubstrateError(
                    f"{component} {what} after {_START_SECONDS:g} s: see "
                    f"`kubectl -n {self._places.namespace} get pods,events`"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def _read_pods(self) -> Mapping[str, PodContainer]:
        client = await self._host()
        return read_pods(await client.get(self._pods, {"resourceVersion": "0"}), self._components)

    def _make_health(self, survives: Collection[str], *, workers: bool) -> PodHealth:
        """Of workers of the load, which may end before it begins and after it, or of all others."""

        async def read() -> Mapping[str, PodContainer]:
            found = await self._read_pods()
            of_load = self._places.load_workers
            return {name: each for name, each in found.items() if (name in of_load) == workers}

        return PodHealth(read, survives, self._logs / "restarts.log")

    async def _host(self) -> KubeClient:
        if self._client is None:
            self._client = await host_client(self._prerequisites.environment)
        return self._client

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._places.namespace}/pods"


def components_of(prerequisites: Prerequisites) -> dict[PodAndContainer, str]:
    """The component of each container of a release."""
    places = prerequisites.places
    here = socket.gethostname()  # a pod's name
    roles = {(role.pod or here, role.container): name for name, role in places.roles.items()}
    workers = {(name, _LOAD_WORKER): name for name in places.load_workers}
    control_planes = {
        (cluster.pod, component): f"{cluster.name}/{component}"
        for cluster in places.api_servers
        for component in CONTROL_PLANE
    }
    return roles | control_planes | workers


async def _now() -> bool:
    return True
