"""Which machines a pod can run on: requirements on labels, and taints that it tolerates.

As in the spec of a CapacityRequest: a machine must meet all of the requirements and, where there
are alternatives, at least one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import NodeSelectorTerm, PodSpec, PodToleration, SelectorRequirement
from bigfleet.model.integers import is_integer
from bigfleet.model.labels import HOSTNAME_LABEL

RequirementBody = dict[str, Any]
# Requirements, ANDed.
TermBody = Sequence[RequirementBody]

# As many as a CapacityRequest may have.
MAX_ALTERNATIVES = 32

_AFFINITY = "nodeAffinity.required"
_COMPARISONS = ("Gt", "Lt")
# An admission plugin lets every Pod tolerate these for a while. They mark a Node that just failed;
# a machine to be acquired never has them.
_DEFAULT_TOLERATED_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class NodeRequirements(NamedTuple):
    """Requirements on a machine's labels."""

    requirements: TermBody
    alternatives: Sequence[TermBody] = ()


def node_requirements(spec: PodSpec) -> NodeRequirements:
    """The requirements of the node selector and of the required node affinity.

    Unsupported when no new machine can meet them, as they name a Node by its name or hostname. For
    a bound pod these are met, and only the other requirements count.
    """
    selected = NodeRequirements(_selected(spec))
    affinity = spec.affinity and spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return selected
    terms = affinity.required.node_selector_terms or ()
    usable = [body for term in terms if (body := term_body(term)) is not None]
    if usable and (narrowed := narrow(selected, usable)) is not None:
        return narrowed
    if spec.node_name:
        return selected
    why = "contradicts the nodeSelector" if usable else "names Nodes or is empty"
    raise Unsupported(_AFFINITY, f"{why}: no new machine can meet it")


def _selected(spec: PodSpec) -> TermBody:
    selector = dict(spec.node_selector or {})
    if selector.pop(HOSTNAME_LABEL, None) is not None and not spec.node_name:
        why = "names a Node: no new machine can meet it"
        raise Unsupported(f"nodeSelector[{HOSTNAME_LABEL}]", why)
    return [_in(key, [value]) for key, value in sorted(selector.items())]


def term_body(term: NodeSelectorTerm) -> TermBody | None:
    """A node affinity term's requirements on a new machine; None when none can meet them.

    A new machine has no name yet, so "not this Node" is always met.
    """
    names = [*(term.match_fields or ())]
    labels: list[SelectorRequirement] = []
    for expression in term.match_expressions or ():
        (names if expression.key == HOSTNAME_LABEL else labels).append(expression)
    if not (names or labels):
        return None
    if any(e.operator not in ("NotIn", "Exists") for e in names):
        return None
    if any(e.operator in _COMPARISONS and not _is_valid_comparison(e) for e in labels):
        return None
    return [_requirement_body(expression) for expression in labels]


def narrow(base: NodeRequirements, terms: Iterable[TermBody]) -> NodeRequirements | None:
    """`base` and at least one of `terms`; None where they contradict each other.

    Only the first MAX_ALTERNATIVES are kept; each is sufficient by itself.
    """
    distinct = _distinct(terms)
    if any(not term for term in distinct):
        return base  # an empty term is met by any machine
    if len(distinct) == 1:
        requirements = _merged(base.requirements, distinct[0])
        return None if requirements is None else NodeRequirements(requirements, base.alternatives)
    pairs = (_merged(a, b) for a, b in product(base.alternatives or ((),), distinct))
    possible = _distinct(islice((p for p in pairs if p is not None), MAX_ALTERNATIVES))
    return NodeRequirements(base.requirements, possible) if possible else None


def tolerations(spec: PodSpec) -> list[RequirementBody]:
    """As in the spec of a CapacityRequest, without default and redundant ones."""
    found = [
        t
        for t in spec.tolerations or ()
        if t.key not in _DEFAULT_TOLERATED_TAINTS or not _is_default_toleration(t)
    ]
    plain = [_toleration(t) for t in found if t.operator in ("", "Equal", "Exists")]
    everything = [t for t in plain if t == {"operator": "Exists"}]
    return everything[:1] or _unique(plain)


def _is_default_toleration(toleration: PodToleration) -> bool:
    return toleration.operator == "Exists" and toleration.effect == "NoExecute"


def _toleration(raw: PodToleration) -> RequirementBody:
    fields = {
        "key": raw.key,
        "operator": raw.operator or "Equal",
        "value": raw.value,
        "effect": raw.effect,
    }
    return {name: value for name, value in fields.items() if value}


def _requirement_body(expression: SelectorRequirement) -> RequirementBody:
    body: RequirementBody = {"key": expression.key, "operator": expression.operator}
    if expression.values:
        body["values"] = expression.values
    return body


def _is_valid_comparison(expression: SelectorRequirement) -> bool:
    values = expression.values or ()
    return len(values) == 1 and is_integer(values[0])


def _in(key: str, values: Sequence[str]) -> RequirementBody:
    return {"key": key, "operator": "In", "values": list(values)}


def _merged(first: TermBody, second: TermBody) -> TermBody | None:
    """The requirements of both; None when they have no value of a label in common."""
    merged = [*first]
    for requirement in second:
        place = next((i for i, r in enumerate(merged) if _same_label(r, requirement)), None)
        if place is None:
            merged.append(requirement)
            continue
        values = [v for v in merged[place]["values"] if v in requirement["values"]]
        if not values:
            return None
        merged[place] = _in(requirement["key"], values)
    return _unique(merged)


def _same_label(first: RequirementBody, second: RequirementBody) -> bool:
    return all(r["operator"] == "In" and r["key"] == first["key"] for r in (first, second))


def _unique(bodies: Sequence[RequirementBody]) -> list[RequirementBody]:
    return [body for place, body in enumerate(bodies) if body not in bodies[:place]]


def _distinct(terms: Iterable[TermBody]) -> list[TermBody]:
    """Without duplicates, in the given order."""
    terms = list(terms)
    if len(terms) == 1:
        return terms  # the most common case
    found: dict[str, TermBody] = {}
    for term in terms:
        found.setdefault(repr(sorted(map(repr, term))), term)
    return list(found.values())
