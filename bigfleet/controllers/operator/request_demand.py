"""The demand of one CapacityRequest. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bigfleet.kube.pod_types import (
    LabelSelector,
    NodeSelectorTerm,
    PodToleration,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from bigfleet.model import penalty, resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import ADDITIONAL, PLAIN, Group, PodGroup
from bigfleet.model.integers import is_integer
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Operator, Profile, Requirement, Spread, Term, Toleration, profile

_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
    "Gt": Operator.GREATER_THAN,
    "Lt": Operator.LESS_THAN,
}
_COMPARISONS = (Operator.GREATER_THAN, Operator.LESS_THAN)
_WITH_VALUES = (Operator.IN, Operator.NOT_IN, *_COMPARISONS)
_HARD, _NEVER, _IGNORE, _HONOR = "DoNotSchedule", "Never", "Ignore", "Honor"
_EVERY_ADDRESS = "0.0.0.0"
Amount = str | int | float


class CoLocation(msgspec.Struct, rename="camel"):
    """Share a domain of `topology_key` with the selected Pods of the namespace."""

    topology_key: str
    label_selector: LabelSelector | None = None


class AntiAffinity(msgspec.Struct, rename="camel"):
    """At most one of the selected Pods of the namespace in each domain of each key."""

    topology_keys: list[str]
    label_selector: LabelSelector | None = None


class HostPort(msgspec.Struct, rename="camel"):
    """A port of the node."""

    port: int
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class RequestSpec(msgspec.Struct, rename="camel"):
    """The spec of a CapacityRequest."""

    resources: dict[str, Amount]
    priority: int
    requirements: list[SelectorRequirement] | None = None
    node_selector_terms: list[NodeSelectorTerm] | None = None
    tolerations: list[PodToleration] | None = None
    co_location: CoLocation | None = None
    anti_affinity: AntiAffinity | None = None
    host_ports: list[HostPort] | None = None
    topology_spread: list[TopologySpreadConstraint] | None = None
    preemption_policy: str = ""
    additional: bool = False
    interruption_penalty: Amount = 0
    reclamation_penalty: Amount = 0


@dataclass(frozen=True, eq=False)
class RequestDemand:
    """The demand of one request; equal requests of a namespace share one object.

    `unit` has (resource, units of `model.resources`), sorted by name, none of them zero.
    """

    profile: Profile
    group: Group
    unit: tuple[tuple[str, int], ...]


def demand_of(namespace: str, spec: RequestSpec) -> RequestDemand:
    """The demand of a request in `namespace`; InvalidInput when it is invalid."""
    if "" in spec.resources:
        raise InvalidInput("resources", spec.resources, "have an empty resource name")
    unit = resources.parse_requests({name: str(q) for name, q in spec.resources.items()})
    if not any(unit.values()):
        raise InvalidInput("resources", spec.resources, "request nothing")
    if spec.additional and spec.co_location:
        hint = "must name its domain in the requirements, not in coLocation"
        raise InvalidInput("additional", spec.additional, hint)
    requirements = requirements_of(spec.requirements)
    if spec.co_location:
        requirements = (*requirements, Requirement(spec.co_location.topology_key, Operator.SAME))
    return RequestDemand(
        profile(
            requirements,
            _spread(spec),
            spec.priority,
            _bucket("interruptionPenalty", spec.interruption_penalty),
            _bucket("reclamationPenalty", spec.reclamation_penalty),
            alternatives=alternatives_of(spec.node_selector_terms),
            tolerations=tolerations_of(spec.tolerations),
            anti_affinity=_anti_affinity(spec),
            never_preempts=spec.preemption_policy == _NEVER,
        ),
        group_of(namespace, spec),
        tuple(sorted((name, amount) for name, amount in unit.items() if amount)),
    )


def group_of(namespace: str, spec: RequestSpec) -> Group:
    """Equal for exactly those requests that must share a domain, or that spread or repel each
    other.

    A PodGroup's identifier is JSON, so that it is unambiguous whatever the names. With a
    co-location nothing else counts. Host ports belong to the node: pods with the same ones repel
    each other across namespaces.
    """
    if spec.additional:
        return ADDITIONAL
    if spec.co_location:
        selector = _canonical(spec.co_location.label_selector)
        return PodGroup(_json([namespace, spec.co_location.topology_key, selector]))
    parts = list(_pod_terms(spec))
    named: list[Any] = [namespace, *(value for part in parts for value in part)] if parts else []
    if ports := _ports(spec):
        named.append({"hostPorts": ports})
    return PodGroup(_json(named)) if named else PLAIN


def _pod_terms(spec: RequestSpec) -> Iterator[list[Any]]:
    """Each selector of a hard spread or anti-affinity, with its topology keys."""
    keys: dict[str, set[str]] = {}
    for each in spec.topology_spread or ():
        if each.when_unsatisfiable == _HARD:
            selector = _json(_canonical(each.label_selector))
            keys.setdefault(selector, set()).add(each.topology_key)
    if spec.anti_affinity:
        selector = _json(_canonical(spec.anti_affinity.label_selector))
        keys.setdefault(selector, set()).update(spec.anti_affinity.topology_keys)
    for selector in sorted(keys):
        yield [json.loads(selector), *sorted(keys[selector])]


def _ports(spec: RequestSpec) -> list[tuple[int, str, str]]:
    """Sorted; an empty address means all addresses."""
    return sorted(
        {
            (p.port, p.protocol, "" if p.host_ip == _EVERY_ADDRESS else p.host_ip)
            for p in spec.host_ports or ()
        }
    )


def _canonical(selector: LabelSelector | None) -> list[Any]:
    """Equal for equivalent selectors, however they are written."""
    selector = selector or LabelSelector()
    requirements = {
        (e.key, e.operator, tuple(sorted(set(e.values or ()))))
        for e in selector.match_expressions or ()
    }
    requirements |= {(k, "In", (v,)) for k, v in (selector.match_labels or {}).items()}
    return sorted(requirements)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def requirements_of(expressions: Iterable[SelectorRequirement] | None) -> Term:
    """One Requirement each; InvalidInput for an invalid one."""
    return tuple(_requirement(expression) for expression in expressions or ())


def _requirement(raw: SelectorRequirement) -> Requirement:
    if raw.operator not in _OPERATORS:
        raise InvalidInput(f"operator of {raw.key}", raw.operator, f"is not in {list(_OPERATORS)}")
    operator, values = _OPERATORS[raw.operator], tuple(raw.values or ())
    what = f"{raw.key} {raw.operator}"
    if (operator in _WITH_VALUES) != bool(values):
        raise InvalidInput(what, values, "takes no values" if values else "needs values")
    if operator in _COMPARISONS and (len(values) != 1 or not is_integer(values[0])):
        raise InvalidInput(what, values, "needs one value, an integer")
    return Requirement(raw.key, operator, values)


def alternatives_of(terms: Iterable[NodeSelectorTerm] | None) -> Sequence[Term]:
    """One Term each; InvalidInput for an empty one, and for an invalid requirement."""
    found = [requirements_of(term.match_expressions) for term in terms or ()]
    if not all(found):
        raise InvalidInput("nodeSelectorTerms", "{}", "has no matchExpressions")
    return found


def tolerations_of(raw: Iterable[PodToleration] | None) -> Sequence[Toleration]:
    """One Toleration each; InvalidInput for one that is invalid in a pod."""
    found = []
    for each in raw or ():
        exists = each.operator == "Exists"
        if each.operator not in ("", "Equal", "Exists"):
            what = f"operator of toleration {each.key}"
            raise InvalidInput(what, each.operator, "is neither Equal nor Exists")
        if (exists and each.value) or not (exists or each.key):
            hint = "needs a key unless it is Exists, which has no value"
            raise InvalidInput("toleration", f"{each.key}/{each.value}", hint)
        found.append(Toleration(each.key, exists, each.value, each.effect))
    return found


def _anti_affinity(spec: RequestSpec) -> set[str]:
    """Additional pods belong to many workloads, so of their keys only the hostname is valid."""
    keys = set(spec.anti_affinity.topology_keys if spec.anti_affinity else ())
    if spec.host_ports:
        keys.add(HOSTNAME_LABEL)
    return keys & {HOSTNAME_LABEL} if spec.additional else keys


def _spread(spec: RequestSpec) -> Iterator[Spread]:
    """A soft spread only breaks ties, so its skew is dropped, and selectors do not matter."""
    for term in spec.topology_spread or ():
        if term.when_unsatisfiable != _HARD:
            yield Spread(term.topology_key, 1, hard=False)
        elif not spec.additional:
            yield Spread(
                term.topology_key,
                term.max_skew,
                hard=True,
                min_domains=term.min_domains or 1,
                ignores_node_affinity=term.node_affinity_policy == _IGNORE,
                honors_node_taints=term.node_taints_policy == _HONOR,
            )


def _bucket(field: str, amount: Amount) -> int:
    try:
        thousandths = resources.parse(
            "dollars", str(amount), round_up=True, limit=resources.MAX_AGGREGATE_UNITS
        )
    except InvalidInput as error:
        raise InvalidInput(field, error.value, error.hint) from None
    return penalty.bucket(thousandths / 1000)
