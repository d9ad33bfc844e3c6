"""Builds the CapacityRequest of a Pod. Pure: the same Pod gives the same request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.api.wellknown import POD_UID_LABEL
from bigfleet.controllers.disruption_cost import RECLAMATION_PENALTY
from bigfleet.controllers.pod_controller.pod_terms import (
    pod_term_fields,
    topology_key_requirements,
    unsupported_pod_terms,
)
from bigfleet.controllers.pod_controller.pods import (
    INTERRUPTION_PENALTY,
    Metadata,
    Pod,
)
from bigfleet.controllers.podspec.amounts import effective_requests
from bigfleet.controllers.podspec.node_requirements import (
    NodeRequirements,
    TermBody,
    narrow,
    node_requirements,
    tolerations,
)
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.types import is_per_node
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.labels import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL

_ANY_MACHINE = {"key": INSTANCE_TYPE_LABEL, "operator": "Exists"}
_NEVER = "Never"
_NAME_LIMIT = 253
_UID_CHARACTERS = 8
_REPLACE_AT_ONCE = ("ReplicaSet", "ReplicationController", "Job")
# Fields of a request that are about other pods rather than the machine.
BETWEEN_PODS = ("coLocation", "topologySpread", "antiAffinity")


def needs_request(pod: Pod) -> bool:
    """Whether the Pod needs a CapacityRequest: not once it has terminated, nor if it was deleted
    before it was bound (a finalizer may hold it for long), nor while it has scheduling gates, and
    never a per-node Pod, which would keep an otherwise empty Node.
    """
    per_node = is_per_node(pod.metadata.owner_references, pod.metadata.annotations)
    never_runs = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return not (pod.terminal or never_runs or pod.spec.scheduling_gates or per_node)


def is_replaced_at_once(pod: Pod) -> bool:
    """Whether the Pod terminates and its controller has replaced it already. A StatefulSet's Pod is
    replaced when it is gone.
    """
    owners = pod.metadata.owner_references or ()
    replaced = any(owner.controller and owner.kind in _REPLACE_AT_ONCE for owner in owners)
    return replaced and pod.metadata.deletion_timestamp is not None


def request_for(pod: Pod, volumes: Iterable[Sequence[TermBody]] = ()) -> dict[str, Any]:
    """The spec of the Pod's CapacityRequest; Unsupported names a field that prevents it.

    A machine must meet one term of each of `volumes`.
    """
    where = _node_requirements(pod, volumes)
    amounts = effective_requests(pod.spec, pod.status)
    spec: dict[str, Any] = {
        "resources": resources.texts({name: amount for name, amount in amounts.items() if amount}),
        "priority": pod.spec.priority or 0,
        "requirements": [*where.requirements, *topology_key_requirements(pod)],
    }
    if where.alternatives:
        terms = [{"matchExpressions": list(term)} for term in where.alternatives]
        spec["nodeSelectorTerms"] = terms
    elif not spec["requirements"]:
        spec["requirements"] = [_ANY_MACHINE]
    if pod.spec.preemption_policy == _NEVER:
        spec["preemptionPolicy"] = _NEVER
    if tolerated := tolerations(pod.spec):
        spec["tolerations"] = tolerated
    if ports := _host_ports(pod):
        spec["hostPorts"] = ports
    return {**spec, **pod_term_fields(pod), **_penalties(pod)}


def _node_requirements(pod: Pod, volumes: Iterable[Sequence[TermBody]]) -> NodeRequirements:
    found = node_requirements(pod.spec)
    for terms in volumes:
        narrowed = narrow(found, terms)
        if narrowed is not None:
            found = narrowed
        elif not pod.spec.node_name:
            raise Unsupported(
                "volumes", "contradict the Pod's node requirements: no machine can meet both"
            )
    return found


def _host_ports(pod: Pod) -> list[dict[str, Any]]:
    """The host ports of containers and sidecars, sorted, without duplicates."""
    sidecars = [c for c in pod.spec.init_containers or () if c.restart_policy == "Always"]
    taken = {
        (p.host_port, p.protocol, p.host_ip)
        for container in (*sidecars, *pod.spec.containers)
        for p in container.ports or ()
        if p.host_port
    }
    return [
        {"port": port, "protocol": protocol, **({"hostIP": ip} if ip else {})}
        for port, protocol, ip in sorted(taken)
    ]


def _penalties(pod: Pod) -> dict[str, str]:
    annotations = pod.metadata.annotations or {}
    names = {
        "interruptionPenalty": INTERRUPTION_PENALTY,
        "reclamationPenalty": RECLAMATION_PENALTY,
    }
    return {
        field: _dollars(name, annotations[name])
        for field, name in names.items()
        if name in annotations
    }


def unsupported_fields(pod: Pod) -> Iterator[str]:
    """Fields of the Pod that its request does not express; kube-scheduler still applies them."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if affinity and affinity.preferred:
        yield "nodeAffinity.preferred"
    if any(t.operator in ("Gt", "Lt") for t in pod.spec.tolerations or ()):
        yield "tolerations"
    if pod.spec.resource_claims:
        yield "resourceClaims"
    yield from unsupported_pod_terms(pod)


def additional_request(
    spec: Mapping[str, Any], where: Sequence[Mapping[str, Any]], *, alone: bool
) -> dict[str, Any]:
    """The spec of an additional request for a Pod whose first request is `spec`.

    The requirements `where` name the domains that kube-scheduler currently allows; they replace the
    terms about other pods, but that the Pod must be `alone` on a machine.
    """
    kept = {field: value for field, value in spec.items() if field not in BETWEEN_PODS}
    apart = {"topologyKeys": [HOSTNAME_LABEL], "labelSelector": {}}
    return {
        **kept,
        **({"antiAffinity": apart} if alone else {}),
        "requirements": [*spec["requirements"], *where],
        "additional": True,
    }


def is_alone(additional: Mapping[str, Any]) -> bool:
    """Whether each Pod with such an additional request must have a machine of its own."""
    return "antiAffinity" in additional


def excluded_nodes(
    first: Mapping[str, Any], additional: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """The requirement of an additional request that excludes Nodes, if there is one; `first` is the
    spec of its Pod's first request.
    """
    where = own_requirements(first, additional)
    return [each for each in where if (each["key"], each["operator"]) == (HOSTNAME_LABEL, "NotIn")]


def own_requirements(
    first: Mapping[str, Any], additional: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """The requirements that an additional request has beyond those of its Pod's `first` one."""
    found: Sequence[Mapping[str, Any]] = additional["requirements"][len(first["requirements"]) :]
    return found


def manifest_for(
    pod: Metadata, name: str, spec: Mapping[str, Any], members: int = 0
) -> dict[str, Any]:
    """The CapacityRequest `name`, owned by its Pod; `members` is its gang's size, 0 if unknown."""
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
    """A valid name, unique among Pods of the same name."""
    limit = _NAME_LIMIT - _UID_CHARACTERS - 1
    return f"{pod_name[:limit].rstrip('.-')}-{uid[:_UID_CHARACTERS]}"


def additional_name(request: str, number: int) -> str:
    """The name of a Pod's `number`th additional request; `request` is its first one's."""
    return f"{request[: _NAME_LIMIT - len('-additional-1')]}-additional-{number}"


def _dollars(annotation: str, amount: str) -> str:
    try:
        resources.parse("dollars", amount, round_up=True, limit=resources.MAX_AGGREGATE_UNITS)
    except InvalidInput as error:
        raise Unsupported(f"annotation {annotation}", f"{amount!r} {error.hint}") from None
    return amount
