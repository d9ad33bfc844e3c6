"""Pods, shapes and Nodes from a few words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.occupancy import Occupancy, PodLocation
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.shapes import Shape, shape_of
from bigfleet.model import resources
from bigfleet.model.labels import HOSTNAME_LABEL

ZONE = "topology.kubernetes.io/zone"
_NUMBERS = itertools.count()


def pod(
    cpu: str = "1",
    owner: str = "ReplicaSet",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A Pod of `app: web`, as the API server writes it."""
    number = next(_NUMBERS)
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    owners = [{"kind": owner, "name": "o", "uid": "o-1", "controller": True}] if owner else []
    raw = {
        "metadata": {
            "name": f"p-{number}",
            "namespace": "team",
            "uid": f"uid-{number}",
            "labels": {"app": "web"},
            "ownerReferences": owners,
            **(metadata or {}),
        },
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }
    return msgspec.json.decode(json.dumps(raw), type=Pod)


def shape(
    cpu: str = "1",
    owner: str = "ReplicaSet",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Shape:
    return shape_of(pod(cpu, owner, metadata, **spec))


def peers(key: str, app: str = "web", **more: Any) -> dict[str, Any]:
    """A term about pods of `app` in one domain of `key`."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def affinity_terms(*terms: Mapping[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return {"affinity": {"podAffinity": required}}


def anti_affinity_terms(*terms: Mapping[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return {"affinity": {"podAntiAffinity": required}}


def spread(key: str, max_skew: int = 1, app: str = "web", **more: Any) -> dict[str, Any]:
    constraint = {
        **peers(key, app),
        "maxSkew": max_skew,
        "whenUnsatisfiable": "DoNotSchedule",
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def node(name: str, cpu: str = "8", zone: str = "a", **fields: Any) -> Node:
    """A ready Node of ours."""
    labels = {HOSTNAME_LABEL: name, ZONE: zone, **fields.pop("labels", {})}
    size = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return Node(name, labels, resources.parse_capacity(size), **fields)


def cluster(nodes: Iterable[Node], *pods: tuple[Shape, str, int]) -> Occupancy:
    """Nodes, and so many pods of a shape on each; on "" they wait."""
    made = Occupancy()
    made.nodes = {each.name: each for each in nodes}
    for shape, where, count in pods:
        for _ in range(count):
            made.add(PodLocation(shape, where))
    return made
