"""Drains Nodes whose machines the fleet reclaims: cordon, evict, then delete the Node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from bigfleet.api.v1alpha1.shard_pb2 import ReclaimAck, ReclaimInstruction
from bigfleet.api.wellknown import POD_UID_LABEL, RECLAIM_DEADLINE, RECLAIM_REVIEW
from bigfleet.controllers.operator.eviction import Evictor
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.controllers.operator.pods import PodOnNode, blocking_pods_on
from bigfleet.controllers.operator.request_cache import REQUESTS, CapacityRequest
from bigfleet.controllers.operator.upcoming_nodes import delete_node
from bigfleet.kube.client import CONFLICT, CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import group_text
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_MIN_POLL_INTERVAL_SECONDS, _MAX_POLL_INTERVAL_SECONDS = 0.25, 2.0
_UNCORDON_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)

# Returns why these Nodes must not be drained at that cost; "" if they may be, and then they are.
Review = Callable[[Sequence[str], float], Awaitable[str]]


class Reclaimer:
    """Reclaims in progress, one task for each Node (by UID).

    `now` is Unix time. `is_broken` tells whether pods cannot run on a Node any more, so that
    draining it disrupts nothing.

    Evictions stop when the grace period is over: the provider then takes the machine, and the
    update about it removes the Node.
    """

    def __init__(
        self,
        client: KubeClient,
        now: Callable[[], float],
        review: Review,
        is_broken: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._client, self._now, self._review = client, now, review
        self._is_broken = is_broken
        self._deadlines: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._evictor = Evictor(client)

    async def start(self, instruction: ReclaimInstruction) -> ReclaimAck | None:
        """Cordon the nodes and start draining them, or return why not; None when it is unknown
        whether any was cordoned.

        Only machines of the fleet are drained; for a `gang` that has left them, only if they run
        pods of it. With `max_cost` the nodes are cordoned first and assessed again; if they cost
        more, they are uncordoned.
        """
        names, identity = list(instruction.nodes), instruction.instruction_id
        try:
            nodes = [node for name in names if (node := await self._find(name)) is not None]
            if not_owned_reason := next(
                (node.not_owned_reason for node in nodes if node.not_owned_reason), ""
            ):
                return _refused(identity, "foreign", not_owned_reason)
            waiting = [node for node in nodes if not self._disrupts_nothing(node)]
            if instruction.gang and waiting and not await self._run_gang(waiting, instruction.gang):
                return _refused(identity, "gang", f"no pod of {instruction.gang} runs there")
            if instruction.HasField("max_cost") and (
                why := await self._too_costly(waiting, instruction.max_cost)
            ):
                return _refused(identity, "disruption", why)
        except (ApiError, *CONNECTION_ERRORS) as error:
            _LOG.error("cannot assess nodes %s: %s", ", ".join(names), str(error) or repr(error))
            return None
        deadline = self._now() + instruction.grace_period_seconds
        started = len(names) - len(nodes)
        for node in nodes:
            started += await self._start_one(node, deadline)
        if names and not started:
            return None
        return ReclaimAck(instruction_id=identity, nodes_started=started)

    async def resume(self) -> None:
        """Resume the drains of a previous operator whose grace period is not over, and uncordon the
        Nodes that it had cordoned only for a review.
        """
        nodes = msgspec.json.decode(await self._client.get("/api/v1/nodes"), type=ObjectList[Node])
        for node in nodes.items:
            deadline = node.drain_deadline
            if deadline is not None and deadline > self._now() and not node.not_owned_reason:
                self._start(node, deadline)
            elif deadline is None and node.under_review:
                await self._uncordon(node)

    async def close(self) -> None:
        """Stop draining; Nodes stay cordoned."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, name: str) -> Node | None:
        try:
            return msgspec.json.decode(await self._client.get(node_path(name)), type=Node)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        _LOG.warning("node %s to be reclaimed does not exist: nothing to evict", name)
        return None

    def _disrupts_nothing(self, node: Node) -> bool:
        """Whether its reclaim disrupts nothing more: it is being drained, or is broken."""
        return node.reclaim_deadline is not None or self._is_broken(node.metadata.name)

    async def _run_gang(self, nodes: Sequence[Node], gang: str) -> bool:
        """Whether any of the Nodes runs a pod of the gang whose group has this text."""
        uids: list[str] = []
        for node in nodes:
            pods = await blocking_pods_on(self._client, node.metadata.name, current=True)
            uids += [pod.metadata.uid for pod in pods]
        if not uids:
            return False
        of_these = {"labelSelector": f"{POD_UID_LABEL} in ({','.join(uids)})"}
        raw = await self._client.get(REQUESTS, {**of_these, "resourceVersion": "0"})
        requests = msgspec.json.decode(raw, type=ObjectList[CapacityRequest]).items
        return any(_is_of(request, gang) for request in requests)

    async def _too_costly(self, nodes: Sequence[Node], max_cost: float) -> str:
        """Why the nodes must not be reclaimed, which are then uncordoned; "" if they may be.

        They are cordoned before the assessment: it would miss pods that are bound later.
        """
        ours = [node for node in nodes if not node.spec.unschedulable or node.under_review]
        why = "the assessment failed"
        try:
            for node in ours:
                await self._patch(node, {RECLAIM_REVIEW: "true"}, cordoned=True)
            why = await self._review([node.metadata.name for node in nodes], max_cost)
        finally:
            if why:
                for node in ours:
                    await self._uncordon(node)
        return why

    async def _uncordon(self, node: Node) -> None:
        """Remove our cordon, unless the node is being drained by now."""
        name, uid = node.metadata.name, node.metadata.uid
        for wait in (*_UNCORDON_RETRY_SECONDS, None):
            if uid in self._tasks:
                return
            try:
                await self._patch(node, {RECLAIM_REVIEW: None}, cordoned=False)
                return
            except (ApiError, *CONNECTION_ERRORS) as error:
                if isinstance(error, ApiError) and error.status in (NOT_FOUND, CONFLICT):
                    return
                _LOG.warning("node %s is still cordoned: %s", name, str(error) or repr(error))
            if wait is not None:
                await asyncio.sleep(wait)

    async def _start_one(self, node: Node, deadline: float) -> bool:
        name = node.metadata.name
        annotations = {RECLAIM_DEADLINE: f"{deadline:.3f}", RECLAIM_REVIEW: None}
        try:
            await self._patch(node, annotations, cordoned=True)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return True
            _LOG.error("cannot cordon node %s: %s", name, error)
            return False
        except CONNECTION_ERRORS as error:
            _LOG.error("cannot cordon node %s: %r", name, error)
            return False
        self._start(node, deadline)
        return True

    async def _patch(
        self, node: Node, annotations: Mapping[str, str | None], *, cordoned: bool
    ) -> None:
        """Patch this Node by UID: a conflict if another one has its name by now."""
        metadata = {"uid": node.metadata.uid, "annotations": annotations}
        patch = {"metadata": metadata, "spec": {"unschedulable": cordoned}}
        await self._client.patch(node_path(node.metadata.name), patch)

    def _start(self, node: Node, deadline: float) -> None:
        uid = node.metadata.uid
        self._deadlines[uid] = deadline
        if uid not in self._tasks:
            task = self._tasks[uid] = asyncio.create_task(self._drain(node))
            task.add_done_callback(lambda _: self._end(uid))

    def _end(self, uid: str) -> None:
        del self._tasks[uid], self._deadlines[uid]
        if not self._tasks:
            self._evictor.reset()

    async def _drain(self, node: Node) -> None:
        name, wait = node.metadata.name, _MIN_POLL_INTERVAL_SECONDS
        while True:
            try:
                left = await blocking_pods_on(self._client, name, current=True)
                # In this order: pods listed before the Node's UID was verified cannot be on a Node
                # that has since joined under its name.
                if not await self._still_there(node):
                    return
                if not left:
                    await delete_node(self._client, node)
                    return
                await self._evict(left, self._deadlines[node.metadata.uid])
            except (ApiError, *CONNECTION_ERRORS) as error:
                _LOG.warning("draining node %s, retrying: %s", name, str(error) or repr(error))
                wait = _MAX_POLL_INTERVAL_SECONDS
            if self._now() >= self._deadlines[node.metadata.uid]:
                metrics.operator_evictions.labels("grace-over").inc()
                _LOG.warning("node %s was not empty at the end of its grace period", name)
                return
            await asyncio.sleep(wait)
            wait = min(wait * 2, _MAX_POLL_INTERVAL_SECONDS)

    async def _evict(self, pods: Iterable[PodOnNode], deadline: float) -> None:
        """Evict `pods` until the deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - self._now())):
                await self._evictor.evict_all(pods, deadline)

    async def _still_there(self, node: Node) -> bool:
        """Whether the Node of that name still has the same UID."""
        try:
            found = await self._client.get(node_path(node.metadata.name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return msgspec.json.decode(found, type=Node).metadata.uid == node.metadata.uid


def _is_of(request: CapacityRequest, gang: str) -> bool:
    try:
        return group_text(request.demand.group) == gang
    except (InvalidInput, msgspec.ValidationError):
        return False


def _refused(instruction_id: str, reason: str, why: str) -> ReclaimAck:
    _LOG.info("%s refused: %s", instruction_id, why)
    metrics.operator_reclaims_refused.labels(reason).inc()
    return ReclaimAck(instruction_id=instruction_id, refused=why)
