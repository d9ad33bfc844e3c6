"""A plan for clusters of other people: its objects are in namespaces of our own, and labelled.

Pure. Names and due times stay the same.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loaddriver.plan.manifests import manifest_path
from loaddriver.plan.records import ChurnEvent, CreateEvent, LoadEvent, Plan
from loaddriver.substrates.existing.objects import (
    FLEET,
    MANAGED,
    NAMESPACE_PREFIX,
    OWN_NAMESPACE,
)

_AGENTS = "DaemonSet"
# Kinds without owner: removing them, or their namespace, removes the rest.
_LABELLED = ("Namespace", "PriorityClass")
_TEMPLATED = ("Deployment", "StatefulSet", "Job", _AGENTS)


def confined(plan: Plan, *, fleet_nodes: bool) -> Plan:
    """The plan with namespaces of our own; with `fleet_nodes` all pods are confined to the Nodes
    that the harness registers.
    """
    workloads = tuple(
        msgspec.structs.replace(each, namespace=_own(each.namespace)) for each in plan.workloads
    )
    events = tuple(_event(event, fleet_nodes) for event in plan.events)
    return Plan(plan.header, plan.steps, workloads, plan.levels, events)


def _event(event: LoadEvent, fleet_nodes: bool) -> LoadEvent:
    if isinstance(event, ChurnEvent):
        return msgspec.structs.replace(event, namespace=_own(event.namespace))
    if not isinstance(event, CreateEvent):
        return msgspec.structs.replace(event, path=_moved(event.path))
    body = _confine(msgspec.json.decode(event.body), fleet_nodes)
    raw = msgspec.Raw(msgspec.json.encode(body))
    return msgspec.structs.replace(
        event, path=manifest_path(body), body=raw, name=body["metadata"]["name"]
    )


def _confine(body: dict[str, Any], fleet_nodes: bool) -> dict[str, Any]:
    kind, metadata = body["kind"], body["metadata"]
    if kind in _LABELLED:
        metadata["labels"] = {**metadata.get("labels", {}), MANAGED[0]: MANAGED[1]}
    if kind == "Namespace":
        metadata["name"] = _own(metadata["name"])
    elif kind == _AGENTS:
        metadata["namespace"] = OWN_NAMESPACE  # it exists before the load
    elif "namespace" in metadata:
        metadata["namespace"] = _own(metadata["namespace"])
    if kind in _TEMPLATED and fleet_nodes:
        _keep_on_fleet(body["spec"]["template"]["spec"])
    return body


def _keep_on_fleet(spec: dict[str, Any]) -> None:
    key, value = FLEET
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), key: value}
    own = {"key": key, "operator": "Exists"}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), own]


def _own(namespace: str) -> str:
    return f"{NAMESPACE_PREFIX}{namespace}"


def _moved(path: str) -> str:
    """The path of a namespaced object in its own namespace."""
    before, found, rest = path.partition("/namespaces/")
    return f"{before}{found}{_own(rest)}" if found else path
