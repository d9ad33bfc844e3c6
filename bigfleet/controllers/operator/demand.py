"""From a CapacityRequest to what it adds to its cluster's demand. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from bigfleet.model import penalty, resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import ADDITIONAL_GROUP, Operator, Profile, Requirement, Spread, profile

_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}
Amount = str | int | float


class RequirementSpec(msgspec.Struct):
    """One condition on labels, in a node selector's words."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, rename="camel"):
    """Which Pods: those whose labels meet every condition."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementSpec] | None = None


class CoLocation(msgspec.Struct, rename="camel"):
    """Be in one domain of `topology_key` with the Pods selected in the own namespace."""

    topology_key: str
    label_selector: LabelSelector | None = None


class TopologySpread(msgspec.Struct, rename="camel"):
    """Keep the domains of `topology_key` within `max_skew` of each other."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str


class RequestSpec(msgspec.Struct, rename="camel"):
    """The spec of a CapacityRequest."""

    resources: dict[str, Amount]
    priority: int
    requirements: list[RequirementSpec] | None = None
    co_location: CoLocation | None = None
    topology_spread: list[TopologySpread] | None = None
    additional: bool = False
    interruption_penalty: Amount = 0
    reclamation_penalty: Amount = 0


@dataclass(frozen=True, eq=False)
class Demand:
    """What one request asks for; equal requests of a namespace share one object.

    `unit` holds (resource, units of `model.resources`) in order of names. `group` is "" unless the
    request wants to be in one domain with others, and then the same text for just those others, or
    the pod is one that kube-scheduler cannot place though machines enough are there.
    """

    profile: Profile
    group: str
    unit: tuple[tuple[str, int], ...]


def demand_of(namespace: str, spec: RequestSpec) -> Demand:
    """The Demand of a request in `namespace`; InvalidInput when it makes no sense."""
    unit = resources.parse_requests({name: str(q) for name, q in spec.resources.items()})
    if not any(unit.values()):
        raise InvalidInput("resources", spec.resources, "ask for nothing")
    if spec.additional and spec.co_location:
        cure = "goes with the domain among the requirements, not with coLocation"
        raise InvalidInput("additional", spec.additional, cure)
    requirements = [_requirement(r) for r in spec.requirements or ()]
    if spec.co_location:
        requirements.append(Requirement(spec.co_location.topology_key, Operator.SAME))
    return Demand(
        profile(
            tuple(requirements),
            tuple(_hard_spread(spec.topology_spread or ())),
            spec.priority,
            _bucket("interruptionPenalty", spec.interruption_penalty),
            _bucket("reclamationPenalty", spec.reclamation_penalty),
        ),
        ADDITIONAL_GROUP if spec.additional else group_of(namespace, spec.co_location),
        tuple(sorted(unit.items())),
    )


def group_of(namespace: str, term: CoLocation | None) -> str:
    """The co-location group: equal for equal selectors, however written, within one namespace.

    It is JSON, so that no name or value can pass for the border between two others.
    """
    if term is None:
        return ""
    selector = term.label_selector or LabelSelector()
    conditions = {
        (e.key, e.operator, tuple(sorted(set(e.values or ()))))
        for e in selector.match_expressions or ()
    }
    conditions |= {(k, "In", (v,)) for k, v in (selector.match_labels or {}).items()}
    return json.dumps([namespace, term.topology_key, sorted(conditions)], separators=(",", ":"))


def _requirement(raw: RequirementSpec) -> Requirement:
    if raw.operator not in _OPERATORS:
        raise InvalidInput(f"operator of {raw.key}", raw.operator, f"is not in {list(_OPERATORS)}")
    operator = _OPERATORS[raw.operator]
    if (operator in (Operator.IN, Operator.NOT_IN)) != bool(raw.values):
        cure = "takes no values" if raw.values else "needs values"
        raise InvalidInput(f"{raw.key} {raw.operator}", raw.values, cure)
    return Requirement(raw.key, operator, tuple(raw.values or ()))


def _hard_spread(terms: Iterable[TopologySpread]) -> Iterable[Spread]:
    """Soft terms are the scheduler's to weigh; they never justify another machine."""
    return (
        Spread(t.topology_key, t.max_skew, hard=True)
        for t in terms
        if t.when_unsatisfiable == "DoNotSchedule"
    )


def _bucket(field: str, amount: Amount) -> int:
    try:
        thousandths = resources.parse(
            "dollars", str(amount), round_up=True, limit=resources.MAX_AGGREGATE_UNITS
        )
    except InvalidInput as error:
        raise InvalidInput(field, error.value, error.cure) from None
    return penalty.bucket(thousandths / 1000)
