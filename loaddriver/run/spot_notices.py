"""Stands in for what acts on notices of interruption in a fleet of spot machines.

Clouds tell a machine that it will be interrupted, not the autoscaler; a handler on its Node, such
as aws-node-termination-handler, cordons the Node and evicts its pods. Simulated machines run none,
so the harness does that for them. Disruption budgets hold as for any eviction; what has not left
when the notice is over is lost with its Node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from contextlib import suppress

import msgspec

from bigfleet.kube.client import (
    CONFLICT,
    CONNECTION_ERRORS,
    NOT_FOUND,
    ApiError,
    KubeClient,
    is_transient,
)
from bigfleet.kube.types import ObjectList, ObjectMeta, eviction_of
from bigfleet.model.labels import CAPACITY_TYPE_LABEL, capacity_type_label
from loaddriver.errors import InfrastructureError
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, ZONE_KEY
from loaddriver.plan.market import Kind
from loaddriver.substrates.base import Cluster

# Between attempts: machines may join meanwhile, and budgets refuse evictions.
_RETRY_SECONDS = 1.0
_EVICTIONS_AT_ONCE = 16
_ENDED = ("Succeeded", "Failed")

_LOG = logging.getLogger(__name__)


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False


class _Node(msgspec.Struct):
    metadata: ObjectMeta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def leaves(self) -> bool:
        """Whether it is to be evicted: it runs, and is not a DaemonSet's."""
        owner = self.metadata.controller
        of_daemon_set = owner is not None and owner.kind == "DaemonSet"
        stays = self.status.phase in _ENDED or self.metadata.deletion_timestamp is not None
        return not of_daemon_set and not stays


async def act_on_notice(clusters: Iterable[Cluster], kind: Kind, seconds: float) -> None:
    """Cordon all Nodes of the spot machines of a kind, and evict their pods, for `seconds`.

    Raises InfrastructureError if an API server refuses that.
    """
    async with asyncio.TaskGroup() as group:
        for cluster in clusters:
            group.create_task(_act_in(cluster, kind, seconds))


async def _act_in(cluster: Cluster, kind: Kind, seconds: float) -> None:
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        await drain_kind(client, kind)
                    except ApiError as error:
                        if not is_transient(error):
                            raise InfrastructureError(f"cluster {cluster.name}: {error}") from None
                        _LOG.info("cluster %s, retrying: %s", cluster.name, error)
                    except CONNECTION_ERRORS as error:
                        _LOG.info("cluster %s, retrying: %r", cluster.name, error)
                    await asyncio.sleep(_RETRY_SECONDS)


async def drain_kind(client: KubeClient, kind: Kind) -> None:
    """Cordon the Nodes of a kind that are there now, and request each eviction once.

    ApiError for other refusals than those of disruption budgets.
    """
    labels = {
        INSTANCE_TYPE_KEY: kind.instance_type,
        ZONE_KEY: kind.zone,
        CAPACITY_TYPE_LABEL: capacity_type_label(kind.capacity_type),
    }
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    body = await client.get("/api/v1/nodes", {"labelSelector": selector})
    nodes = msgspec.json.decode(body, type=ObjectList[_Node]).items
    cordon = {"spec": {"unschedulable": True}}
    for node in nodes:
        if not node.spec.unschedulable:
            await _unless_gone(client.patch(f"/api/v1/nodes/{node.metadata.name}", cordon))
    slots = asyncio.Semaphore(_EVICTIONS_AT_ONCE)
    for node in nodes:
        on_node = {"fieldSelector": f"spec.nodeName={node.metadata.name}"}
        found = await client.get("/api/v1/pods", on_node)
        pods = msgspec.json.decode(found, type=ObjectList[_Pod]).items
        await asyncio.gather(*(_evict(client, pod, slots) for pod in pods if pod.leaves))


async def _evict(client: KubeClient, pod: _Pod, slots: asyncio.Semaphore) -> None:
    path, eviction = eviction_of(pod.metadata)
    async with slots:
        await _unless_gone(client.create(path, eviction))


async def _unless_gone(request: Awaitable[bytes]) -> None:
    """The object may have gone, or been replaced; a refusal by a budget is retried later."""
    try:
        await request
    except ApiError as error:
        if error.status not in (NOT_FOUND, CONFLICT) and not is_transient(error):
            raise
