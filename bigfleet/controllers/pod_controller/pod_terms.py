"""A Pod's affinity, anti-affinity and topology spread as fields of its request. Pure.

A request expresses the terms whose selector matches the Pod itself. Terms about other Pods depend
on where these run, which only kube-scheduler knows; of these the request only requires that a Node
has the topology key's label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.kube.pod_types import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from bigfleet.kube.selectors import intersection, selector_body, selects
from bigfleet.model.labels import HOSTNAME_LABEL

_HARD = "DoNotSchedule"
_HONOR, _IGNORE = "Honor", "Ignore"


def pod_term_fields(pod: Pod) -> dict[str, Any]:
    """The fields of a CapacityRequest's spec for terms between pods."""
    fields: dict[str, Any] = {}
    if (co_location := _co_location_term(pod)) is not None:
        selector = selector_body(co_location.label_selector or LabelSelector())
        fields["coLocation"] = {
            "topologyKey": co_location.topology_key,
            **({"labelSelector": selector} if selector else {}),
        }
    if anti_affinity_terms := [t for t in _anti_affinity_terms(pod) if _selects_itself(t, pod)]:
        fields["antiAffinity"] = {
            "topologyKeys": sorted({term.topology_key for term in anti_affinity_terms}),
            "labelSelector": selector_body(
                intersection(t.label_selector for t in anti_affinity_terms if t.label_selector)
            ),
        }
    if spread := [_spread(c, pod) for c in _constraints(pod) if _spreads_itself(c, pod)]:
        fields["topologySpread"] = spread
    return fields


def topology_key_requirements(pod: Pod) -> list[dict[str, Any]]:
    """Requirements that a Node has the topology keys of terms that are not expressed otherwise."""
    co_location = _co_location_term(pod)
    keys = [t.topology_key for t in _required(_pod_affinity(pod)) if t is not co_location]
    keys += [
        c.topology_key
        for c in _constraints(pod)
        if c.when_unsatisfiable == _HARD and not _spreads_itself(c, pod)
    ]
    # Every Node has its hostname; a new machine does not have the label yet.
    wanted = sorted({key for key in keys if key != HOSTNAME_LABEL})
    return [{"key": key, "operator": "Exists"} for key in wanted]


def unsupported_pod_terms(pod: Pod) -> Iterator[str]:
    """Fields with terms between pods that only kube-scheduler applies, at least in part."""
    co_location = _co_location_term(pod)
    if any(term is not co_location for term in _required(_pod_affinity(pod))):
        yield "podAffinity.required"
    if co_location and (co_location.namespaces or co_location.namespace_selector is not None):
        yield "podAffinity.required.namespaces"
    if _preferred(_pod_affinity(pod)):
        yield "podAffinity.preferred"
    if not all(_selects_itself(term, pod) for term in _anti_affinity_terms(pod)):
        yield "podAntiAffinity.required"
    if _preferred(_anti_affinity(pod)):
        yield "podAntiAffinity.preferred"
    if any(
        c.when_unsatisfiable == _HARD and not _spreads_itself(c, pod) for c in _constraints(pod)
    ):
        yield "topologySpreadConstraints"


def _co_location_term(pod: Pod) -> PodAffinityTerm | None:
    """The first required affinity term that matches the Pod itself."""
    terms = _required(_pod_affinity(pod))
    return next((term for term in terms if _selects_itself(term, pod)), None)


def _anti_affinity_terms(pod: Pod) -> Sequence[PodAffinityTerm]:
    return _required(_anti_affinity(pod))


def _selects_itself(term: PodAffinityTerm, pod: Pod) -> bool:
    """Whether the term matches the Pod itself."""
    return _covers(term, pod.metadata.namespace) and selects(
        term.label_selector, pod.metadata.labels or {}
    )


def _covers(term: PodAffinityTerm, namespace: str) -> bool:
    names, selector = term.namespaces or (), term.namespace_selector
    if selector is None:
        return not names or namespace in names
    everywhere = not selector.match_labels and not selector.match_expressions
    return everywhere or namespace in names


def _spreads_itself(constraint: TopologySpreadConstraint, pod: Pod) -> bool:
    return selects(constraint.label_selector, pod.metadata.labels or {})


def _spread(constraint: TopologySpreadConstraint, pod: Pod) -> dict[str, Any]:
    """Without defaults, so that equivalent constraints are equal."""
    found: dict[str, Any] = {
        "topologyKey": constraint.topology_key,
        "maxSkew": constraint.max_skew,
        "whenUnsatisfiable": constraint.when_unsatisfiable,
        "labelSelector": selector_body(_effective_selector(constraint, pod.metadata.labels or {})),
    }
    if constraint.min_domains is not None and constraint.min_domains > 1:
        found["minDomains"] = constraint.min_domains
    if constraint.node_affinity_policy == _IGNORE:
        found["nodeAffinityPolicy"] = _IGNORE
    if constraint.node_taints_policy == _HONOR:
        found["nodeTaintsPolicy"] = _HONOR
    return found


def _effective_selector(
    constraint: TopologySpreadConstraint, labels: Mapping[str, str]
) -> LabelSelector:
    """With the Pod's values of `matchLabelKeys`, which the API server may have added already."""
    own = [
        SelectorRequirement(key, "In", [labels[key]])
        for key in constraint.match_label_keys or ()
        if key in labels
    ]
    return intersection([constraint.label_selector or LabelSelector(), LabelSelector(None, own)])


def _constraints(pod: Pod) -> Iterable[TopologySpreadConstraint]:
    return pod.spec.topology_spread_constraints or ()


def _pod_affinity(pod: Pod) -> PodAffinity | None:
    return pod.spec.affinity.pod_affinity if pod.spec.affinity else None


def _anti_affinity(pod: Pod) -> PodAffinity | None:
    return pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None


def _required(affinity: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return (affinity and affinity.required) or ()


def _preferred(affinity: PodAffinity | None) -> bool:
    return bool(affinity and affinity.preferred)
