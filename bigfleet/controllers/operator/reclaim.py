"""Empties Nodes whose machines the fleet takes back: cordon, evict, then delete the Node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from bigfleet.api.kube.client import NO_ANSWER, NOT_FOUND, ApiError, KubeClient
from bigfleet.api.v1alpha1.shard_pb2 import ReclaimAck, ReclaimInstruction
from bigfleet.controllers.operator.evicting import Evictor
from bigfleet.controllers.operator.machines import RECLAIM_DEADLINE, Node, Nodes, node_path
from bigfleet.controllers.operator.nodes import delete_node
from bigfleet.controllers.operator.pods import PodOnNode, keeping
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.25, 2.0


class _Pods(msgspec.Struct):
    items: list[PodOnNode]


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
        self._evictor = Evictor(client)

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
            deadline = node.emptied_until
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
        if not self._tasks:
            self._evictor.rest()

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
                await self._evict(left, self._deadlines[node.metadata.uid])
            except (ApiError, *NO_ANSWER) as error:
                _LOG.warning("emptying node %s goes on: %s", name, str(error) or repr(error))
                wait = _LAST_LOOK_SECONDS
            if self._now() >= self._deadlines[node.metadata.uid]:
                metrics.operator_evictions.labels("grace-over").inc()
                _LOG.warning("node %s was not empty when its grace was over", name)
                return
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LAST_LOOK_SECONDS)

    async def _evict(self, pods: Iterable[PodOnNode], deadline: float) -> None:
        """Ask for evictions as long as the grace lasts: after that they are not ours to ask for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - self._now())):
                await self._evictor.evict_all(pods, deadline)

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
