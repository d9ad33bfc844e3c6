"""The API objects of a federation within a run."""

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

# The fastest HPA policy, as a run takes only minutes.
_AT_ONCE = [{"type": "Pods", "value": 100, "periodSeconds": 15}]


def deployment(archetype: Archetype, catalog: Catalog) -> dict[str, Any]:
    """The FederatedDeployment, with pods like others of the archetype."""
    body = workload_body(_workload(archetype), catalog)
    spec = body["spec"]
    del spec["replicas"]
    # The PriorityClass is created by the load's set-up, which comes later.
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
    """The FederatedHorizontalPodAutoscaler."""
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
    """The kwok usage object that makes each pod of the workload use `cores`."""
    each = {"cpu": {"value": f"{round(cores * 1e6)}u"}, "memory": {"value": "10Mi"}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterResourceUsage",
        "metadata": {"name": NAME},
        "spec": {"selector": {"matchNamespaces": [NAMESPACE]}, "usages": [{"usage": each}]},
    }
