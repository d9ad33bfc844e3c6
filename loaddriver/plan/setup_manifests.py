"""The set-up objects of a cluster: namespaces, priority classes and DaemonSets."""

from __future__ import annotations

from typing import Any

from loaddriver.plan.manifests import priority_class_name, quantities_of, tolerations_of
from loaddriver.profile.instance_types import DaemonSet

DAEMON_SET_LABEL = "scaletest.bigfleet/daemon-set"
# It exists from the start, and the audit log covers it.
AGENTS_NAMESPACE = "default"


def namespace_body(name: str) -> dict[str, Any]:
    """A namespace for the workloads of one archetype."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def priority_class_body(priority: int, preempts: bool = True) -> dict[str, Any]:
    """A PriorityClass of value `priority`, with `preemptionPolicy: Never` unless `preempts`."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(priority, preempts)},
        "value": priority,
        **({} if preempts else {"preemptionPolicy": "Never"}),
    }


def daemon_set_body(agent: DaemonSet) -> dict[str, Any]:
    """A DaemonSet of node-critical priority on every matching Node."""
    labels = {DAEMON_SET_LABEL: agent.name}
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "priorityClassName": "system-node-critical",
        "nodeSelector": agent.node_selector,
        "tolerations": tolerations_of(agent.tolerations),
        "containers": [
            {"name": "agent", "image": "fake", "resources": {"requests": quantities_of(agent)}}
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": agent.name, "namespace": AGENTS_NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
