"""The disruption that releasing machines would cause, assessed when the shard asks.

The pod controller, which watches Pods, answers which Nodes can be drained; the operator lists only
the Pods of those Nodes, and the disruption budgets. Without a pod controller only empty Nodes are
known to be removable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.shard_pb2 import DisruptionInquiry, DisruptionReport, MachineDisruption
from bigfleet.controllers.disruption_cost import node_blocking_annotation
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.controllers.operator.pods import Budget, PodOnNode, blocking_pods_on
from bigfleet.kube.client import CONNECTION_ERRORS, FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList, ObjectMeta
from bigfleet.kube.watch import Listed, Watch
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_REVIEWS = f"{GROUP_VERSION}/disruptionreviews"
_REVIEW_SECONDS = 5.0
# Some Nodes whose pods fit elsewhere turn out to be blocked by a budget.
SPARE_CANDIDATES = 8
_MAX_NODES = 100
_LISTS_AT_ONCE = 8
_STALE_SECONDS, _SWEEP_SECONDS = 300.0, 60.0
# Longer than the pod controller's watch of Nodes is behind, and at most as many as a review names.
_UNSEEN_SECONDS, _MAX_UNSEEN = 60.0, 1000
_ROUNDING = 1e-6
FIT_UNKNOWN = "whether its pods fit elsewhere is unknown"
_FIT_STALE = "more pods run there than when the pod controller checked whether they fit elsewhere"


class _NodeDisruption(msgspec.Struct):
    name: str
    pods: int
    fits: bool
    message: str = ""

    def rejection_reason(self, pods: int) -> str:
        """Why a Node that now runs so many pods must not be drained; "" when it may be."""
        if not self.fits:
            return self.message
        return _FIT_STALE if pods > self.pods else ""


# For Nodes that were not reviewed.
_UNKNOWN = _NodeDisruption("", 0, fits=False, message=FIT_UNKNOWN)


class _Status(msgspec.Struct, rename="camel"):
    observed_at: str = ""
    nodes: list[_NodeDisruption] = []


class _Review(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass
class _Batch:
    """Nodes in one review, and its verdicts once it is answered."""

    names: dict[str, None] = field(default_factory=dict)
    verdicts: dict[str, _NodeDisruption] | None = None


class Disruptions:
    """Assesses the disruption that draining Nodes would cause. `now` is Unix time."""

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now
        self._lists = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._reviewing, self._next = asyncio.Lock(), _Batch()
        #: Nodes that may be drained, by when the pod controller is sure to see that they are
        self._accepted: dict[str, float] = {}

    async def run(self) -> None:
        """Delete stale reviews until cancelled."""
        while True:
            with suppress(ApiError, *CONNECTION_ERRORS):
                await self._sweep()
            await asyncio.sleep(_SWEEP_SECONDS)

    async def report(self, inquiry: DisruptionInquiry) -> DisruptionReport:
        """The machines that are best released; ApiError or a connection error on failure."""
        most = min(max(1, inquiry.max_machines), _MAX_NODES)
        asked = list(dict.fromkeys(inquiry.machine_ids))
        spec = {"maxNodes": most + SPARE_CANDIDATES, "preferred": asked[:_MAX_NODES]}
        verdicts = await self._review(spec)
        source = "pod-controller" if verdicts is not None else "nobody"
        metrics.operator_disruption_reports.labels(source).inc()
        # Before any is drained it is assessed once more.
        found = await self._assess_all(
            dict.fromkeys(asked, _UNKNOWN) if verdicts is None else verdicts, current=False
        )
        if verdicts is None:
            found.sort(key=lambda each: (each.batch_pods > 0, each.cost))
        machines = select_machines(found, set(asked), most)
        return DisruptionReport(inquiry_id=inquiry.inquiry_id, machines=machines)

    async def rejection_reason(self, nodes: Sequence[str], max_cost: float) -> str:
        """Why these Nodes must not be drained at that cost; "" when they may be: then the caller
        drains them, and other reviews count with that.
        """
        why = "the assessment failed"
        try:
            why = rejection_reason(await self._assess_nodes(nodes), max_cost)
        finally:
            for name in nodes if why else ():
                self._accepted.pop(name, None)
        return why

    async def _assess_nodes(self, nodes: Sequence[str]) -> Sequence[MachineDisruption]:
        """The disruption that draining these Nodes would cause; none for those that do not exist.

        Calls during a review share the next one, so that Nodes that are drained together are
        checked together, and twenty reclaims do not wait for twenty reviews.
        """
        if not nodes:
            return []  # a review without names covers all Nodes
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
                self._accept(verdict for verdict in shared.verdicts.values() if verdict.fits)
        known = shared.verdicts
        verdicts = {name: known.get(name, _UNKNOWN) for name in nodes}
        return await self._assess_all(verdicts, current=True)

    def _accept(self, fitting: Iterable[_NodeDisruption]) -> None:
        # Before the next review: its answer may come before these Nodes are seen to be drained, and
        # the pods of both would be promised the same places.
        until = time.monotonic() + _UNSEEN_SECONDS
        for verdict in fitting:
            self._accepted.pop(verdict.name, None)  # to the end
            self._accepted[verdict.name] = until

    def _being_drained(self) -> list[str]:
        """The Nodes accepted last, which the pod controller may not see being drained yet."""
        now = time.monotonic()
        self._accepted = {name: until for name, until in self._accepted.items() if until > now}
        return list(self._accepted)[-_MAX_UNSEEN:]

    async def _review(self, spec: Mapping[str, Any]) -> dict[str, _NodeDisruption] | None:
        """The pod controller's verdict on each Node, in order; None without an answer."""
        named = set(spec.get("nodes", ()))
        reclaiming = [name for name in self._being_drained() if name not in named]
        body = {
            "apiVersion": "bigfleet.lucy.sh/v1alpha1",
            "kind": "DisruptionReview",
            "metadata": {"generateName": "review-"},
            "spec": {**spec, "reclaiming": reclaiming},
        }
        try:
            made = msgspec.json.decode(await self._client.create(_REVIEWS, body), type=_Review)
        except ApiError as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise
            _LOG.warning("cannot create a DisruptionReview: %s", error)
            return None
        name = made.metadata.name
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                status = await self._answer(name)
        except TimeoutError:
            _LOG.warning("no pod controller answered %s within %g s", name, _REVIEW_SECONDS)
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
            _LOG.info("cannot delete DisruptionReview %s yet: %s", name, error)

    async def _sweep(self) -> None:
        found = msgspec.json.decode(await self._client.get(_REVIEWS), type=ObjectList[_Review])
        for review in found.items:
            if self._now() - review.metadata.created > _STALE_SECONDS:
                await self._remove(review.metadata.name)

    async def _assess_all(
        self, verdicts: Mapping[str, _NodeDisruption], *, current: bool
    ) -> list[MachineDisruption]:
        """In the given order; Nodes that are not BigFleet's are omitted."""
        if not verdicts:
            return []
        budgets = await self._budgets()
        judged = (
            self._assess(name, verdict, budgets, current=current)
            for name, verdict in verdicts.items()
        )
        return [each for each in await asyncio.gather(*judged) if each is not None]

    async def _budgets(self) -> Sequence[Budget]:
        raw = await self._client.get("/apis/policy/v1/poddisruptionbudgets")
        return msgspec.json.decode(raw, type=ObjectList[Budget]).items

    async def _assess(
        self, name: str, verdict: _NodeDisruption, budgets: Iterable[Budget], *, current: bool
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
            blocking = await blocking_pods_on(self._client, name, current=current)
        pods = [pod for pod in blocking if not pod.terminating]
        return MachineDisruption(
            machine_id=name,
            pods=len(pods),
            batch_pods=sum(pod.batch for pod in pods),
            cost=sum(pod.cost for pod in pods),
            blocked=_blocked(node, pods, budgets)
            or (verdict.rejection_reason(len(pods)) if pods else ""),
        )


def _blocked(node: Node, pods: Sequence[PodOnNode], budgets: Iterable[Budget]) -> str:
    if annotation := node_blocking_annotation(node.metadata.annotations or {}):
        return f"node {node.metadata.name} is annotated {annotation}"
    not_evictable = (pod.not_evictable_reason for pod in pods if pod.not_evictable_reason)
    forbidden = (why for budget in budgets if (why := budget.forbids(pods)))
    return next(not_evictable, "") or next(forbidden, "")


def select_machines(
    found: Sequence[MachineDisruption], asked: Set[str], most: int
) -> list[MachineDisruption]:
    """At most `most` machines: those that may be released, in order, with half of the places for
    those that were `asked` about; then blocked ones.
    """
    free = [each for each in found if not each.blocked]
    named = [each.machine_id for each in free if each.machine_id in asked][: (most + 1) // 2]
    others = [each.machine_id for each in free if each.machine_id not in named]
    kept = {*named, *others[: most - len(named)]}
    blocked = [each for each in found if each.blocked]
    return [*(each for each in free if each.machine_id in kept), *blocked][:most]


def rejection_reason(found: Sequence[MachineDisruption], max_cost: float) -> str:
    """Why these machines must not be released at that cost; "" when they may be."""
    blocked = next((f"{each.machine_id}: {each.blocked}" for each in found if each.blocked), "")
    cost = sum(each.cost for each in found)
    if blocked or cost <= max_cost + _ROUNDING:
        return blocked
    pods = sum(each.pods for each in found)
    return f"evicting {pods} pods would cost {cost:g}, more than {max_cost:g}"
