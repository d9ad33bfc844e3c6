"""Pods and disruption budgets, as far as they matter for draining a Node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from bigfleet.controllers.disruption_cost import eviction_cost, pod_blocking_annotation
from bigfleet.kube.client import KubeClient
from bigfleet.kube.pod_types import LabelSelector
from bigfleet.kube.selectors import compile_selector
from bigfleet.kube.types import ObjectList, ObjectMeta, is_per_node


def query_of_pods(node: str, *, current: bool) -> dict[str, str]:
    """The query of the Pods on a Node.

    The API server's cache answers, as it does a watch, unless the list must be `current`: for that
    a server whose cache is seconds late, since it is busy, reads every Pod from etcd.
    """
    selected = {"fieldSelector": f"spec.nodeName={node}"}
    return selected if current else {**selected, "resourceVersion": "0"}


class _PodSpec(msgspec.Struct):
    priority: int | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class PodOnNode(msgspec.Struct):
    """The parts of a Pod that the drain of its Node depends on."""

    metadata: ObjectMeta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def owner(self) -> str:
        """The UID of its controller, or its own without one."""
        controller = self.metadata.controller
        return controller.uid if controller else self.metadata.uid

    @property
    def batch(self) -> bool:
        """Whether a Job controls it: work that completes, and is lost when interrupted."""
        controller = self.metadata.controller
        return controller is not None and controller.kind == "Job"

    @property
    def terminating(self) -> bool:
        """Whether it was deleted, and is still terminating."""
        return self.metadata.deletion_timestamp is not None

    @property
    def cost(self) -> float:
        """The cost of evicting it."""
        return eviction_cost(self.spec.priority or 0, self.metadata.annotations or {})

    @property
    def not_evictable_reason(self) -> str:
        """Why it must not be evicted; "" when it may be."""
        where = f"pod {self.metadata.namespace}/{self.metadata.name}"
        if self.metadata.controller is None:
            return f"{where} has no controller to recreate it"
        annotation = pod_blocking_annotation(self.metadata.annotations or {})
        return f"{where} is annotated {annotation}" if annotation else ""


class _BudgetSpec(msgspec.Struct):
    selector: LabelSelector | None = None


class _BudgetStatus(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0


class Budget(msgspec.Struct):
    """A PodDisruptionBudget, and the disruptions it currently allows."""

    metadata: ObjectMeta
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)

    def forbids(self, pods: Sequence[PodOnNode]) -> str:
        """Why this budget forbids evicting all of `pods` at once; "" when it allows it."""
        selector = compile_selector(self.spec.selector)
        if selector is None:
            return ""
        own = [pod for pod in pods if pod.metadata.namespace == self.metadata.namespace]
        count = sum(selector.matches(pod.metadata.labels or {}) for pod in own)
        if count <= self.status.disruptions_allowed:
            return ""
        name = f"{self.metadata.namespace}/{self.metadata.name}"
        return f"{count} pods match budget {name}, which allows {self.status.disruptions_allowed}"


async def blocking_pods_on(client: KubeClient, node: str, *, current: bool) -> list[PodOnNode]:
    """The Pods on the Node that its drain must wait for. ApiError or a connection error."""
    raw = await client.get("/api/v1/pods", query_of_pods(node, current=current))
    return blocking_pods(msgspec.json.decode(raw, type=ObjectList[PodOnNode]).items)


def blocking_pods(pods: Iterable[PodOnNode]) -> list[PodOnNode]:
    """The pods that a drain must wait for: neither per-node nor terminated ones."""
    return [
        pod
        for pod in pods
        if not is_per_node(pod.metadata.owner_references, pod.metadata.annotations)
        and not has_terminated(pod.status.phase)
    ]


def has_terminated(phase: str) -> bool:
    """Whether a pod in that phase no longer occupies its Node."""
    return phase in ("Succeeded", "Failed")
