"""The disruption that releasing machines would cause, assessed when the shard asks.

The pod controller, which watches Pods, answers which Nodes can be drained; the operator lists only
the Pods of those Nodes, and the disruption budgets. Without a pod controller only empty Nodes are
known to be removable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionInquiry, DisruptionReport, MachineDisruption
from bigfleet.controllers.disruption_cost import node_blocking_annotation
from bigfleet.controllers.operator.disruption_reviews import (
    UNKNOWN,
    DisruptionReviews,
    NodeDisruption,
)
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.controllers.operator.pods import Budget, PodOnNode, blocking_pods_on
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList
from bigfleet.observe import metrics

# Some Nodes whose pods fit elsewhere turn out to be blocked by a budget.
SPARE_CANDIDATES = 8
_MAX_NODES = 100
_LISTS_AT_ONCE = 8
# Longer than the pod controller's watch of Nodes is behind, and at most as many as a review names.
_UNSEEN_SECONDS, _MAX_UNSEEN = 60.0, 1000
_ROUNDING = 1e-6


@dataclass
class _Batch:
    """Nodes in one review, and its verdicts once it is answered."""

    names: dict[str, None] = field(default_factory=dict)
    verdicts: dict[str, NodeDisruption] | None = None


class _Assessed(NamedTuple):
    """The disruption of draining a Node, and the pods that would be evicted."""

    disruption: MachineDisruption
    pods: Sequence[PodOnNode]


@dataclass
class _Accepted:
    """A Node that may be drained: until then the pod controller may not see that it is, nor budgets
    the evictions of its `pods`, which are known once they are assessed.
    """

    until: float
    pods: Sequence[PodOnNode] = ()


class Disruptions:
    """Assesses the disruption that draining Nodes would cause. `now` is Unix time."""

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._reviews = client, DisruptionReviews(client, now)
        self.run = self._reviews.run
        self._lists = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._reviewing, self._next = asyncio.Lock(), _Batch()
        #: by Node, the last one last
        self._accepted: dict[str, _Accepted] = {}

    async def report(self, inquiry: DisruptionInquiry) -> DisruptionReport:
        """The machines that are best released; ApiError or a connection error on failure."""
        most = min(max(1, inquiry.max_machines), _MAX_NODES)
        asked = list(dict.fromkeys(inquiry.machine_ids))
        verdicts = await self._review((), most + SPARE_CANDIDATES, asked[:_MAX_NODES])
        source = "pod-controller" if verdicts is not None else "nobody"
        metrics.operator_disruption_reports.labels(source).inc()
        # Before any is drained it is assessed once more.
        assessed, _ = await self._assess_all(
            dict.fromkeys(asked, UNKNOWN) if verdicts is None else verdicts, current=False
        )
        found = [each.disruption for each in assessed]
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
            verdicts = await self._verdicts(nodes)
            found, budgets = await self._assess_all(verdicts, current=True)
            disruptions = [each.disruption for each in found]
            why = rejection_reason(disruptions, max_cost) or self._forbidden(found, budgets)
            for each in found if not why else ():
                # One that was not reviewed has no pods, or it would be blocked.
                if accepted := self._accepted.get(each.disruption.machine_id):
                    accepted.pods = each.pods
        finally:
            for name in nodes if why else ():
                self._accepted.pop(name, None)
        return why

    def forget(self, machine_id: str) -> None:
        """Count no longer with the drain of a Node whose machine is about to join again."""
        self._accepted.pop(machine_id, None)

    def _forbidden(self, found: Sequence[_Assessed], budgets: Sequence[Budget]) -> str:
        """Why a budget forbids to evict these pods beside those of other Nodes that may be drained;
        "" if none does. Each Node alone may be within a budget that they exceed together.
        """
        own = {each.disruption.machine_id: each.pods for each in found}
        beside = {name: each.pods for name, each in self._being_drained().items()} | own
        pods = [pod for its in beside.values() for pod in its]
        return next((why for budget in budgets if (why := budget.forbids(pods))), "")

    async def _verdicts(self, nodes: Sequence[str]) -> Mapping[str, NodeDisruption]:
        """Whether these Nodes can be drained.

        Calls during a review share the next one, so that Nodes that are drained together are
        checked together, and twenty reclaims do not wait for twenty reviews.
        """
        if not nodes:
            return {}  # a review without names covers all Nodes
        if len(self._next.names) + len(nodes) > _MAX_NODES:
            self._next = _Batch()
        shared = self._next
        shared.names.update(dict.fromkeys(nodes))
        async with self._reviewing:
            if shared.verdicts is None:
                if self._next is shared:
                    self._next = _Batch()
                names = list(shared.names)
                shared.verdicts = await self._review(names, len(names)) or {}
                self._accept(verdict for verdict in shared.verdicts.values() if verdict.fits)
        known = shared.verdicts
        return {name: known.get(name, UNKNOWN) for name in nodes}

    def _accept(self, fitting: Iterable[NodeDisruption]) -> None:
        # Before the next review: its answer may come before these Nodes are seen to be drained, and
        # the pods of both would be promised the same places.
        until = time.monotonic() + _UNSEEN_SECONDS
        for verdict in fitting:
            before = self._accepted.pop(verdict.name, None)  # to the end
            self._accepted[verdict.name] = _Accepted(until, before.pods if before else ())

    def _being_drained(self) -> Mapping[str, _Accepted]:
        """The Nodes accepted last, which others may not see being drained yet."""
        now = time.monotonic()
        self._accepted = {name: each for name, each in self._accepted.items() if each.until > now}
        return self._accepted

    async def _review(
        self, names: Sequence[str], max_nodes: int, preferred: Sequence[str] = ()
    ) -> dict[str, NodeDisruption] | None:
        reclaiming = [*self._being_drained()][-_MAX_UNSEEN:]
        return await self._reviews.ask(
            {
                "maxNodes": max_nodes,
                "nodes": names,
                "preferred": preferred,
                "reclaiming": [name for name in reclaiming if name not in names],
            }
        )

    async def _assess_all(
        self,
        verdicts: Mapping[str, NodeDisruption],
        *,
        current: bool,
    ) -> tuple[list[_Assessed], Sequence[Budget]]:
        """In the given order, without Nodes that are not BigFleet's; and the present budgets."""
        if not verdicts:
            return [], ()
        budgets = await self._budgets()
        judged = (
            self._assess(name, verdict, budgets, current=current)
            for name, verdict in verdicts.items()
        )
        return [each for each in await asyncio.gather(*judged) if each is not None], budgets

    async def _budgets(self) -> Sequence[Budget]:
        raw = await self._client.get("/apis/policy/v1/poddisruptionbudgets")
        return msgspec.json.decode(raw, type=ObjectList[Budget]).items

    async def _assess(
        self, name: str, verdict: NodeDisruption, budgets: Iterable[Budget], *, current: bool
    ) -> _Assessed | None:
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
        disruption = MachineDisruption(
            machine_id=name,
            pods=len(pods),
            batch_pods=sum(pod.batch for pod in pods),
            cost=sum(pod.cost for pod in pods),
            blocked=_blocked(node, pods, budgets)
            or (verdict.rejection_reason(len(pods)) if pods else ""),
        )
        return _Assessed(disruption, pods)


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
