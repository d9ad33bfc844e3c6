"""From a Pod to what it needs of a machine. Pure: the same Pod gives the same request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.controllers.disruption_cost import RECLAMATION_PENALTY
from bigfleet.controllers.pod_controller.pods import (
    INTERRUPTION_PENALTY,
    POD_UID_LABEL,
    Container,
    Expression,
    LabelSelector,
    Metadata,
    NodeTerm,
    Pod,
    PodAffinity,
    PodTerm,
    Quantities,
)
from bigfleet.model import resources
from bigfleet.model.errors import BigFleetError, InvalidInput

_ANY_MACHINE = {"key": "node.kubernetes.io/instance-type", "operator": "Exists"}
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NAME_LIMIT = 253
_UID_CHARACTERS = 8
# What a request says of other pods, rather than of its machine.
BETWEEN_PODS = ("coLocation", "topologySpread", "antiAffinity")
# Resources that a Pod may ask for as a whole, in place of its containers' sum.
_POD_LEVEL = ("cpu", "memory", "hugepages-")


class Unsupported(BigFleetError):
    """A wish that cannot be carried over, and without which the request would be a lie."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field


def wants_request(pod: Pod) -> bool:
    """Whether the Pod asks for machines: not once it has ended, and never one that each Node brings
    along, or else an empty Node's own Pods would keep the Node.
    """
    owners = pod.metadata.owner_references or ()
    return not pod.terminal and all(o.kind not in ("DaemonSet", "Node") for o in owners)


def request_for(pod: Pod) -> dict[str, Any]:
    """The spec of the Pod's CapacityRequest. Unsupported names the field that forbids one."""
    spec: dict[str, Any] = {
        "resources": resources.texts({k: v for k, v in effective_requests(pod).items() if v}),
        "priority": pod.spec.priority or 0,
        "requirements": _requirements(pod),
    }
    if term := _co_location(pod):
        spec["coLocation"] = term
    if spread := pod.spec.topology_spread_constraints:
        spec["topologySpread"] = [
            {
                "topologyKey": s.topology_key,
                "maxSkew": s.max_skew,
                "whenUnsatisfiable": s.when_unsatisfiable,
            }
            for s in spread
        ]
    annotations = pod.metadata.annotations or {}
    for field, name in (
        ("interruptionPenalty", INTERRUPTION_PENALTY),
        ("reclamationPenalty", RECLAMATION_PENALTY),
    ):
        if name in annotations:
            spec[field] = _dollars(name, annotations[name])
    return spec


