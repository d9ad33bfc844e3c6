"""What a Pod asks of its neighbours: to be with some, away from others, or spread evenly. Pure.

A request carries what the Pod asks of Pods like itself, those that its own labels make it one of.
What it asks of others depends on where they run, which only kube-scheduler knows; of that, no more
is carried than that a Node must have the topology key's label.
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
from bigfleet.model.need import HOSTNAME_LABEL

_HARD = "DoNotSchedule"
_HONOR, _IGNORE = "Honor", "Ignore"


def pod_term_fields(pod: Pod) -> dict[str, Any]:
    """The fields of a CapacityRequest's spec that speak of neighbours, as far as there are any."""
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
    """Requirements that a Node has a topology key at all, for terms that are not carried whole."""
    co_location = _co_location_term(pod)
    keys = [t.topology_key for t in _required(_pod_affinity(pod)) if t is not co_location]
    keys += [
        c.topology_key
        for c in _constraints(pod)
        if c.when_unsatisfiable == _HARD and not _spreads_itself(c, pod)
    ]
    # Every Node has its hostname, though nobody says so of a machine that is still to come.
    wanted = sorted({key for key in keys if key != HOSTNAME_LABEL})
    return [{"key": key, "operator": "Exists"} for key in wanted]


def unsupported_pod_terms(pod: Pod) -> Iterator[str]:
    """Fields that speak of neighbours and are left to kube-scheduler, at least in part."""
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
    """The first required affinity term that the Pod's own labels meet."""
    terms = _required(_pod_affinity(pod))
    return next((term for term in terms if _selects_itself(term, pod)), None)


def _anti_affinity_terms(pod: Pod) -> Sequence[PodAffinityTerm]:
    return _required(_anti_affinity(pod))


def _selects_itself(term: PodAffinityTerm, pod: Pod) -> bool:
    """Whether another Pod with this one's labels, in its namespace, would be one that is meant."""
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
    """Defaults are left out, so that equal constraints look equal."""
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
    """With the Pod's own values of `matchLabelKeys`; an API server may have put them in already."""
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
