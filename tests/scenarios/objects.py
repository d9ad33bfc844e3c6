"""What the suite understands of plain Kubernetes objects. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Objects without a namespace live here, as if set in the context of kubectl.
NAMESPACE = "scenario"

Object = Mapping[str, Any]

_TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_CLUSTER_WIDE = (
    *("Namespace", "Node", "PersistentVolume", "StorageClass", "PriorityClass"),
    *("ClusterRole", "ClusterRoleBinding", "RuntimeClass", "CSIDriver"),
)


def reference(kind: str, namespace: str, name: str) -> str:
    """How scenarios name an object: the namespace is left out where it is the scenario's own."""
    return f"{kind}/{name}" if namespace in ("", NAMESPACE) else f"{kind}/{namespace}/{name}"


def reference_of(body: Object) -> str:
    """How scenarios name this object."""
    return reference(body["kind"], namespace_of(body), body["metadata"]["name"])


def parts(text: str) -> tuple[str, str, str]:
    """Kind, namespace ("" for what has none) and name of the object that `text` names."""
    kind, *rest = text.split("/")
    if kind in _CLUSTER_WIDE:
        return kind, "", rest[-1]
    return kind, rest[0] if len(rest) == 2 else NAMESPACE, rest[-1]


def namespace_of(body: Object) -> str:
    """Where the object lives; "" for what lives in no namespace."""
    if body["kind"] in _CLUSTER_WIDE:
        return ""
    return str(body["metadata"].get("namespace", NAMESPACE))


def template_of(body: Object) -> Object | None:
    """The object's pods: itself, or its template; None for what makes no pods."""
    if body["kind"] == "Pod":
        return body
    if body["kind"] in _TEMPLATED:
        template: Object | None = (body.get("spec") or {}).get("template")
        return template
    return None


def pod_labels(body: Object) -> dict[str, str] | None:
    """The labels of the object's pods; None for what makes no pods."""
    template = template_of(body)
    if template is None:
        return None
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    if body["kind"] == "Job":
        labels["job-name"] = body["metadata"]["name"]
    return labels


def pods_of(body: Object) -> int | None:
    """How many pods the object makes at a time; None where the number of Nodes decides."""
    spec = body.get("spec") or {}
    match body["kind"]:
        case "Pod":
            return 1
        case "Deployment" | "ReplicaSet" | "StatefulSet":
            return int(spec.get("replicas", 1))
        case "Job":
            return int(spec.get("parallelism", 1))
        case "DaemonSet":
            return None
    return 0


def requirements(selector: str) -> dict[str, str]:
    """A selector's labels."""
    return dict(part.split("=", 1) for part in selector.split(","))


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether all of the selector's labels are there."""
    return all(labels.get(key) == value for key, value in requirements(selector).items())


def quantities(body: Object) -> Iterator[tuple[str, str, str]]:
    """All requests and limits of the object's pods: where (dotted), resource, amount."""
    template = template_of(body)
    spec = (template or {}).get("spec") or {}
    at = "spec" if body["kind"] == "Pod" else "spec.template.spec"
    owners = [(at, spec)]
    for field in ("containers", "initContainers"):
        owners += [(f"{at}.{field}[{n}]", each) for n, each in enumerate(spec.get(field) or ())]
    for where, owner in owners:
        for part in ("requests", "limits"):
            for resource, amount in ((owner.get("resources") or {}).get(part) or {}).items():
                yield f"{where}.resources.{part}", str(resource), str(amount)
