"""The anchor controller of one cluster: watches, chooses, and patches nominations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from bigfleet.kube.watch import Changed, Listed
from loaddriver.anchors.choose import Anchor, PodRef, choose
from loaddriver.anchors.cluster_state import ClusterState
from loaddriver.anchors.outcomes import GroupOutcome, OutcomeRecorder
from loaddriver.errors import InfrastructureError
from loaddriver.record.watched import Node, Pod
from loaddriver.record.watching import now_micros

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """A verb on a resource of the core group, in all namespaces."""

    verb: str
    resource: str
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


RIGHTS = (Right("patch", "pods", "status"),)


class _Answer(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Answer = msgspec.field(default_factory=_Answer)


async def require_rights(client: KubeClient, cluster: str) -> None:
    """Check that the client has all RIGHTS. InfrastructureError names the missing ones."""
    missing = [str(right) for right in RIGHTS if not await _allowed(client, right)]
    if missing:
        raise InfrastructureError(
            f"cluster {cluster}: the load driver's user lacks rights that anchors need: "
            f"{', '.join(missing)}; grant them in a ClusterRole, or run with anchors: off"
        )


async def _allowed(client: KubeClient, right: Right) -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": right._asdict()},
    }
    answer = await client.create(_REVIEWS, body)
    return msgspec.json.decode(answer, type=_Review).status.allowed


_LOG = logging.getLogger(__name__)

# Changes come in hundreds and are handled in batches, to save CPU.
_POLL_INTERVAL_SECONDS = 0.5
# kube-scheduler retries a pod within ten seconds after capacity appeared. Nominations that it does
# not follow block capacity for others.
_NOMINATION_TIMEOUT_SECONDS = 30.0
_PATCHES_AT_ONCE = 8
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class AnchorController:
    """The anchors of one cluster. `groups` maps each same-rack group to its planned pods.

    `client` has the load driver's identity. The controller does not watch itself: it is a reader of
    a ClusterWatch, from its first list on.
    """

    def __init__(self, client: KubeClient, cluster: str, groups: Mapping[str, int]) -> None:
        self._client = client
        self._cluster = cluster
        self._recorder = OutcomeRecorder(cluster, groups)
        self._cluster_state = ClusterState(groups, self._recorder)
        self._changed = asyncio.Event()
        self._working = asyncio.Lock()
        self._slots = asyncio.Semaphore(_PATCHES_AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. InfrastructureError names missing rights."""
        await require_rights(self._client, self._cluster)
        tasks = [asyncio.create_task(each) for each in (self._run_loop(), stop.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            # Pending nominations are awaited first, as their results are recorded.
            async with self._working:
                tasks[0].cancel()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def outcomes(self) -> list[GroupOutcome]:
        """The outcome of every planned group, by name; final once `run` and the watch ended."""
        return self._recorder.outcomes(self._cluster_state.rack_of)

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int) -> None:
        """Apply an event on any pod, as every pod uses capacity."""
        self._cluster_state.take_pods(change, now_micros)
        self._changed.set()

    def take_nodes(self, change: Listed[Node] | Changed[Node], _: int) -> None:
        """Apply an event on any node."""
        self._cluster_state.take_nodes(change)
        self._changed.set()

    async def _run_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_NOMINATION_TIMEOUT_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            async with self._working:
                await self._reconcile()
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def _reconcile(self) -> None:
        followed_until = now_micros() - int(_NOMINATION_TIMEOUT_SECONDS * 1e6)
        for anchor in self._cluster_state.expire_nominations(followed_until):
            reason = f"kube-scheduler followed no nomination to rack {anchor.rack}"
            self._recorder.record_obstacle(anchor.group, reason)
            await self._nominate_all(anchor, withdraw=True)
        if not self._cluster_state.any_group_pending:
            return
        choice = choose(self._cluster_state.groups(), self._cluster_state.nodes())
        for group, reason in choice.no_room.items():
            self._recorder.record_obstacle(group, reason)
        for anchor in choice.anchors:
            self._cluster_state.nominated(anchor, now_micros())
        await asyncio.gather(*(self._nominate_all(anchor) for anchor in choice.anchors))

    async def _nominate_all(self, anchor: Anchor, *, withdraw: bool = False) -> None:
        places = [(pod, "" if withdraw else node) for pod, node in anchor.places]
        nominations = [
            self._nominate(anchor.group, pod, node)
            for pod, node in places
            if self._cluster_state.is_pending(pod)
        ]
        for failure in await asyncio.gather(*nominations, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _nominate(self, group: str, pod: PodRef, node: str) -> None:
        """Patch the nominated node of a pod; the UID protects a later pod of that name."""
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        async with self._slots:
            try:
                await self._client.patch(path, body)
            except (ApiError, *CONNECTION_ERRORS) as error:
                reason = f"nominating {node or 'nothing'} for {pod.name} failed: {error!s}"
                status = error.status if isinstance(error, ApiError) else None
                if status in (_UNAUTHORIZED, _FORBIDDEN):
                    raise InfrastructureError(f"cluster {self._cluster}: {reason}") from None
                _LOG.info("cluster %s: group %s: %s", self._cluster, group, reason)
                self._recorder.record_obstacle(group, reason)
