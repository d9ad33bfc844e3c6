"""What the cluster tests share: objects, waiting, a shard that is only a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec

from bigfleet.api import transport
from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.api.v1alpha1.shard_pb2 import (
    Acknowledgement,
    BootstrapBlobResponse,
    DisruptionReport,
    NodeStateInquiry,
    OperatorMessage,
    ReclaimAck,
    RejectedItem,
    ShardMessage,
)
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardServicer, add_ShardServicer_to_server
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from tests.support.waiting import eventually

_POLL_SECONDS = 0.02
# Long, because only a failing test waits for it to the end: machines that run tests may be slow.
_DEADLINE_SECONDS = 90.0


async def admin(kubeconfig: dict[str, Path]) -> KubeClient:
    return await KubeClient.from_kubeconfig(kubeconfig["admin"])


async def get(client: KubeClient, path: str) -> Any:
    """The object or list at `path`, or None."""
    try:
        return msgspec.json.decode(await client.get(path))
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise


@asynccontextmanager
async def namespace(
    client: KubeClient, name: str, *, until_gone: bool = False
) -> AsyncIterator[str]:
    """A namespace for one test. Where pods of it are bound, their Nodes must outlive it: so that it
    is waited for `until_gone`.
    """
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.create("/api/v1/namespaces", body)

    async def has_account() -> bool:
        return await get(client, f"/api/v1/namespaces/{name}/serviceaccounts/default") is not None

    try:
        await eventually(has_account, "the namespace's service account")
        yield name
    finally:
        await client.delete(f"/api/v1/namespaces/{name}")
        if until_gone:

            async def gone() -> bool:
                return await get(client, f"/api/v1/namespaces/{name}") is None

            await eventually(gone, f"namespace {name} to be gone")


def pod(name: str, node: str | None = None, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }
    if node:
        body["spec"]["nodeName"] = node
    return body


def node(name: str, cpu: str = "8", **metadata: Any) -> dict[str, Any]:
    """A Node that kwok plays; it overlooks one without any label."""
    size = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            **metadata,
        },
        "status": {"allocatable": size, "capacity": size},
    }


async def add_ready_node(client: KubeClient, name: str, cpu: str = "8", **labels: str) -> None:
    """A Node of a machine that pods are scheduled to, by the time this returns.

    It is tainted from its creation until the node controller has seen that it is Ready.
    """
    own = {"kubernetes.io/hostname": name, MACHINE_LABEL: name, **labels}
    await client.create("/api/v1/nodes", node(name, cpu, labels=own))

    async def usable() -> bool:
        found = await get(client, f"/api/v1/nodes/{name}")
        conditions = found["status"].get("conditions", [])
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return ready and not found["spec"].get("taints")

    await eventually(usable, f"Node {name} to be Ready and without a taint")


@asynccontextmanager
async def ready_nodes(
    client: KubeClient, *names: str, cpu: str = "8", **labels: str
) -> AsyncIterator[None]:
    """Such Nodes; they go again, if they are still there."""
    await asyncio.gather(*(add_ready_node(client, name, cpu, **labels) for name in names))
    try:
        yield
    finally:
        for name in names:
            if await get(client, f"/api/v1/nodes/{name}") is not None:
                await client.delete(f"/api/v1/nodes/{name}")


def request(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": "1", "pods": "1"}, "priority": 0, **spec},
    }


def requests_path(namespace: str) -> str:
    return f"{GROUP_VERSION}/namespaces/{namespace}/capacityrequests"


@asynccontextmanager
async def role(run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """A role running beside the test; it must end cleanly when told to."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await task


class FakeShard(ShardServicer):
    """Accepts one session at a time and lets the test play the shard's part."""

    def __init__(self) -> None:
        self.hellos: asyncio.Queue[str] = asyncio.Queue()
        self.rollups: asyncio.Queue[ClusterCapacityNeeds] = asyncio.Queue()
        self.blobs: asyncio.Queue[BootstrapBlobResponse] = asyncio.Queue()
        self.acks: asyncio.Queue[ReclaimAck] = asyncio.Queue()
        self.inquiries: asyncio.Queue[NodeStateInquiry] = asyncio.Queue()
        self.reports: asyncio.Queue[DisruptionReport] = asyncio.Queue()
        self.rejected = ""
        self.rejected_items: list[RejectedItem] = []
        self._outbox: asyncio.Queue[ShardMessage | None] = asyncio.Queue()
        self._one_at_a_time = asyncio.Lock()

    def order(self, message: ShardMessage) -> None:
        self._outbox.put_nowait(message)

    def hang_up(self) -> None:
        """End the present session."""
        self._outbox.put_nowait(None)

    async def Session(
        self,
        request_iterator: AsyncIterator[OperatorMessage],
        context: grpc.aio.ServicerContext[OperatorMessage, ShardMessage],  # noqa: ARG002 - gRPC's
    ) -> AsyncIterator[ShardMessage]:
        # A session that ends takes orders until gRPC has noticed; the next hello comes after that.
        async with self._one_at_a_time:
            receiver = asyncio.create_task(self._receive(request_iterator))
            try:
                while (message := await self._outbox.get()) is not None:
                    yield message
            finally:
                receiver.cancel()

    async def _receive(self, messages: AsyncIterator[OperatorMessage]) -> None:
        async for message in messages:
            match message.WhichOneof("message"):
                case "hello":
                    self.hellos.put_nowait(message.hello.cluster_id)
                    self.order(ShardMessage(ack=Acknowledgement(echo=message.hello.cluster_id)))
                case "rollup":
                    self.rollups.put_nowait(message.rollup)
                    echo = str(message.rollup.timestamp_unix_nanos)
                    ack = Acknowledgement(
                        echo=echo, rejected=self.rejected, rejected_items=self.rejected_items
                    )
                    self.order(ShardMessage(ack=ack))
                case "bootstrap_response":
                    self.blobs.put_nowait(message.bootstrap_response)
                case "reclaim_ack":
                    self.acks.put_nowait(message.reclaim_ack)
                case "inquiry":
                    self.inquiries.put_nowait(message.inquiry)
                case "disruption_report":
                    self.reports.put_nowait(message.disruption_report)


@asynccontextmanager
async def fake_shard() -> AsyncIterator[tuple[FakeShard, str]]:
    shard, server = FakeShard(), transport.server()
    add_ShardServicer_to_server(shard, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield shard, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