def additional_request(
    spec: Mapping[str, Any], where: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The spec by which a Pod whose request is `spec` asks for a machine beyond those there are.

    The requirements `where` name the domains that kube-scheduler leaves it now; they stand for what
    bound it to other pods.
    """
    kept = {field: value for field, value in spec.items() if field not in BETWEEN_PODS}
    return {**kept, "requirements": [*spec["requirements"], *where], "additional": True}


def manifest_for(
    pod: Metadata, name: str, spec: Mapping[str, Any], members: int = 0
) -> dict[str, Any]:
    """The whole CapacityRequest `name`: owned by its Pod, so that it goes with it; `members` is the
    size of the Pod's gang, where that is known.
    """
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": pod.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "labels": {POD_UID_LABEL: pod.uid},
            **({"annotations": {GANG_MEMBERS: str(members)}} if members else {}),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def request_name(pod_name: str, uid: str) -> str:
    """A legal name that a later Pod of the same name will not have."""
    room = _NAME_LIMIT - _UID_CHARACTERS - 1
    return f"{pod_name[:room].rstrip('.-')}-{uid[:_UID_CHARACTERS]}"


def additional_name(request: str, number: int) -> str:
    """The name of a Pod's `number`th additional request; its first one is called `request`."""
    return f"{request[: _NAME_LIMIT - len('-additional-1')]}-additional-{number}"


def effective_requests(pod: Pod) -> dict[str, int]:
    """What the scheduler reserves for the Pod, and one pod slot, in units of `model.resources`.

    Containers and sidecars run together; each plain init container runs with the sidecars that
    started before it; the Pod's own requests, where it has some, replace that; overhead is added.
    """
    initial = pod.spec.init_containers or []
    sidecars = resources.add(_requests(c) for c in initial if c.restart_policy == "Always")
    running = resources.add([sidecars, *(_requests(c) for c in pod.spec.containers)])
    peak = {**running}
    for moment in _initial_moments(initial):
        for name, amount in moment.items():
            peak[name] = max(peak.get(name, 0), amount)
    if pod.spec.resources and pod.spec.resources.requests:
        own = _units(pod.spec.resources.requests)
        peak |= {name: amount for name, amount in own.items() if name.startswith(_POD_LEVEL)}
    total = resources.add([peak, _units(pod.spec.overhead or {})])
    total[resources.PODS] = resources.parse(resources.PODS, "1", round_up=True)
    return total


def _initial_moments(initial: Sequence[Container]) -> Iterator[dict[str, int]]:
    started: dict[str, int] = {}
    for container in initial:
        moment = resources.add([started, _requests(container)])
        if container.restart_policy == "Always":
            started = moment
        yield moment


def _requests(container: Container) -> dict[str, int]:
    return _units((container.resources and container.resources.requests) or {})


def _units(quantities: Quantities) -> dict[str, int]:
    try:
        return {name: _parse(name, str(quantity)) for name, quantity in quantities.items()}
    except InvalidInput as error:
        raise Unsupported(f"request for {error.what}", f"{error.value} {error.cure}") from None


@lru_cache(maxsize=4096)
def _parse(resource: str, quantity: str) -> int:
    return resources.parse(resource, quantity, round_up=True)


def _dollars(annotation: str, amount: str) -> str:
    try:
        resources.parse("dollars", amount, round_up=True, limit=resources.MAX_AGGREGATE_UNITS)
    except InvalidInput as error:
        raise Unsupported(f"annotation {annotation}", f"{amount!r} {error.cure}") from None
    return amount


def _requirements(pod: Pod) -> list[dict[str, Any]]:
    selector = pod.spec.node_selector or {}
    found = [{"key": k, "operator": "In", "values": [v]} for k, v in sorted(selector.items())]
    if term := _first_node_term(pod):
        found += [_requirement(e) for e in term.match_expressions or ()]
    return found or [_ANY_MACHINE]


def _first_node_term(pod: Pod) -> NodeTerm | None:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = (affinity and affinity.required and affinity.required.node_selector_terms) or ()
    if not terms:
        return None
    first = terms[0]
    where = "nodeAffinity.required[0]"
    if first.match_fields:
        raise Unsupported(f"{where}.matchFields", "binds the Pod to Nodes by name")
    if not first.match_expressions:
        raise Unsupported(where, "is empty, which matches no Node")
    return first


def _requirement(expression: Expression) -> dict[str, Any]:
    if expression.operator not in _OPERATORS:
        raise Unsupported(
            "nodeAffinity.required[0].matchExpressions",
            f"asks {expression.operator} of {expression.key}, which machines are not chosen by; "
            f"use one of {', '.join(_OPERATORS)}",
        )
    requirement: dict[str, Any] = {"key": expression.key, "operator": expression.operator}
    if expression.values:
        requirement["values"] = expression.values
    return requirement


def _co_location(pod: Pod) -> dict[str, Any] | None:
    terms = _required_pod_terms(pod)
    if not terms:
        return None
    term: dict[str, Any] = {"topologyKey": terms[0].topology_key}
    if (selector := terms[0].label_selector) is not None:
        term["labelSelector"] = _selector(selector)
    return term


def _required_pod_terms(pod: Pod) -> Sequence[PodTerm]:
    affinity = pod.spec.affinity and pod.spec.affinity.pod_affinity
    return (affinity and affinity.required) or ()


def _selector(selector: LabelSelector) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    if selector.match_labels:
        plain["matchLabels"] = selector.match_labels
    if selector.match_expressions:
        plain["matchExpressions"] = [
            {"key": e.key, "operator": e.operator, **({"values": e.values} if e.values else {})}
            for e in selector.match_expressions
        ]
    return plain


def ignored_wishes(pod: Pod) -> Iterator[str]:
    """Fields of the Pod that its request does not carry; the scheduler still honours them."""
    affinity = pod.spec.affinity
    if affinity is None:
        return
    yield from _ignored_in_node_affinity(pod)
    terms = _required_pod_terms(pod)
    if len(terms) > 1:
        yield "podAffinity.required[1:]"
    if terms and (terms[0].namespaces or terms[0].namespace_selector is not None):
        yield "podAffinity.required[0].namespaces"
    yield from _preferred("podAffinity", affinity.pod_affinity)
    anti = affinity.pod_anti_affinity
    if anti and anti.required:
        yield "podAntiAffinity.required"
    yield from _preferred("podAntiAffinity", anti)


def _ignored_in_node_affinity(pod: Pod) -> Iterator[str]:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if affinity and affinity.preferred:
        yield "nodeAffinity.preferred"
    if affinity and affinity.required and len(affinity.required.node_selector_terms or ()) > 1:
        yield "nodeAffinity.required[1:]"


def _preferred(name: str, affinity: PodAffinity | None) -> Iterator[str]:
    if affinity and affinity.preferred:
        yield f"{name}.preferred"
