"""Pods and budgets, as far as they matter to the emptying of a Node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from bigfleet.controllers.disruption_cost import eviction_cost, pod_blocking_annotation
from bigfleet.kube.selectors import compile_selector

_MIRROR = "kubernetes.io/config.mirror"


class _Owner(msgspec.Struct):
    kind: str
    uid: str = ""
    controller: bool = False


class PodMetadata(msgspec.Struct, rename="camel"):
    """A Pod's names, marks and owners."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None


class _PodSpec(msgspec.Struct):
    priority: int | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class PodOnNode(msgspec.Struct):
    """A Pod as far as it matters to the emptying of its Node."""

    metadata: PodMetadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def owner(self) -> str:
        """The UID of the controller that it belongs to, or its own."""
        controller = self._controller
        return controller.uid if controller else self.metadata.uid

    @property
    def batch(self) -> bool:
        """Whether it is a Job's: work that ends by itself, and is lost when it is interrupted."""
        controller = self._controller
        return controller is not None and controller.kind == "Job"

    @property
    def terminating(self) -> bool:
        """Whether it has been deleted, and is only still ending."""
        return self.metadata.deletion_timestamp is not None

    @property
    def cost(self) -> float:
        """What it costs to evict it."""
        return eviction_cost(self.spec.priority or 0, self.metadata.annotations or {})

    @property
    def not_evictable_reason(self) -> str:
        """Why it must not be evicted to save money; "" when it may be."""
        where = f"pod {self.metadata.namespace}/{self.metadata.name}"
        if self._controller is None:
            return f"{where} has no controller that would make it anew"
        mark = pod_blocking_annotation(self.metadata.annotations or {})
        return f"{where} is marked {mark}" if mark else ""

    @property
    def _controller(self) -> _Owner | None:
        owners = self.metadata.owner_references or ()
        return next((owner for owner in owners if owner.controller), None)


class _Expression(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _BudgetMetadata(msgspec.Struct):
    name: str
    namespace: str


class _BudgetSpec(msgspec.Struct):
    selector: _Selector | None = None


class _BudgetStatus(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0


class Budget(msgspec.Struct):
    """A PodDisruptionBudget, and what it allows now."""

    metadata: _BudgetMetadata
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)

    def forbids(self, pods: Sequence[PodOnNode]) -> str:
        """Why not all of `pods` can be evicted at once; "" as far as this budget is concerned."""
        selector = compile_selector(self.spec.selector)
        if selector is None:
            return ""
        own = [pod for pod in pods if pod.metadata.namespace == self.metadata.namespace]
        count = sum(selector.matches(pod.metadata.labels or {}) for pod in own)
        if count <= self.status.disruptions_allowed:
            return ""
        name = f"{self.metadata.namespace}/{self.metadata.name}"
        return (
            f"{count} pods are of the budget {name}, which allows {self.status.disruptions_allowed}"
        )


def blocking_pods(pods: Iterable[PodOnNode]) -> list[PodOnNode]:
    """Those for whose sake a Node is not empty: not what runs on every Node, nor what has ended."""
    return [
        pod
        for pod in pods
        if not is_per_node(pod.metadata) and not has_terminated(pod.status.phase)
    ]


def is_per_node(pod: PodMetadata) -> bool:
    """Whether each Node has such a pod: a DaemonSet's, or one of its kubelet's own."""
    daemon = any(o.controller and o.kind == "DaemonSet" for o in pod.owner_references or ())
    return daemon or _MIRROR in (pod.annotations or {})


def has_terminated(phase: str) -> bool:
    """Whether a pod in that phase holds nothing of its Node any more."""
    return phase in ("Succeeded", "Failed")
