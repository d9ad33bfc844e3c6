"""Builders of groups, nodes and API objects for tests of anchors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.kube.watch import Changed
from bigfleet.model import resources
from loaddriver.anchors.choose import Group, PodRef
from loaddriver.anchors.free_capacity import Node
from loaddriver.anchors.pod_shape import PodShape, Requirement
from loaddriver.plan.manifests import GROUP_LABEL, INSTANCE_TYPE_KEY, RACK_KEY
from loaddriver.record.watched import Node as KubeNode
from loaddriver.record.watched import Pod

SLOT = 1000
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False"}


def shape(cpu: int = 1, types: tuple[str, ...] = ("a",)) -> PodShape:
    """A pod that requests `cpu` units and one of the instance types."""
    term = (Requirement(INSTANCE_TYPE_KEY, "In", types),)
    return PodShape((("cpu", cpu), ("pods", SLOT)), node_terms=(term,))


def node(name: str, rack: str, cpu: int, kind: str = "a", slots: int = 99) -> Node:
    """A usable node with `cpu` units and `slots` pod slots free."""
    free = {"cpu": cpu, "pods": slots * SLOT}
    return Node(name, rack, {INSTANCE_TYPE_KEY: kind, RACK_KEY: rack}, free)


def waiting(name: str, size: int, cpu: int = 1, arrived: str = "0", **more: Any) -> Group:
    """A group all of whose pods are pending."""
    pods = tuple(PodRef("t", f"{name}-{i}", f"uid-{name}-{i}") for i in range(size))
    fields = {"shape": shape(cpu), "pending": pods, **more}
    return Group(name=name, arrived=arrived, size=size, **fields)


def unfinished(name: str, size: int, rack: str, placed: int, cpu: int = 1) -> Group:
    """A group that has `placed` pods bound in `rack`, the others pending."""
    pods = tuple(PodRef("t", f"{name}-{i}", f"uid-{name}-{i}") for i in range(placed, size))
    where = frozenset({rack})
    return Group(name, "0", size, shape(cpu), pods, racks=where, placed=placed, started=True)


def pod(
    name: str,
    group: str = "g",
    on: str = "",
    *,
    leaving: bool = False,
    untried: bool = False,
    phase: str = "Pending",
    created: str = "2026-01-01T00:00:00Z",
    spec: Mapping[str, Any] | None = None,
) -> Pod:
    """A Pod of one CPU as a watch would deliver it, on node `on`, or found unschedulable."""
    containers = [{"resources": {"requests": {"cpu": "1"}}}]
    body = {
        "metadata": {
            "name": name,
            "namespace": "t",
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": {GROUP_LABEL: group} if group else {},
            **({"deletionTimestamp": created} if leaving else {}),
        },
        "spec": {"containers": containers, **({"nodeName": on} if on else {}), **(spec or {})},
        "status": {"phase": phase, "conditions": [] if untried else [UNSCHEDULABLE]},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def kube_node(
    name: str,
    rack: str = "r1",
    cpu: int = 4,
    spec: Mapping[str, Any] | None = None,
    ready: str = "True",
) -> KubeNode:
    """A Ready Node as a watch would deliver it."""
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {RACK_KEY: rack}},
        "spec": spec or {},
        "status": {
            "allocatable": {"cpu": str(cpu), "pods": "10"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(body, KubeNode)


def seen(item: Pod) -> Changed[Pod]:
    """The watch event of a Pod that was added or changed."""
    return Changed(item, deleted=False)


def cpus(node: Node) -> int:
    """Whole CPUs free."""
    return node.free["cpu"] // resources.parse("cpu", "1", round_up=True)
