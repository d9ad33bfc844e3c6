"""The Kubernetes objects that stand for a workload, as a tenant would write them."""

from __future__ import annotations

from typing import Any

from loaddriver.catalog import Archetype, Catalog, PodSize, Spread
from loaddriver.plan_workloads import Workload

WORKLOAD_LABEL = "scaletest.bigfleet/workload"
ARCHETYPE_LABEL = "scaletest.bigfleet/archetype"
STEP_LABEL = "scaletest.bigfleet/step"
GROUP_LABEL = "scaletest.bigfleet/co-location-group"
RUN_SECONDS_ANNOTATION = "scaletest.bigfleet/run-seconds"
INTERRUPTION_PENALTY = "bigfleet.lucy.sh/interruption-penalty"
RECLAMATION_PENALTY = "bigfleet.lucy.sh/reclamation-penalty"
INSTANCE_TYPE_KEY = "node.kubernetes.io/instance-type"
ZONE_KEY = "topology.kubernetes.io/zone"
RACK_KEY = "topology.bigfleet/rack"

_TOPOLOGY_KEYS = {"sameRack": RACK_KEY, "sameZone": ZONE_KEY}
_MOST_RETRIES = 2**31 - 1
_COLLECTIONS = {
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


def manifest_path(body: dict[str, Any]) -> str:
    """The path of the API that creates an object of this kind."""
    namespace = body["metadata"].get("namespace", "")
    return _COLLECTIONS[body["kind"]].format(namespace=namespace)


def namespace_body(name: str) -> dict[str, Any]:
    """A namespace for the workloads of one archetype."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def priority_class_name(priority: int) -> str:
    """The class that stands for a number: a Pod's number cannot be set directly."""
    return f"scaletest-{priority}"


def priority_class_body(priority: int) -> dict[str, Any]:
    """A PriorityClass that gives pods the number `priority`."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(priority)},
        "value": priority,
    }


def workload_body(workload: Workload, catalog: Catalog) -> dict[str, Any]:
    """The Deployment, StatefulSet or Job of `workload`."""
    archetype = catalog.archetype(workload.archetype)
    template = _pod_template(workload, archetype)
    selector = {"matchLabels": {WORKLOAD_LABEL: workload.name}}
    specs: dict[str, dict[str, Any]] = {
        "Deployment": {"replicas": workload.replicas, "selector": selector},
        "StatefulSet": {
            "replicas": workload.replicas,
            "selector": selector,
            "serviceName": workload.name,
            # Members of a gang come together; one by one they would wait for each other.
            "podManagementPolicy": "Parallel",
        },
        "Job": {
            "parallelism": workload.replicas,
            "completions": workload.replicas,
            "backoffLimit": _MOST_RETRIES,
        },
    }
    return {
        "apiVersion": "batch/v1" if workload.kind == "Job" else "apps/v1",
        "kind": workload.kind,
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "labels": template["metadata"]["labels"],
        },
        "spec": {**specs[workload.kind], "template": template},
    }


def _pod_template(workload: Workload, archetype: Archetype) -> dict[str, Any]:
    size = archetype.sizes[workload.size]
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "priorityClassName": priority_class_name(workload.priority),
        "affinity": _affinity(workload, archetype, size),
        "containers": [_container(size)],
    }
    if workload.kind == "Job":
        spec["restartPolicy"] = "Never"
    if workload.spread and archetype.spread is not None:
        spec["topologySpreadConstraints"] = [_spread(workload, archetype.spread)]
    metadata = {"labels": _labels(workload), "annotations": _annotations(archetype)}
    return {"metadata": metadata, "spec": spec}


def _labels(workload: Workload) -> dict[str, str]:
    labels = {
        WORKLOAD_LABEL: workload.name,
        ARCHETYPE_LABEL: workload.archetype,
        STEP_LABEL: str(workload.step),
    }
    if workload.group is not None:
        labels[GROUP_LABEL] = workload.group
    return labels


def _annotations(archetype: Archetype) -> dict[str, str]:
    annotations = {
        INTERRUPTION_PENALTY: f"{archetype.interruption_penalty_dollars:.15g}",
        RECLAMATION_PENALTY: f"{archetype.reclamation_penalty_dollars:.15g}",
    }
    if archetype.run_seconds is not None:
        annotations[RUN_SECONDS_ANNOTATION] = f"{archetype.run_seconds:.15g}"
    return annotations


def _affinity(workload: Workload, archetype: Archetype, size: PodSize) -> dict[str, Any]:
    wanted = [
        {"key": INSTANCE_TYPE_KEY, "operator": "In", "values": list(size.instance_types)},
        {"key": ZONE_KEY, "operator": "In", "values": list(archetype.zones)},
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    affinity: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    if workload.group is not None and workload.topology is not None:
        term = {
            "labelSelector": {"matchLabels": {GROUP_LABEL: workload.group}},
            "topologyKey": _TOPOLOGY_KEYS[workload.topology],
        }
        affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return affinity


def _spread(workload: Workload, spread: Spread) -> dict[str, Any]:
    return {
        "topologyKey": ZONE_KEY,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": spread.when_unsatisfiable,
        "labelSelector": {"matchLabels": {WORKLOAD_LABEL: workload.name}},
    }


def _container(size: PodSize) -> dict[str, Any]:
    amounts = {
        "cpu": f"{size.cpu_millicores}m",
        "memory": f"{size.memory_mebibytes}Mi",
        **{name: str(amount) for name, amount in sorted(size.extended_resources.items())},
    }
    return {
        "name": "app",
        "image": "fake",
        "resources": {"requests": amounts, "limits": amounts},
    }
