"""What a run creates in an existing cluster besides its load, and the label that all of it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MANAGED = ("app.kubernetes.io/managed-by", "scaletest.bigfleet")
"""The label of every object that a run creates without an owner: what has it is removed."""
RUN_ANNOTATION = "scaletest.bigfleet/run"
OWN_NAMESPACE = "scaletest-system"
NAMESPACE_PREFIX = "scaletest-"
FLEET = ("scaletest.bigfleet/node", "fleet")
"""Label, annotation and taint of a run's own Nodes: only its load tolerates them, and only its own
kwok plays them.
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


@dataclass(frozen=True)
class Guest:
    """An autoscaler that a run brings into a cluster of other people, as a process of this machine.

    It gets an identity `name` with the rights in `rules`; the user needs those, and `of_the_user`
    to install and remove it. `definitions` are the CustomResourceDefinitions that it needs, which
    the cluster must not have: they would be those of an autoscaler of its own.
    """

    name: str
    rules: tuple[Rule, ...]
    of_the_user: tuple[Rule, ...]
    definitions: frozenset[str]

    @property
    def account(self) -> str:
        """Its ServiceAccount, and the ClusterRole of that."""
        return f"{ACCOUNT}-{self.name}"


def manifests(run_id: str, started_by: str, guest: Guest | None = None) -> list[dict[str, Any]]:
    """The namespace and the identities of the load and of the guest, in order; `started_by` is for
    people.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                **_labelled(OWN_NAMESPACE),
                "annotations": {RUN_ANNOTATION: f"{run_id}, started by {started_by}"},
            },
        },
        *_identity(ACCOUNT, (*OF_THE_LOAD, *OF_KWOK)),
        *(_identity(guest.account, guest.rules) if guest else ()),
    ]


def _identity(name: str, rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """A ServiceAccount with these rights in the whole cluster."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**_labelled(name), "namespace": OWN_NAMESPACE},
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": _labelled(name),
            "rules": role_rules(rules),
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _labelled(name),
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": OWN_NAMESPACE}],
        },
    ]


def _labelled(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {MANAGED[0]: MANAGED[1]}}
