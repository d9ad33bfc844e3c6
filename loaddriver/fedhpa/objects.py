"""The objects of a federation within a run, as its user and its clusters' owners write them."""

from __future__ import annotations

from typing import Any

from loaddriver.plan.manifests import WORKLOAD_LABEL, workload_body
from loaddriver.plan.records import Workload
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.federation import FederationSettings

NAMESPACE = NAME = "federated"
ORIGIN = "federation"
_BIGFLEET = "bigfleet.lucy.sh/v1alpha1"
_KINDS = f"/apis/{_BIGFLEET}/namespaces/{NAMESPACE}"
AUTOSCALERS = f"{_KINDS}/federatedhorizontalpodautoscalers"
DEPLOYMENTS = f"{_KINDS}/federateddeployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SELECTOR = f"{WORKLOAD_LABEL}={NAME}"
USAGE = f"/apis/kwok.x-k8s.io/v1alpha1/clusterresourceusages/{NAME}"

# As fast as HPAs go: a run of minutes has no time for their usual caution.
_AT_ONCE = [{"type": "Pods", "value": 100, "periodSeconds": 15}]


def deployment(archetype: Archetype, catalog: Catalog) -> dict[str, Any]:
    """The federated Deployment: its pods are the load's, as any other's of the archetype."""
    body = workload_body(_workload(archetype), catalog)
    spec = body["spec"]
    del spec["replicas"]
    # The class is made by the load's own first requests, which come later.
    del spec["template"]["spec"]["priorityClassName"]
    return {
        "apiVersion": _BIGFLEET,
        "kind": "FederatedDeployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"template": {"spec": spec}},
    }


def _workload(archetype: Archetype) -> Workload:
    return Workload(
        cluster=0,
        step=0,
        namespace=NAMESPACE,
        name=NAME,
        archetype=archetype.name,
        kind="Deployment",
        size=0,
        replicas=1,
        priority=archetype.priority,
        spread=False,
        group=None,
        topology=None,
        origin=ORIGIN,
    )


def autoscaler(federation: FederationSettings) -> dict[str, Any]:
    """The federated HPA."""
    rebalance = federation.rebalance
    target = {"type": "Utilization", "averageUtilization": federation.target_percent}
    wait = federation.scale_down_stabilization_seconds
    return {
        "apiVersion": _BIGFLEET,
        "kind": "FederatedHorizontalPodAutoscaler",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"kind": "FederatedDeployment", "name": NAME},
            "minReplicas": federation.min_replicas,
            "maxReplicas": federation.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "policies": _AT_ONCE},
                "scaleDown": {"stabilizationWindowSeconds": wait, "policies": _AT_ONCE},
            },
            "rebalance": {
                "stabilizationSeconds": rebalance.stabilization_seconds,
                "cooldownSeconds": rebalance.cooldown_seconds,
                "schedulingTimeoutSeconds": rebalance.scheduling_timeout_seconds,
                "retrySeconds": rebalance.retry_seconds,
            },
        },
    }


def usage(cores: float) -> dict[str, Any]:
    """Each of the workload's pods in a cluster uses so many cores from now on."""
    each = {"cpu": {"value": f"{round(cores * 1e6)}u"}, "memory": {"value": "10Mi"}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterResourceUsage",
        "metadata": {"name": NAME},
        "spec": {"selector": {"matchNamespaces": [NAMESPACE]}, "usages": [{"usage": each}]},
    }
