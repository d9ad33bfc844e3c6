"""Verifies Services and cluster DNS by response body: an outside gateway may respond instead."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bigfleet.kube.client import KubeClient
from loaddriver.substrates.applying import Manifest, apply, path_of
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.kind.addresses import NodeAddress
from loaddriver.substrates.kind.layout import HARNESS_NAMESPACE, NODE_PORTS, service_host
from loaddriver.substrates.kind.manifests import (
    Port,
    Workload,
    pod_template,
    service,
    service_account,
)
from loaddriver.substrates.ports import LOOPBACK

_INPOD = Path(__file__).with_name("inpod")
_SERVER, _CLIENT = "service-check", "service-check-client"
# The last one: roles take theirs from the front.
_PORT = Port("http", 8080, NODE_PORTS[-1])
_TIMEOUT_SECONDS = 90.0
_POLL_INTERVAL_SECONDS = 0.2
# Gone with the answer: what is looked after from then on must not have it still.
_AT_ONCE = {"gracePeriodSeconds": 0}


class _Terminated(msgspec.Struct, rename="camel"):
    message: str = ""


class _State(msgspec.Struct):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] = []


class _Pod(msgspec.Struct):
    status: _PodStatus


async def verify_services(
    client: KubeClient, cluster: str, image: str, address: NodeAddress
) -> None:
    """One pod asks another by its Service's name; then this machine asks at the node's port.

    Both must get a body that nobody else can know. SubstrateError says what came instead.
    """
    body = secrets.token_hex(16)
    server, client_pod = _server(cluster, image, body), _client(cluster, image, body)
    client_manifest = _pod(client_pod)
    accounts = (service_account(server), service_account(client_pod))
    objects = [*accounts, service(server), _pod(server), client_manifest]
    await apply(client, objects)
    try:
        await _await_success(client, cluster, path_of(client_manifest))
        await _check_node_port(cluster, f"http://{LOOPBACK}:{address.published[_PORT.node]}/", body)
    finally:
        for manifest in objects:
            await client.delete(path_of(manifest), _AT_ONCE)


async def _await_success(client: KubeClient, cluster: str, path: str) -> None:
    loop = asyncio.get_running_loop()
    deadline, reason = loop.time() + 2 * _TIMEOUT_SECONDS, "its pod did not even start"
    phase = ""
    while phase != "Failed" and loop.time() < deadline:
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        status = msgspec.json.decode(await client.get(path), type=_Pod).status
        phase = status.phase
        if phase == "Succeeded":
            return
        ended = (each.state.terminated for each in status.container_statuses)
        reason = next((state.message.strip() for state in ended if state), reason)
    raise SubstrateError(f"cluster {cluster}: Services do not work: {reason}")


async def _check_node_port(cluster: str, url: str, body: str) -> None:
    loop = asyncio.get_running_loop()
    deadline, received = loop.time() + _TIMEOUT_SECONDS, "nothing"
    timeout = aiohttp.ClientTimeout(total=2)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while loop.time() < deadline:
            try:
                async with session.get(url) as response:
                    received = await response.text()
            except (aiohttp.ClientError, TimeoutError) as error:
                received = str(error) or repr(error)
            if received == body:
                return
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    raise SubstrateError(
        f"cluster {cluster}: its node's ports do not work: {url} gave {received!r}"
    )


def _server(cluster: str, image: str, body: str) -> Workload:
    return _workload(cluster, _SERVER, image, ("server.py", body, str(_PORT.container)), _PORT)


def _client(cluster: str, image: str, body: str) -> Workload:
    url = f"http://{service_host(_SERVER, HARNESS_NAMESPACE)}:{_PORT.container}/"
    return _workload(cluster, _CLIENT, image, ("client.py", url, body, f"{_TIMEOUT_SECONDS:g}"))


def _pod(workload: Workload) -> Manifest:
    """A Pod of no controller's, which says at its end why it failed."""
    template: dict[str, Any] = pod_template(workload)
    [container] = template["spec"]["containers"]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    identity = {"name": workload.name, "namespace": workload.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**identity, **template["metadata"]},
        "spec": {**template["spec"], "restartPolicy": "Never"},
    }


def _workload(cluster: str, name: str, image: str, call: tuple[str, ...], *ports: Port) -> Workload:
    script, *arguments = call
    return Workload(
        name=name,
        component=f"{cluster}/{name}",
        image=image,
        command=("python3", "-c", (_INPOD / script).read_text()),
        arguments=arguments,
        environment={},
        namespace=HARNESS_NAMESPACE,
        ports=ports,
    )
