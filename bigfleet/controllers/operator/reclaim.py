"""Empties Nodes whose machines the fleet takes back: cordon, evict, then delete the Node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from bigfleet.api.kube.client import (
    CONFLICT,
    NO_ANSWER,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    ApiError,
    KubeClient,
    is_transient,
)
from bigfleet.api.v1alpha1.shard_pb2 import ReclaimAck, ReclaimInstruction
from bigfleet.controllers.operator.machines import RECLAIM_DEADLINE, Node, Nodes, node_path
from bigfleet.controllers.operator.nodes import delete_node
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.25, 2.0
_CONCURRENT_EVICTIONS = 16
_MIRROR = "kubernetes.io/config.mirror"


class _Owner(msgspec.Struct):
    kind: str
    controller: bool = False


class _PodMetadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class PodOnNode(msgspec.Struct):
    """A Pod as far as it matters to the emptying of its Node."""

    metadata: _PodMetadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Pods(msgspec.Struct):
    items: list[PodOnNode]


def keeping(pods: Iterable[PodOnNode]) -> list[PodOnNode]:
    """Those for whose sake a Node is not empty: not what runs on every Node, nor what has ended."""
    return [pod for pod in pods if not _belongs_to_node(pod) and not _ended(pod)]


def _belongs_to_node(pod: PodOnNode) -> bool:
    owners = pod.metadata.owner_references or ()
    daemon = any(o.controller and o.kind == "DaemonSet" for o in owners)
    return daemon or _MIRROR in (pod.metadata.annotations or {})


def _ended(pod: PodOnNode) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


class Reclaims:
    """Reclaims under way, one task a Node: one that joins anew under its name is another Node.

    `now` is the time in seconds since 1970.

    When the grace is over, evicting ends: the provider then takes the machine, and the update that
    says so removes the Node.
    """

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now
        self._deadlines: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._evictions = asyncio.Semaphore(_CONCURRENT_EVICTIONS)

    async def begin(self, instruction: ReclaimInstruction) -> ReclaimAck | None:
        """Cordon the nodes and start to empty them; None when no node could be cordoned."""
        deadline = self._now() + instruction.grace_period_seconds
        started = 0
        for name in instruction.nodes:
            started += await self._begin_one(name, deadline)
        if instruction.nodes and not started:
            return None
        return ReclaimAck(instruction_id=instruction.instruction_id, nodes_started=started)

    async def resume(self) -> None:
        """Go on with what an earlier operator began; past its grace it is not ours any more."""
        nodes = msgspec.json.decode(await self._client.get("/api/v1/nodes"), type=Nodes)
        for node in nodes.items:
            deadline = node.reclaim_deadline
            if deadline is not None and deadline > self._now():
                self._start(node, deadline)

    async def close(self) -> None:
        """Stop emptying; the cordons stay."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin_one(self, name: str, deadline: float) -> bool:
        try:
            node = await self._cordon(name, deadline)
        except ApiError as error:
            if error.status != NOT_FOUND:
                _LOG.error("cannot cordon node %s: %s", name, error)
                return False
            _LOG.warning("node %s is to be reclaimed but is not there: nothing to evict", name)
            return True
        except NO_ANSWER as error:
            _LOG.error("cannot cordon node %s: %r", name, error)
            return False
        self._start(node, deadline)
        return True

    async def _cordon(self, name: str, deadline: float) -> Node:
        patch = {
            "metadata": {"annotations": {RECLAIM_DEADLINE: f"{deadline:.3f}"}},
            "spec": {"unschedulable": True},
        }
        return msgspec.json.decode(await self._client.patch(node_path(name), patch), type=Node)

    def _start(self, node: Node, deadline: float) -> None:
        uid = node.metadata.uid
        self._deadlines[uid] = deadline
        if uid not in self._tasks:
            task = self._tasks[uid] = asyncio.create_task(self._empty(node))
            task.add_done_callback(lambda _: self._end(uid))

    def _end(self, uid: str) -> None:
        del self._tasks[uid], self._deadlines[uid]

    async def _empty(self, node: Node) -> None:
        name, wait = node.metadata.name, _FIRST_LOOK_SECONDS
        while True:
            try:
                left = await self._left_on(name)
                # In this order: what was listed before the Node was seen to be still the same one
                # is not on a Node that joined since under its name.
                if not await self._still_there(node):
                    return
                if not left:
                    await delete_node(self._client, node)
                    return
                await self._evict_all(left)
            except (ApiError, *NO_ANSWER) as error:
                _LOG.warning("emptying node %s goes on: %s", name, str(error) or repr(error))
                wait = _LAST_LOOK_SECONDS
            if self._now() >= self._deadlines[node.metadata.uid]:
                metrics.operator_evictions.labels("grace-over").inc()
                _LOG.warning("node %s was not empty when its grace was over", name)
                return
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LAST_LOOK_SECONDS)

    async def _still_there(self, node: Node) -> bool:
        """Whether it is this very Node still: one that joined since under its name is not ours."""
        try:
            found = await self._client.get(node_path(node.metadata.name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return msgspec.json.decode(found, type=Node).metadata.uid == node.metadata.uid

    async def _left_on(self, node: str) -> list[PodOnNode]:
        """The Pods for whose sake the Node is not empty."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        pods = msgspec.json.decode(await self._client.get("/api/v1/pods", query), type=_Pods)
        return keeping(pods.items)

    async def _evict_all(self, pods: Iterable[PodOnNode]) -> None:
        """Ask for the eviction of what is not leaving yet."""
        await asyncio.gather(
            *(self._evict(pod) for pod in pods if pod.metadata.deletion_timestamp is None)
        )

    async def _evict(self, pod: PodOnNode) -> None:
        metadata = pod.metadata
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        async with self._evictions:
            outcome = await self._outcome(path, eviction)
        metrics.operator_evictions.labels(outcome).inc()

    async def _outcome(self, path: str, eviction: Mapping[str, object]) -> str:
        try:
            await self._client.create(path, eviction)
        except ApiError as error:
            if error.status in (NOT_FOUND, CONFLICT):
                return "gone"  # or another Pod of its name by now
            if error.status == TOO_MANY_REQUESTS:
                return "refused"  # by a disruption budget; asked again
            if is_transient(error):
                return "failed"
            _LOG.error("%s", error)
            return "failed"
        return "evicted"
