"""Binds the anchors of one cluster: the shell around the decision."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.api.kube.client import CONFLICT, NO_ANSWER, ApiError, KubeClient
from bigfleet.api.kube.watch import Changed, Listed
from loaddriver.anchors.census import Census
from loaddriver.anchors.choose import Anchor, PodRef, choose
from loaddriver.anchors.objects import ANCHOR_ANNOTATION
from loaddriver.anchors.outcomes import GroupOutcome, Ledger
from loaddriver.anchors.rights import require_rights
from loaddriver.errors import InfrastructureError
from loaddriver.record.watched import Node, Pod
from loaddriver.record.watching import now_micros

_LOG = logging.getLogger(__name__)

# Changes come by the hundred; looking at each of them alone would only take the cores from others.
_ROUND_SECONDS = 0.5
_BINDINGS_AT_ONCE = 8
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class Anchors:
    """Anchors of one cluster. `groups` maps each same-rack group to its planned number of pods.

    `client` speaks as the load driver, so that the audit log names who bound an anchor. It does not
    watch: the anchors are a reader of a ClusterWatch, from its first list on.
    """

    def __init__(self, client: KubeClient, cluster: str, groups: Mapping[str, int]) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = Ledger(cluster, groups)
        self._census = Census(groups, self._ledger)
        self._changed = asyncio.Event()
        self._binding = asyncio.Lock()
        self._slots = asyncio.Semaphore(_BINDINGS_AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. InfrastructureError when rights are missing, which it names."""
        await require_rights(self._client, self._cluster)
        tasks = [asyncio.create_task(each) for each in (self._rounds(), stop.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            # Bindings under way are answered first: what they did belongs to the record.
            async with self._binding:
                tasks[0].cancel()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def outcomes(self) -> list[GroupOutcome]:
        """How every planned group began, by name; final once `run` and the watch have ended."""
        return self._ledger.outcomes(self._census.rack_of, self._census.over_full)

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int) -> None:
        """Note what the watch said of all pods, whoever made them: each takes up room."""
        self._census.take_pods(change, now_micros)
        self._changed.set()

    def take_nodes(self, change: Listed[Node] | Changed[Node], _: int) -> None:
        """Note what the watch said of all nodes."""
        self._census.take_nodes(change)
        self._changed.set()

    async def _rounds(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self._binding:
                await self._round()
            await asyncio.sleep(_ROUND_SECONDS)

    async def _round(self) -> None:
        if not self._census.anyone_waits:
            return
        choice = choose(self._census.groups(), self._census.nodes())
        for group, reason in choice.no_room.items():
            self._ledger.obstacle(group, reason)
        bindings = [self._bind(anchor) for anchor in choice.anchors]
        for failure in await asyncio.gather(*bindings, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _bind(self, anchor: Anchor) -> None:
        async with self._slots:
            self._census.trying(anchor)
            try:
                await self._client.create(f"{_path(anchor.pod)}/binding", _body(anchor))
            except (ApiError, *NO_ANSWER) as error:
                await self._refused(anchor, error)
            else:
                self._census.anchored(anchor, now_micros())

    async def _refused(self, anchor: Anchor, error: Exception) -> None:
        reason = f"binding {anchor.pod.name} to {anchor.node} failed: {error!s}"
        status = error.status if isinstance(error, ApiError) else None
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise InfrastructureError(f"cluster {self._cluster}: {reason}")
        _LOG.info("cluster %s: group %s: %s", self._cluster, anchor.group, reason)
        self._ledger.obstacle(anchor.group, reason)
        if status == CONFLICT:
            await self._look_at(anchor.pod)
        self._changed.set()

    async def _look_at(self, ref: PodRef) -> None:
        """A conflict may mean that the pod is bound, leaving, or another of that name by now."""
        try:
            pod = msgspec.json.decode(await self._client.get(_path(ref)), type=Pod)
        except (ApiError, *NO_ANSWER):
            return  # the watch will tell
        if pod.metadata.uid == ref.uid and self._census.knows(ref):
            self._census.take_pods(Changed(pod, deleted=False), now_micros())


def _path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _body(anchor: Anchor) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": anchor.pod.name,
            "namespace": anchor.pod.namespace,
            "uid": anchor.pod.uid,
            "annotations": {ANCHOR_ANNOTATION: "true"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": anchor.node},
    }
