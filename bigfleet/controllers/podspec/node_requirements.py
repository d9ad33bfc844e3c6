"""Which machines a pod can run on: conditions on labels, and taints that it tolerates.

Conditions are as in the spec of a CapacityRequest: a machine must meet all of the requirements and,
where there are alternatives, at least one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import NodeSelectorTerm, PodSpec, PodToleration, SelectorRequirement
from bigfleet.model.integers import is_integer
from bigfleet.model.need import HOSTNAME_LABEL

RequirementBody = dict[str, Any]
# Conditions that must hold together.
TermBody = Sequence[RequirementBody]

# As many as a CapacityRequest may hold.
MAX_ALTERNATIVES = 32

_AFFINITY = "nodeAffinity.required"
_COMPARISONS = ("Gt", "Lt")
# Every Pod tolerates these for a while, by an admission plugin. A machine that is for sale never
# has them: they mark a Node that has just failed.
_DEFAULT_TOLERATED_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class NodeRequirements(NamedTuple):
    """Conditions on a machine's labels."""

    requirements: TermBody
    alternatives: Sequence[TermBody] = ()


def node_requirements(spec: PodSpec) -> NodeRequirements:
    """What node selector and required node affinity ask for.

    Unsupported when no new machine can meet it: it names a Node, by its name or its hostname. Once
    the pod is bound that has been met, and only the other conditions count.
    """
    asked = NodeRequirements(_selected(spec))
    affinity = spec.affinity and spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return asked
    terms = affinity.required.node_selector_terms or ()
    usable = [conditions for term in terms if (conditions := term_body(term)) is not None]
    if usable and (narrowed := narrow(asked, usable)) is not None:
        return narrowed
    if spec.node_name:
        return asked
    why = "contradicts the nodeSelector" if usable else "names Nodes or is empty"
    raise Unsupported(_AFFINITY, f"{why}: no machine that is still to come can meet it")


def _selected(spec: PodSpec) -> TermBody:
    selector = dict(spec.node_selector or {})
    if selector.pop(HOSTNAME_LABEL, None) is not None and not spec.node_name:
        why = "names a Node: no machine that is still to come can meet it"
        raise Unsupported(f"nodeSelector[{HOSTNAME_LABEL}]", why)
    return [_in(key, [value]) for key, value in sorted(selector.items())]


def term_body(term: NodeSelectorTerm) -> TermBody | None:
    """What a term of a node affinity asks of a new machine; None when none can ever meet it.

    A new machine has no name yet that the term could mean, so "not this Node" is always met.
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


def narrow(asked: NodeRequirements, terms: Iterable[TermBody]) -> NodeRequirements | None:
    """`asked`, and one of `terms` as well; None where the two contradict each other.

    Of more than MOST_ALTERNATIVES the first are kept: each by itself is enough.
    """
    distinct = _distinct(terms)
    if any(not term for term in distinct):
        return asked  # one of them asks for nothing, so any machine will do
    if len(distinct) == 1:
        requirements = _merged(asked.requirements, distinct[0])
        return None if requirements is None else NodeRequirements(requirements, asked.alternatives)
    pairs = (_merged(a, b) for a, b in product(asked.alternatives or ((),), distinct))
    possible = _distinct(islice((p for p in pairs if p is not None), MAX_ALTERNATIVES))
    return NodeRequirements(asked.requirements, possible) if possible else None


def tolerations(spec: PodSpec) -> list[RequirementBody]:
    """As in the spec of a CapacityRequest, without those that make no difference to a machine."""
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
    condition: RequirementBody = {"key": expression.key, "operator": expression.operator}
    if expression.values:
        condition["values"] = expression.values
    return condition


def _is_valid_comparison(expression: SelectorRequirement) -> bool:
    values = expression.values or ()
    return len(values) == 1 and is_integer(values[0])


def _in(key: str, values: Sequence[str]) -> RequirementBody:
    return {"key": key, "operator": "In", "values": list(values)}


def _merged(first: TermBody, second: TermBody) -> TermBody | None:
    """All conditions of both; None when they name different values of one label."""
    joined = [*first]
    for condition in second:
        place = next((i for i, c in enumerate(joined) if _same_label(c, condition)), None)
        if place is None:
            joined.append(condition)
            continue
        values = [v for v in joined[place]["values"] if v in condition["values"]]
        if not values:
            return None
        joined[place] = _in(condition["key"], values)
    return _unique(joined)


def _same_label(first: RequirementBody, second: RequirementBody) -> bool:
    return all(c["operator"] == "In" and c["key"] == first["key"] for c in (first, second))


def _unique(conditions: Sequence[RequirementBody]) -> list[RequirementBody]:
    return [c for place, c in enumerate(conditions) if c not in conditions[:place]]


def _distinct(terms: Iterable[TermBody]) -> list[TermBody]:
    """Without repetitions, in the given order."""
    terms = list(terms)
    if len(terms) == 1:
        return terms  # as most pods have it
    found: dict[str, TermBody] = {}
    for term in terms:
        found.setdefault(repr(sorted(map(repr, term))), term)
    return list(found.values())
