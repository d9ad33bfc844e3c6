"""Hosts simulated by kwok: registered with their bootstrap blob, kept Ready by kwok.

They have two identities, as real machines do. The blob's token can only register the Node. One
kubeconfig per cluster watches Nodes and powers hosts off, by a label that stops kwok's heartbeats.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.config import ConfigException
from yaml import YAMLError

from bigfleet.adapters.host import bootstrap
from bigfleet.adapters.host.bootstrap import Blob
from bigfleet.adapters.host.nodes import PATH, ClusterNodes, NodeView
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient, is_transient
from bigfleet.model.machine import Machine
from bigfleet.ports.host import Boot, HostFailure

_LOG = logging.getLogger(__name__)
_REGISTRATION_ATTEMPTS = 8
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.1, 5.0
# Each registration opens its own connection; a burst of boots must not overload an API server.
_MAX_CONCURRENT_REGISTRATIONS = 32
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _ALREADY_EXISTS = 401, 403, 404, 409
_STOP_HEARTBEAT_PATCH = {
    "metadata": {"labels": {bootstrap.HEARTBEAT_LABEL: bootstrap.HEARTBEAT_STOPPED}}
}

_Request = Callable[[], Awaitable[bytes]]


class KwokHost:
    """A `Host` whose machines are kwok Nodes; `kubeconfigs` holds `<cluster id>.kubeconfig`."""

    def __init__(self, kubeconfigs: Path, provider_name: str) -> None:
        self._kubeconfigs, self._provider_name = kubeconfigs, provider_name
        self._clusters: dict[str, ClusterNodes] = {}
        self._opening = asyncio.Lock()
        self._registering = asyncio.Semaphore(_MAX_CONCURRENT_REGISTRATIONS)

    async def acquire(self, machine: Machine) -> None:
        """Always succeeds: a kwok machine is only a Node."""

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        """Register the Node, unless this boot has already, and wait until it is Ready."""
        blob = bootstrap.decode(boot)
        nodes = await self._nodes(boot.machine.cluster)
        name = boot.machine.id
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._join(nodes, boot, blob)
        except TimeoutError:
            raise HostFailure(
                f"Node {name} was not Ready within {timeout_seconds:g} s: {nodes.describe(name)}"
            ) from None

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """Return once the cluster has no Node of this machine."""
        nodes = await self._nodes(machine.cluster)
        await nodes.until(machine.id, lambda view: not self._is_ours(view, machine))

    async def power_off(self, machine: Machine) -> None:
        """Stop the Node's heartbeat, if the Node exists and is this machine's."""
        nodes = await self._nodes(machine.cluster)
        view = nodes.get(machine.id)
        if view is not None and not self._is_ours(view, machine):
            return
        try:
            stop_heartbeat = partial(
                nodes.client.patch, f"{PATH}/{machine.id}", _STOP_HEARTBEAT_PATCH
            )
            await _with_retries(stop_heartbeat, is_transient, attempts=None)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise HostFailure(f"cannot power off the host: {error}") from None

    async def close(self) -> None:
        """End all watches."""
        for nodes in self._clusters.values():
            await nodes.close()

    def _is_ours(self, view: NodeView | None, machine: Machine) -> bool:
        ours = bootstrap.provider_id(self._provider_name, machine)
        return view is not None and view.spec.provider_id == ours

    async def _join(self, nodes: ClusterNodes, boot: Boot, blob: Blob) -> None:
        """Register the Node and wait until it is Ready; register again if it is deleted."""

        def registered(view: NodeView | None) -> bool:
            return view is not None and view.operation_id == boot.operation_id

        name = boot.machine.id
        await nodes.until(name, lambda _: True)
        while True:
            if not registered(nodes.get(name)):
                await self._register(boot, blob)
            await nodes.until(name, registered)
            await nodes.until(name, lambda v: v is None or not registered(v) or v.ready)
            view = nodes.get(name)
            if view is not None and registered(view) and view.ready:
                return

    async def _register(self, boot: Boot, blob: Blob) -> None:
        node = bootstrap.node(boot, blob, self._provider_name)
        try:
            async with self._registering, KubeClient.with_access(blob.access) as client:
                await _create_or_take_over(client, node)
        except ssl.SSLError as error:
            raise HostFailure(f"invalid caPem in the bootstrap blob: {error}") from None
        except (ApiError, *CONNECTION_ERRORS) as error:
            raise HostFailure(f"cannot register the Node: {_text(error)}") from None
        except (ValueError, TypeError) as error:
            raise HostFailure(f"invalid bootstrap blob: {error}") from None

    async def _nodes(self, cluster: str) -> ClusterNodes:
        async with self._opening:
            if cluster not in self._clusters:
                client = await self._client(cluster)
                self._clusters[cluster] = ClusterNodes(cluster, client)
            return self._clusters[cluster]

    async def _client(self, cluster: str) -> KubeClient:
        path = self._kubeconfigs / f"{cluster}.kubeconfig"
        try:
            # The cluster's name is untrusted and must not escape the directory.
            if path.parent != self._kubeconfigs or not path.is_file():
                raise HostFailure(f"no host can join cluster {cluster!r}: there is no {path}")
            return await KubeClient.from_kubeconfig(path)
        except (ConfigException, YAMLError, OSError, ValueError, TypeError) as error:
            raise HostFailure(f"{path} cannot be used: {error}") from None


async def _create_or_take_over(client: KubeClient, node: Mapping[str, Any]) -> None:
    try:
        await _registered(partial(client.create, PATH, node))
    except ApiError as error:
        if error.status != _ALREADY_EXISTS:
            raise
    else:
        return
    path = f"{PATH}/{node['metadata']['name']}"
    claim, not_ready, begin = bootstrap.takeover(node)
    for target, patch in ((path, claim), (f"{path}/status", not_ready), (path, begin)):
        await _registered(partial(client.patch, target, patch))


async def _registered(request: _Request) -> bytes:
    return await _with_retries(request, _is_registration_retryable, _REGISTRATION_ATTEMPTS)


async def _with_retries(
    request: _Request, is_retryable: Callable[[Exception], bool], attempts: int | None
) -> bytes:
    """The response to `request`, retried after retryable errors; no limit if `attempts` is None."""
    backoff_seconds = _MIN_BACKOFF_SECONDS
    for attempt in itertools.count(1):
        try:
            return await request()
        except (ApiError, *CONNECTION_ERRORS) as error:
            if attempt == attempts or not is_retryable(error):
                raise
            _LOG.info("attempt %d failed: %s", attempt, _text(error))
        await asyncio.sleep(backoff_seconds)
        backoff_seconds = min(backoff_seconds * 2, _MAX_BACKOFF_SECONDS)
    raise AssertionError("unreachable")


def _is_registration_retryable(error: Exception) -> bool:
    """A wrong server is permanent; a new ServiceAccount and its RBAC take effect with a delay."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.InvalidURL):
        return False
    new = isinstance(error, ApiError) and error.status in (_UNAUTHORIZED, _FORBIDDEN)
    return new or is_transient(error)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"
