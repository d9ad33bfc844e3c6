"""Shapes: what decides where a pod may run, shared by all equivalent pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from bigfleet.controllers.disruption_cost import (
    POD_ANNOTATIONS,
    eviction_cost,
    pod_blocking_annotation,
)
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.podspec.amounts import effective_requests
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import (
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
)
from bigfleet.kube.selectors import (
    LabelRequirement,
    Selector,
    compile_requirements,
    compile_selector,
)
from bigfleet.kube.types import MIRROR_ANNOTATION, is_per_node
from bigfleet.model import resources
from bigfleet.model.need import Taint, Toleration

# Labels that are unique to a pod or Job, and which selectors do not use.
_PER_POD_LABELS = frozenset(
    {
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
    }
)
_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
_ONE_POD = {resources.PODS: resources.parse(resources.PODS, "1", round_up=True)}


class Peers(NamedTuple):
    """The pods that a term selects, and its topology key. `namespaces` None means all."""

    topology_key: str
    namespaces: frozenset[str] | None
    selector: Selector | None

    def include(self, shape: Shape) -> bool:
        """Whether pods of `shape` are among them."""
        if self.namespaces is not None and shape.namespace not in self.namespaces:
            return False
        return self.selector is not None and self.selector.matches(shape.labels)


class HardSpread(NamedTuple):
    """A spread constraint with DoNotSchedule."""

    peers: Peers
    max_skew: int
    min_domains: int
    honors_node_affinity: bool
    honors_node_taints: bool


class NodeRule(NamedTuple):
    """One term of required node affinity: requirements on labels, and on the Node's name."""

    labels: tuple[LabelRequirement, ...]
    fields: tuple[LabelRequirement, ...]

    def admits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the Node matches; an empty term matches none."""
        if not self.labels and not self.fields:
            return False
        fields = {"metadata.name": name}
        return all(r.matches(labels) for r in self.labels) and all(
            r.matches(fields) for r in self.fields
        )


class NodeFilter(NamedTuple):
    """A pod's constraints on a Node, regardless of what runs there; shared by many shapes."""

    selector: Selector
    rules: tuple[NodeRule, ...] | None
    tolerations: tuple[Toleration, ...]

    def admit(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the Node matches node selector and required node affinity."""
        if not self.selector.matches(labels):
            return False
        return self.rules is None or any(rule.admits(name, labels) for rule in self.rules)

    @property
    def keys(self) -> frozenset[str]:
        """The label keys in it; `metadata.name` counts as one."""
        terms = [c for rule in self.rules or () for c in (*rule.labels, *rule.fields)]
        return frozenset(k for k, _ in self.selector.pairs) | {c.key for c in terms}

    @property
    def pins_nodes(self) -> bool:
        """Whether the pod may run only on Nodes given by name."""
        return bool(self.rules) and all(rule.fields for rule in self.rules or ())

    def tolerate(self, taints: Iterable[Taint]) -> bool:
        """Whether all repelling `taints` are tolerated."""
        return all(
            any(toleration.tolerates(taint) for toleration in self.tolerations)
            for taint in taints
            if taint.effect in _REPELLING_EFFECTS
        )


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Shape:
    """Equal for all pods that kube-scheduler treats alike; created by `Shapes` only.

    `requests` are effective requests in units of `model.resources`. `is_per_node`: pods that belong
    to their Node, such as a DaemonSet's; `batch`: a Job's. `not_evictable_reason` is why a pod must
    not be evicted, "" when it may be. `has_claims`: its volumes keep it where they are.
    """

    namespace: str
    labels: Mapping[str, str]
    requests: Mapping[str, int]
    priority: int
    node_filter: NodeFilter
    host_ports: frozenset[tuple[str, int]]
    affinity_terms: tuple[Peers, ...]
    anti_affinity_terms: tuple[Peers, ...]
    spread: tuple[HardSpread, ...]
    has_claims: bool
    is_per_node: bool
    batch: bool
    not_evictable_reason: str
    cost: float


class Shapes:
    """Interns the shapes of pods; a shape is dropped with its last pod."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, pod: Pod) -> Shape:
        """The pod's shape."""
        amounts = _requests(pod)
        key = _identity(pod, amounts)
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = shape_of(pod, amounts)
        return shape


_ENCODER = msgspec.msgpack.Encoder()


def _identity(pod: Pod, amounts: Mapping[str, int]) -> bytes:
    """Equal for equal shapes."""
    spec = pod.spec
    marks, ports = _annotations(pod), sorted(_host_ports(spec))
    whose = (pod.metadata.namespace, _labels(pod), marks, _owner_kind(pod), _has_claims(spec))
    placing = (spec.node_selector, spec.affinity, spec.topology_spread_constraints)
    text = _ENCODER.encode((whose, amounts, ports, spec.priority, placing, spec.tolerations))
    return blake2b(text, digest_size=16).digest()


def shape_of(pod: Pod, amounts: Mapping[str, int] | None = None) -> Shape:
    """A new shape for one pod, with its effective requests if known."""
    spec, metadata, affinity = pod.spec, pod.metadata, pod.spec.affinity
    affinity_terms = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    anti = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    labels, kind = _labels(pod), _owner_kind(pod)
    annotations = metadata.annotations or {}
    return Shape(
        namespace=metadata.namespace,
        labels=labels,
        requests=_requests(pod) if amounts is None else amounts,
        priority=spec.priority or 0,
        node_filter=_node_filter(spec),
        host_ports=frozenset(_host_ports(spec)),
        affinity_terms=tuple(_peers(term, metadata.namespace) for term in affinity_terms or ()),
        anti_affinity_terms=tuple(_peers(term, metadata.namespace) for term in anti or ()),
        spread=tuple(_hard_spread(spec.topology_spread_constraints, metadata.namespace, labels)),
        has_claims=_has_claims(spec),
        is_per_node=is_per_node(metadata.owner_references, annotations),
        batch=kind == "Job",
        not_evictable_reason=_not_evictable_reason(kind, annotations),
        cost=eviction_cost(spec.priority or 0, annotations),
    )


def _labels(pod: Pod) -> dict[str, str]:
    return {k: v for k, v in (pod.metadata.labels or {}).items() if k not in _PER_POD_LABELS}


def _annotations(pod: Pod) -> dict[str, str]:
    annotations = pod.metadata.annotations
    if not annotations:
        return {}
    return {k: annotations[k] for k in (*POD_ANNOTATIONS, MIRROR_ANNOTATION) if k in annotations}


def _owner_kind(pod: Pod) -> str:
    owners = pod.metadata.owner_references or ()
    return next((owner.kind for owner in owners if owner.controller), "")


def _not_evictable_reason(kind: str, annotations: Mapping[str, str]) -> str:
    if not kind:
        return "it has no controller to recreate it"
    annotation = pod_blocking_annotation(annotations)
    return f"it is annotated {annotation}" if annotation else ""


def _requests(pod: Pod) -> dict[str, int]:
    """The effective requests; only the pod slot if they are invalid."""
    try:
        return effective_requests(pod.spec, pod.status)
    except Unsupported:
        return dict(_ONE_POD)


def _node_filter(spec: PodSpec) -> NodeFilter:
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity.required if affinity else None
    terms = required.node_selector_terms if required else None
    tolerations = (
        Toleration(t.key, t.operator == "Exists", t.value, t.effect) for t in spec.tolerations or ()
    )
    return NodeFilter(
        Selector(frozenset((spec.node_selector or {}).items())),
        None if required is None else tuple(_rule(term) for term in terms or ()),
        tuple(tolerations),
    )


def _rule(term: NodeSelectorTerm) -> NodeRule:
    return NodeRule(
        compile_requirements(term.match_expressions), compile_requirements(term.match_fields)
    )


def _host_ports(spec: PodSpec) -> Iterator[tuple[str, int]]:
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    for container in (*spec.containers, *sidecars):
        for port in container.ports or ():
            if port.host_port:
                yield port.protocol, port.host_port


def _peers(term: PodAffinityTerm, own_namespace: str) -> Peers:
    """A namespace selector counts as all namespaces, whose labels are not watched."""
    if term.namespace_selector is not None:
        return Peers(term.topology_key, None, compile_selector(term.label_selector))
    namespaces = frozenset(term.namespaces or (own_namespace,))
    return Peers(term.topology_key, namespaces, compile_selector(term.label_selector))


def _hard_spread(
    constraints: Iterable[TopologySpreadConstraint] | None,
    namespace: str,
    labels: Mapping[str, str],
) -> Iterator[HardSpread]:
    for each in constraints or ():
        if each.when_unsatisfiable != "DoNotSchedule":
            continue
        selector = compile_selector(each.label_selector)
        if selector is not None:
            keys = each.match_label_keys or ()
            same = tuple(
                LabelRequirement(k, "In", frozenset({labels[k]})) for k in keys if k in labels
            )
            selector = Selector(selector.pairs, (*selector.requirements, *same))
        yield HardSpread(
            Peers(each.topology_key, frozenset((namespace,)), selector),
            each.max_skew,
            each.min_domains or 1,
            each.node_affinity_policy != "Ignore",
            each.node_taints_policy == "Honor",
        )


def _has_claims(spec: PodSpec) -> bool:
    return any(v.persistent_volume_claim or v.ephemeral is not None for v in spec.volumes or ())
