"""Real HPA controllers in the members, and a resource metrics API that serves a load.

kube-controller-manager runs its own HPA controller against the member's API server; the metrics
API behind it is played here, so that a test can say how much CPU the target's Pods use.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bigfleet.kube.client import KubeClient
from controlplane.request import Binaries
from loaddriver.substrates.base import Cluster
from tests.support.waiting import eventually

_GROUP = "/apis/metrics.k8s.io/v1beta1"
_SERVICES = "/api/v1/namespaces/default/services"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_HANDSHAKE_SECONDS = 0.3
_NAME = "v1beta1.metrics.k8s.io"


class Load:
    """The cores that a member's Pods use together: equal parts, each at most `max_cores_each`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.cores = 0.1
        self.max_cores_each = 10.0

    async def answer(self, request: web.Request) -> web.Response:
        """PodMetrics of the Pods that the HPA asks about."""
        where = request.match_info["namespace"]
        query = {"labelSelector": request.query.get("labelSelector", "")}
        content = await self._client.get(f"/api/v1/namespaces/{where}/pods", query)
        pods = [p for p in msgspec.json.decode(content)["items"] if _runs(p)]
        each = min(self.max_cores_each, self.cores / len(pods)) if pods else 0.0
        items = [_metrics(pod["metadata"], each) for pod in pods]
        body = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}
        return web.json_response({**body, "metadata": {}})


def _runs(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _metrics(metadata: dict[str, Any], cores: float) -> dict[str, Any]:
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    usage = {"cpu": f"{int(cores * 1000)}m", "memory": "10Mi"}
    return {
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "timestamp": moment,
        "window": "15s",
        "containers": [{"name": "c", "usage": usage}],
    }


async def _discovery(_: web.Request) -> web.Response:
    pods = {"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1"}
    return web.json_response({**body, "resources": [{**pods, "singularName": ""}]})


@asynccontextmanager
async def real_hpas(
    client: KubeClient, cluster: Cluster, binaries: Binaries, folder: Path
) -> AsyncIterator[Load]:
    """The member's HPAs are acted upon until the end, by what the yielded load says."""
    load = Load(client)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(_served(load, folder))
        await stack.enter_async_context(_registered(client, port))
        await stack.enter_async_context(_controller(cluster, binaries, folder))
        yield load


@asynccontextmanager
async def _served(load: Load, folder: Path) -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes(
        [
            web.get(_GROUP, _discovery),
            web.get(f"{_GROUP}/namespaces/{{namespace}}/pods", load.answer),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_certificate(folder))
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await site.stop()
        await asyncio.sleep(_HANDSHAKE_SECONDS)  # those under way are nobody's to close
        for connection in runner.server.connections if runner.server else ():
            # The API server keeps them, and TLS parts slowly.
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()


def _certificate(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{id(key)}.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@asynccontextmanager
async def _registered(client: KubeClient, port: int) -> AsyncIterator[None]:
    service = {"name": "metrics", "namespace": "default"}
    group, version = "metrics.k8s.io", "v1beta1"
    spec = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {**service, "port": port},
    }
    body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    external = {"type": "ExternalName", "externalName": "localhost"}

    async def available() -> bool:
        found = msgspec.json.decode(await client.get(f"{_API_SERVICES}/{_NAME}"))
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    async with AsyncExitStack() as undo:
        head = {"apiVersion": "v1", "kind": "Service", "metadata": service}
        await client.create(_SERVICES, {**head, "spec": external})
        undo.push_async_callback(client.delete, f"{_SERVICES}/metrics")
        await client.create(_API_SERVICES, {**body, "metadata": {"name": _NAME}, "spec": spec})
        undo.push_async_callback(client.delete, f"{_API_SERVICES}/{_NAME}")
        await eventually(available, "the metrics API to be available")
        yield


@asynccontextmanager
async def _controller(cluster: Cluster, binaries: Binaries, folder: Path) -> AsyncIterator[None]:
    command = [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={cluster.kubeconfigs['admin']}",
        "--controllers=horizontal-pod-autoscaler-controller",
        "--leader-elect=false",
        "--secure-port=0",
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--horizontal-pod-autoscaler-downscale-stabilization=5s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
    ]
    with (folder / f"{cluster.name}-hpa.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()
