"""Pods and Nodes as the API server writes them, as far as anchors need them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from bigfleet.model import resources
from loaddriver.anchors.shape import Requirement, Shape

ANCHOR_ANNOTATION = "scaletest.bigfleet/anchor"
"""Set on a Binding, which hands it on to the Pod: so a Pod itself says that it is an anchor."""

_ONE_SLOT = resources.parse(resources.PODS, "1", round_up=True)
_KEEPS_PODS_OUT = ("NoSchedule", "NoExecute")


class _Read(msgspec.Struct, rename="camel"):
    pass


class Metadata(_Read):
    """`creation_timestamp` is in RFC 3339 with whole seconds, so it sorts as text."""

    name: str
    uid: str
    namespace: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Resources(_Read):
    requests: dict[str, str] = {}


class _Container(_Read):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Term(_Read):
    match_expressions: tuple[Requirement, ...] = ()


class _Terms(_Read):
    node_selector_terms: tuple[_Term, ...] = ()


class _NodeAffinity(_Read):
    required: _Terms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(_Read):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(_Read):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    overhead: dict[str, str] = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: _Affinity | None = None


class _Condition(_Read):
    type: str
    status: str


class _PodStatus(_Read):
    phase: str = ""
    conditions: list[_Condition] = []


class Pod(_Read):
    """A Pod as a watch delivers it."""

    metadata: Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def ended(self) -> bool:
        """Whether it runs no more, and its node's room is free again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def unschedulable(self) -> bool:
        """Whether kube-scheduler tried it and found no place."""
        return any(c.type == "PodScheduled" and c.status == "False" for c in self.status.conditions)

    @property
    def is_anchor(self) -> bool:
        """Whether an anchor's Binding placed it."""
        return ANCHOR_ANNOTATION in self.metadata.annotations


class _Taint(_Read):
    effect: str = ""


class _NodeSpec(_Read):
    unschedulable: bool = False
    taints: list[_Taint] = []


class _NodeStatus(_Read):
    allocatable: dict[str, str] = {}
    conditions: list[_Condition] = []


class KubeNode(_Read):
    """A Node as a watch delivers it."""

    metadata: Metadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def usable(self) -> bool:
        """Whether it is Ready and takes new pods; those of gangs tolerate no taint."""
        ready = any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)
        kept_out = any(taint.effect in _KEEPS_PODS_OUT for taint in self.spec.taints)
        return ready and not self.spec.unschedulable and not kept_out


def requests_of(pod: Pod) -> dict[str, int]:
    """What the scheduler counts for the Pod: its containers' sum or, where it is more, what one of
    its init containers needs first; and a pod slot.
    """
    total = resources.add(_units(each.resources.requests) for each in pod.spec.containers)
    for each in pod.spec.init_containers:
        for name, amount in _units(each.resources.requests).items():
            total[name] = max(total.get(name, 0), amount)
    return resources.add([total, _units(pod.spec.overhead), {resources.PODS: _ONE_SLOT}])


def shape_of(pod: Pod) -> Shape:
    """What the Pod asks of a node, in a form that is the same for all Pods of one template."""
    return Shape(
        requests=tuple(sorted(requests_of(pod).items())),
        node_selector=tuple(sorted(pod.spec.node_selector.items())),
        node_terms=_terms(pod.spec.affinity),
    )


def allocatable_of(node: KubeNode) -> dict[str, int]:
    """What the Node offers to pods."""
    return {
        name: _parse(name, text, round_up=False) for name, text in node.status.allocatable.items()
    }


def _terms(affinity: _Affinity | None) -> tuple[tuple[Requirement, ...], ...] | None:
    required = affinity and affinity.node_affinity and affinity.node_affinity.required
    if not required:
        return None
    return tuple(term.match_expressions for term in required.node_selector_terms)


def _units(quantities: Mapping[str, str]) -> dict[str, int]:
    return {name: _parse(name, text, round_up=True) for name, text in quantities.items()}


@lru_cache(maxsize=4096)
def _parse(resource: str, quantity: str, *, round_up: bool) -> int:
    return resources.parse(resource, quantity, round_up=round_up)
