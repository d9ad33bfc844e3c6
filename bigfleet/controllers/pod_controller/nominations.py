"""Nominates a new Node for waiting pods that depend on this one.

kube-scheduler keeps the room of nominated pods from others of no higher priority, and tries their
nominated Node first. Without a nomination a new Node is often full before such a pod is retried:
the emptiest Node is preferred for every pod, and an unschedulable pod may be retried ten seconds
later. Most pods may go elsewhere. One that takes most of a Node finds room on hardly any other, and
a machine was acquired for it. Of those that have requested an additional machine, one that takes
much of a Node has waited for such a one, one that must run beside its gang depends on this Node, a
gang none of which runs begins on it, and one that runs beside none of its kind finds no other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from bigfleet.controllers.pod_controller.events import PodName
from bigfleet.controllers.pod_controller.existing_requests import RequestKey
from bigfleet.controllers.pod_controller.nodes import Machine, Node
from bigfleet.controllers.pod_controller.occupancy import Occupancy
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.controllers.pod_controller.upcoming import RemainingCapacity, avoids
from bigfleet.kube.client import (
    CONNECTION_ERRORS,
    JSON_PATCH,
    MERGE_PATCH,
    ApiError,
    KubeClient,
)
from bigfleet.kube.types import TRANSIENT_TAINT_PREFIXES
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
# Of a patch: the pod is gone, another one has its name, or its status has changed.
_CHANGED = (404, 409, 422)
# By then a watch has told of our own nomination.
_WATCH_SECONDS = 2.0
# kube-scheduler retries after ten seconds at most; a pod that is still waiting then does not fit.
NOMINATION_SECONDS = 30.0
# By then kube-scheduler has filled a Node that has joined with the pods that waited.
_NEW_SECONDS = 30.0
# Shares of a Node's amount of some resource.
_MOST, _MUCH = 0.5, 0.25


class Candidate(NamedTuple):
    """A waiting pod with its first request; `asked`: it has requested an additional machine."""

    key: RequestKey
    pod: PodName
    shape: Shape
    asked: bool


class _Nomination(NamedTuple):
    pod: PodName
    shape: Shape
    node: str
    since_seconds: float
    #: whether the Node was ready: kube-scheduler could follow the nomination
    node_ready: bool
    #: a watch has told of it
    seen: bool = False
    #: after a failed attempt kube-scheduler has dropped it
    dropped: bool = False


class Nominations:
    """The Nodes that were nominated for pods, and since when. `now` is in monotonic seconds;
    `candidates` are the pods to nominate Nodes for, the first of them first.
    """

    def __init__(
        self,
        client: KubeClient,
        occupancy: Occupancy,
        now: Callable[[], float],
        candidates: Callable[[], Iterable[Candidate]],
    ) -> None:
        self._client, self._occupancy, self._now = client, occupancy, now
        self._candidates = candidates
        self._nominated: dict[RequestKey, _Nomination] = {}
        #: whose nominations are being written: to withdraw one before would change nothing
        self._under_way: set[RequestKey] = set()
        self._joined: asyncio.Queue[str] = asyncio.Queue()
        #: when Nodes that are new joined
        self._new: dict[str, float] = {}

    async def run(self) -> None:
        """Nominate each Node that joins, until cancelled."""
        while True:
            name = await self._joined.get()
            node = self._occupancy.nodes.get(name)
            if node is not None:
                found, now = self.fitting(node), self._now()
                self._restart_those_before(node, now)
                for each in found:
                    self._record(each, node, now)
                self._under_way = {each.key for each in found}
                # kube-scheduler fills the Node meanwhile.
                await asyncio.gather(*(self._nominate(each.pod, name) for each in found))
                self._under_way = set()

    def _record(self, candidate: Candidate, node: Node, now: float) -> None:
        former = self._nominated.get(candidate.key)
        if former is not None and former.dropped and former.node == node.name:
            now = former.since_seconds  # else a pod that does not fit would keep its room for good
        pod, shape = candidate.pod, candidate.shape
        self._nominated[candidate.key] = _Nomination(pod, shape, node.name, now, node.ready)

    def _restart_those_before(self, node: Node, now: float) -> None:
        """Let kube-scheduler have the whole time for those made before the Node was ready."""
        for key, each in self._nominated.items():
            if each.node == node.name and node.ready and not each.node_ready:
                self._nominated[key] = each._replace(since_seconds=now, node_ready=True)

    def on_node(self, before: Node | None, node: Node) -> None:
        """Notice a new Node, and one that has become ready: kube-scheduler may have dropped its
        nominations meanwhile.
        """
        if before is None or (node.ready and not before.ready):
            now = self._now()
            self._new = {name: at for name, at in self._new.items() if now - at <= _NEW_SECONDS}
            self._new[node.name] = now
            self._joined.put_nowait(node.name)

    def observe(self, key: RequestKey, nominated: str) -> None:
        """Notice which Node a waiting pod has nominated now, "" for none. What kube-scheduler drops
        is nominated again: its attempt may have begun before the Node was ready.
        """
        each = self._nominated.get(key)
        if each is None or (nominated == each.node) == each.seen:
            return
        if not each.seen:
            self._nominated[key] = each._replace(seen=True)
        elif not nominated:
            self._nominated[key] = each._replace(seen=False, dropped=True)
            self._joined.put_nowait(each.node)

    def is_new(self, node: str) -> bool:
        """Whether a Node of that name has just joined, or become ready."""
        return self._now() - self._new.get(node, -math.inf) <= _NEW_SECONDS

    def forget(self, key: RequestKey) -> None:
        """Forget a pod that is bound or deleted."""
        self._nominated.pop(key, None)

    async def withdraw_vain(self) -> None:
        """Withdraw the nominations that kube-scheduler has not followed, and those of Nodes that
        others have filled.
        """
        until, has_room = self._now() - NOMINATION_SECONDS, self._has_room()
        vain = [
            (key, each)
            for key, each in self._nominated.items()
            if key not in self._under_way and (each.since_seconds <= until or not has_room(each))
        ]
        for key, nomination in vain:
            # While the one before was withdrawn, the pod may have been bound or deleted, or another
            # Node nominated for it.
            if self._nominated.get(key) is nomination:
                del self._nominated[key]
                await self._withdraw(nomination)

    def _has_room(self) -> Callable[[_Nomination], bool]:
        """Tells whether a pod still fits on its nominated Node, as far as is known."""
        nodes, placed = self._occupancy.nodes, self._occupancy.placed
        free = cache(lambda name: _free(nodes[name], self._occupancy))
        allowed_domains = cache(self._occupancy.allowed_domains)

        def has_room(nomination: _Nomination) -> bool:
            node, shape = nodes.get(nomination.node), nomination.shape
            if node is None:
                return True  # it may not have been seen yet
            here = (other for other, pods in placed.items() if pods.get(node.name))
            if any(avoids(shape, other) or avoids(other, shape) for other in here):
                return False
            return RemainingCapacity(free(node.name)).take(shape, 1, allowed_domains(shape)) > 0

        return has_room

    def fitting(self, node: Node) -> list[Candidate]:
        """The candidates that fit on the Node together, of those that take most of it, and of those
        that have requested a machine and take much of it, must run beside others, or beside none of
        their kind.
        """
        if node.cordoned or node.reclaiming:
            return []
        # Candidates have no Node nominated, as far as their watch says.
        late = self._now() - _WATCH_SECONDS
        # Thousands of pods may wait, of few shapes.
        depends = cache(partial(_depends_on, node))
        just_now = {
            key
            for key, each in self._nominated.items()
            if each.since_seconds > late and not each.dropped
        }
        candidates = [
            each
            for each in self._candidates()
            if each.key not in just_now and depends(each.shape, asked=each.asked)
        ]
        return self._together(candidates, node) if candidates else []

    def _together(self, candidates: Sequence[Candidate], node: Node) -> list[Candidate]:
        """Those that fit on the Node together, the first of them first, beside those for which it
        is nominated already.
        """
        # Of pods that do not fit together kube-scheduler places none: it keeps the others' room.
        room = RemainingCapacity(_free(node, self._occupancy))
        again = {each.key for each in candidates}
        for key, there in self._nominated.items():
            if there.node == node.name and key not in again:
                room.take(there.shape, 1, self._occupancy.allowed_domains(there.shape))
        found: list[Candidate] = []
        full: set[Shape] = set()
        for each in candidates:
            if each.shape in full:
                continue  # what is left only becomes less
            if room.take(each.shape, 1, self._occupancy.allowed_domains(each.shape)):
                found.append(each)
            else:
                full.add(each.shape)
        return found

    async def _nominate(self, pod: PodName, node: str) -> None:
        # The UID protects a later pod of that name.
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        if await self._patched(pod, body, MERGE_PATCH):
            metrics.pod_controller_nominations.inc()

    async def _withdraw(self, nomination: _Nomination) -> None:
        # Not one that kube-scheduler has made since: it may be preempting others for the pod.
        pod, field = nomination.pod, "/status/nominatedNodeName"
        steps = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": field, "value": nomination.node},
            {"op": "remove", "path": field},
        ]
        await self._patched(pod, steps, JSON_PATCH)

    async def _patched(self, pod: PodName, body: Any, content_type: str) -> bool:
        """Whether the API server accepted the patch of the pod's status; a pod that has changed or
        gone is none of its business any more.
        """
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            await self._client.patch(path, body, content_type)
        except (ApiError, *CONNECTION_ERRORS) as error:
            if not isinstance(error, ApiError) or error.status not in _CHANGED:
                _LOG.warning("cannot nominate a node: %s", str(error) or repr(error))
            return False
        return True


def _depends_on(node: Node, shape: Shape, *, asked: bool) -> bool:
    """Whether a waiting pod, which has `asked` for a machine, may find no other Node as good."""
    share = _MUCH if asked else _MOST
    if any(shape.requests.get(name, 0) > share * n for name, n in node.allocatable.items()):
        return True
    return asked and (bool(shape.affinity_terms) or avoids(shape, shape))


def _free(node: Node, occupancy: Occupancy) -> Machine:
    """What is free on the Node once the pods of its DaemonSets run: before, as much is left for
    them as they take on any other Node.
    """
    used: Counter[str] = Counter()
    per_node: dict[str, Counter[str]] = {}
    for shape, nodes in occupancy.placed.items():
        _add(used, shape.requests, nodes.get(node.name, 0))
        if shape.is_per_node:
            for name, count in nodes.items():
                _add(per_node.setdefault(name, Counter()), shape.requests, count)
    for amounts in per_node.values():
        used |= amounts
    taints = tuple(
        taint for taint in node.taints if not taint.key.startswith(TRANSIENT_TAINT_PREFIXES)
    )
    left = {name: amount - used[name] for name, amount in node.allocatable.items()}
    return Machine(node.labels, left, taints)


def _add(total: Counter[str], requests: Mapping[str, int], pods: int) -> None:
    if pods:
        for name, amount in requests.items():
            total[name] += amount * pods
