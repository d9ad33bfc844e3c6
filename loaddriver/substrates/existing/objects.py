"""What a run creates in an existing cluster besides its load, and the label that all of it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MANAGED = ("app.kubernetes.io/managed-by", "scaletest.bigfleet")
"""The label of every object that a run creates without an owner: what has it is removed."""
RUN_ANNOTATION = "scaletest.bigfleet/run"
OWN_NAMESPACE = "scaletest-system"
NAMESPACE_PREFIX = "scaletest-"
FLEET = ("scaletest.bigfleet/node", "fleet")
"""Label, annotation and taint of the Nodes that the harness registers: only its load tolerates
them, and only its own kwok plays them.
"""
ACCOUNT = "scaletest"
_RBAC = "rbac.authorization.k8s.io"

Rule = tuple[str, tuple[str, ...], tuple[str, ...]]
"""An API group, resources and verbs."""

OF_THE_LOAD: tuple[Rule, ...] = (
    ("", ("namespaces",), ("create", "delete", "get", "list")),
    ("apps", ("deployments", "statefulsets"), ("create", "delete", "get", "list")),
    ("apps", ("deployments/scale", "statefulsets/scale"), ("patch",)),
    ("apps", ("daemonsets",), ("create",)),
    ("batch", ("jobs",), ("create", "delete", "get", "list")),
    ("policy", ("poddisruptionbudgets",), ("create", "delete")),
    ("scheduling.k8s.io", ("priorityclasses",), ("create",)),
    ("", ("pods",), ("create", "delete", "get", "list", "watch", "patch")),
    ("", ("nodes",), ("get", "list", "watch")),
)
OF_KWOK: tuple[Rule, ...] = (
    ("", ("nodes/status", "pods/status"), ("patch",)),
    ("coordination.k8s.io", ("leases",), ("get", "list", "watch", "create", "update")),
)
OF_THE_HARNESS: tuple[Rule, ...] = (
    ("", ("serviceaccounts", "serviceaccounts/token"), ("create",)),
    (_RBAC, ("clusterroles", "clusterrolebindings"), ("create", "delete", "list")),
    ("scheduling.k8s.io", ("priorityclasses",), ("delete", "list")),
)
OF_FLEET_NODES: tuple[Rule, ...] = (
    ("", ("nodes",), ("create", "delete")),
    ("coordination.k8s.io", ("leases",), ("delete",)),
)


def role_rules(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Rules as a ClusterRole has them."""
    return [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in rules
    ]


def manifests(run_id: str, started_by: str) -> list[dict[str, Any]]:
    """The namespace and the identity of the load, in order; `started_by` is for people."""
    labels = {MANAGED[0]: MANAGED[1]}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OWN_NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": OWN_NAMESPACE,
                "labels": labels,
                "annotations": {RUN_ANNOTATION: f"{run_id}, started by {started_by}"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": OWN_NAMESPACE, "labels": labels},
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ACCOUNT, "labels": labels},
            "rules": role_rules((*OF_THE_LOAD, *OF_KWOK)),
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT, "labels": labels},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
