"""What it would disturb to give machines back: asked of those who know, when the shard asks.

The pod controller says which Nodes can go, since it watches Pods; we list the Pods of just those
Nodes, and the budgets. Without a pod controller nobody knows what is free: then only an empty Node
is known to be free to go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.shard_pb2 import DisruptionInquiry, DisruptionReport, MachineDisruption
from bigfleet.controllers.disruption_cost import node_blocking_annotation
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.controllers.operator.pods import Budget, PodOnNode, blocking_pods
from bigfleet.kube.client import CONNECTION_ERRORS, FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.watch import Listed, Watch
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_REVIEWS = f"{GROUP_VERSION}/disruptionreviews"
_REVIEW_SECONDS = 5.0
# Some of those that have room elsewhere turn out to be forbidden by a budget.
SPARE_CANDIDATES = 8
_MAX_NODES = 100
_LISTS_AT_ONCE = 8
_STALE_SECONDS, _SWEEP_SECONDS = 300.0, 60.0
FIT_UNKNOWN = "nobody knows whether its pods find room"
_FIT_STALE = "more pods run there than the pod controller had seen when it looked for room"


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    creation_timestamp: datetime


class _NodeDisruption(msgspec.Struct):
    name: str
    pods: int
    fits: bool
    message: str = ""

    def rejection_reason(self, pods: int) -> str:
        """Why a Node on which so many pods run now must not be emptied; "" when it may be."""
        if not self.fits:
            return self.message
        return _FIT_STALE if pods > self.pods else ""


# What nobody has looked at.
_UNKNOWN = _NodeDisruption("", 0, fits=False, message=FIT_UNKNOWN)


class _Status(msgspec.Struct, rename="camel"):
    observed_at: str = ""
    nodes: list[_NodeDisruption] = []


class _Review(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Reviews(msgspec.Struct):
    items: list[_Review]


class _Pods(msgspec.Struct):
    items: list[PodOnNode]


class _Budgets(msgspec.Struct):
    items: list[Budget]


@dataclass
class _Batch:
    """Nodes that are looked at in one review, and what it says once it is answered."""

    names: dict[str, None] = field(default_factory=dict)
    verdicts: dict[str, _NodeDisruption] | None = None


class Disruptions:
    """`now` is the time in seconds since 1970."""

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now
        self._lists = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._reviewing, self._next = asyncio.Lock(), _Batch()

    async def run(self) -> None:
        """Remove reviews that were left behind, until cancelled."""
        while True:
            with suppress(ApiError, *CONNECTION_ERRORS):
                await self._sweep()
            await asyncio.sleep(_SWEEP_SECONDS)

    async def report(self, inquiry: DisruptionInquiry) -> DisruptionReport:
        """The machines that are best given back; ApiError or no answer when it cannot be known."""
        most = min(max(1, inquiry.max_machines), _MAX_NODES)
        asked = list(dict.fromkeys(inquiry.machine_ids))
        spec = {"maxNodes": most + SPARE_CANDIDATES, "preferred": asked[:_MAX_NODES]}
        verdicts = await self._review(spec)
        source = "pod-controller" if verdicts is not None else "nobody"
        metrics.operator_disruption_reports.labels(source).inc()
        found = await self._assess_all(
            dict.fromkeys(asked, _UNKNOWN) if verdicts is None else verdicts
        )
        if verdicts is None:
            found.sort(key=lambda each: (each.batch_pods > 0, each.cost))
        machines = select_machines(found, set(asked), most)
        return DisruptionReport(inquiry_id=inquiry.inquiry_id, machines=machines)

    async def assess_nodes(self, nodes: Sequence[str]) -> Sequence[MachineDisruption]:
        """What giving back these Nodes would disturb; those that are not there disturb nothing.

        Whoever asks while a review is under way shares the next one, so that what is given back
        together finds room together, and twenty reclaims do not wait for twenty reviews.
        """
        if not nodes:
            return []  # without names, a review is about all Nodes
        if len(self._next.names) + len(nodes) > _MAX_NODES:
            self._next = _Batch()
        shared = self._next
        shared.names.update(dict.fromkeys(nodes))
        async with self._reviewing:
            if shared.verdicts is None:
                if self._next is shared:
                    self._next = _Batch()
                names = list(shared.names)
                shared.verdicts = await self._review({"maxNodes": len(names), "nodes": names}) or {}
        known = shared.verdicts
        return await self._assess_all({name: known.get(name, _UNKNOWN) for name in nodes})

    async def _review(self, spec: Mapping[str, Any]) -> dict[str, _NodeDisruption] | None:
        """What the pod controller says of each Node, in order; None without an answer."""
        body = {
            "apiVersion": "bigfleet.lucy.sh/v1alpha1",
            "kind": "DisruptionReview",
            "metadata": {"generateName": "review-"},
            "spec": spec,
        }
        try:
            made = msgspec.json.decode(await self._client.create(_REVIEWS, body), type=_Review)
        except ApiError as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise
            _LOG.warning("nobody can be asked what a reclaim would disturb: %s", error)
            return None
        name = made.metadata.name
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                status = await self._answer(name)
        except TimeoutError:
            _LOG.warning("no pod controller has answered %s in %g s", name, _REVIEW_SECONDS)
            return None
        finally:
            await self._remove(name)
        return {each.name: each for each in status.nodes}

    async def _answer(self, name: str) -> _Status:
        selector = {"fieldSelector": f"metadata.name={name}"}
        async with aclosing(Watch(self._client, _REVIEWS, _Review, selector).follow()) as changes:
            async for change in changes:
                for each in change.items if isinstance(change, Listed) else [change.item]:
                    if each.status.observed_at:
                        return each.status
        raise AssertionError("a watch has no end")

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(f"{_REVIEWS}/{name}")
        except (ApiError, *CONNECTION_ERRORS) as error:
            _LOG.info("the disruption review %s is left for later: %s", name, error)

    async def _sweep(self) -> None:
        found = msgspec.json.decode(await self._client.get(_REVIEWS), type=_Reviews)
        for review in found.items:
            made = review.metadata.creation_timestamp.astimezone(UTC).timestamp()
            if self._now() - made > _STALE_SECONDS:
                await self._remove(review.metadata.name)

    async def _assess_all(self, verdicts: Mapping[str, _NodeDisruption]) -> list[MachineDisruption]:
        """In the given order; what is not a Node of ours is left out."""
        if not verdicts:
            return []
        budgets = await self._budgets()
        judged = (self._assess(name, verdict, budgets) for name, verdict in verdicts.items())
        return [each for each in await asyncio.gather(*judged) if each is not None]

    async def _budgets(self) -> Sequence[Budget]:
        raw = await self._client.get("/apis/policy/v1/poddisruptionbudgets")
        return msgspec.json.decode(raw, type=_Budgets).items

    async def _assess(
        self, name: str, verdict: _NodeDisruption, budgets: Iterable[Budget]
    ) -> MachineDisruption | None:
        async with self._lists:
            try:
                node = msgspec.json.decode(await self._client.get(node_path(name)), type=Node)
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
                return None
            if node.not_owned_reason:
                return None
            query = {"fieldSelector": f"spec.nodeName={name}"}
            listed = msgspec.json.decode(await self._client.get("/api/v1/pods", query), type=_Pods)
        pods = [pod for pod in blocking_pods(listed.items) if not pod.terminating]
        return MachineDisruption(
            machine_id=name,
            pods=len(pods),
            batch_pods=sum(pod.batch for pod in pods),
            cost=sum(pod.cost for pod in pods),
            blocked=_blocked(node, pods, budgets)
            or (verdict.rejection_reason(len(pods)) if pods else ""),
        )


def _blocked(node: Node, pods: Sequence[PodOnNode], budgets: Iterable[Budget]) -> str:
    if mark := node_blocking_annotation(node.metadata.annotations or {}):
        return f"node {node.metadata.name} is marked {mark}"
    not_evictable_reason = (pod.not_evictable_reason for pod in pods if pod.not_evictable_reason)
    forbidden = (why for budget in budgets if (why := budget.forbids(pods)))
    return next(not_evictable_reason, "") or next(forbidden, "")


def select_machines(
    found: Sequence[MachineDisruption], asked: Set[str], most: int
) -> list[MachineDisruption]:
    """Those that may go, in their order, half of the places kept for those that were `asked` about;
    then those that may not.
    """
    free = [each for each in found if not each.blocked]
    named = [each.machine_id for each in free if each.machine_id in asked][: (most + 1) // 2]
    others = [each.machine_id for each in free if each.machine_id not in named]
    kept = {*named, *others[: most - len(named)]}
    blocked = [each for each in found if each.blocked]
    return [*(each for each in free if each.machine_id in kept), *blocked][:most]
