"""Partial types of the Kubernetes API. Each has the fields that its users read, no others.

Where many objects are decoded or kept, as in the pod controller's watches, users define their own
with fewer fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from bigfleet.kube.pod_types import Condition

T = TypeVar("T")
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""Of the pod by which the API shows a static pod of a kubelet."""
TRANSIENT_TAINT_PREFIXES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that Kubernetes or a cloud controller manager sets, and removes once a Node is usable."""


class OwnerReference(msgspec.Struct):
    """An owner of an object; at most one is its `controller`."""

    kind: str
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, rename="camel"):
    """An object's metadata."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None

    @property
    def created(self) -> float:
        """The creation timestamp in Unix time; 0 if unknown."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls it."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class _Owner(Protocol):
    """What any partial type of an owner reference has."""

    kind: str
    controller: bool


def is_per_node(owners: Sequence[_Owner] | None, annotations: Mapping[str, str] | None) -> bool:
    """Whether a pod belongs to its Node: it needs no machine, and leaves with the one it is on.

    It is a DaemonSet's, or a static one of the kubelet, whose owner is its Node.
    """
    owned = any(each.controller and each.kind in ("DaemonSet", "Node") for each in owners or ())
    return owned or MIRROR_ANNOTATION in (annotations or {})


def eviction_of(pod: ObjectMeta) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request to evict the Pod, but no later one of its name."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body


class ObjectList(msgspec.Struct, Generic[T]):
    """The objects of a list."""

    items: list[T]


class _Conditions(msgspec.Struct):
    conditions: list[Condition] | None = None


class Conditioned(msgspec.Struct):
    """An object of which the conditions are read."""

    status: _Conditions = msgspec.field(default_factory=_Conditions)

    def is_true(self, condition: str) -> bool:
        """Whether it has that condition, with status True."""
        conditions = self.status.conditions or ()
        return any(each.type == condition and each.status == "True" for each in conditions)


class Named(msgspec.Struct):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta
