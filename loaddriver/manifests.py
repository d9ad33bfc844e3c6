"""The Kubernetes objects that stand for a workload, as a tenant would write them."""

from __future__ import annotations

from typing import Any

from loaddriver.catalog import Archetype, Catalog, PodSize, Spread
from loaddriver.plan_records import Workload

WORKLOAD_LABEL = "scaletest.bigfleet/workload"
ARCHETYPE_LABEL = "scaletest.bigfleet/archetype"
STEP_LABEL = "scaletest.bigfleet/step"
GROUP_LABEL = "scaletest.bigfleet/co-location-group"
RUN_SECONDS_ANNOTATION = "scaletest.bigfleet/run-seconds"
INTERRUPTION_PENALTY = "bigfleet.lucy.sh/interruption-penalty"
RECLAMATION_PENALTY = "bigfleet.lucy.sh/reclamation-penalty"
GANG_MEMBERS = "bigfleet.lucy.sh/gang-members"
INSTANCE_TYPE_KEY = "node.kubernetes.io/instance-type"
ZONE_KEY = "topology.kubernetes.io/zone"
RACK_KEY = "topology.bigfleet/rack"

_TOPOLOGY_KEYS = {"sameRack": RACK_KEY, "sameZone": ZONE_KEY}
_MOST_RETRIES = 2**31 - 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_COLLECTIONS = {
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "CapacityRequest": "/apis/bigfleet.lucy.sh/v1alpha1/namespaces/{namespace}/capacityrequests",
}


def manifest_path(body: dict[str, Any]) -> str:
    """The path of the API that creates an object of this kind."""
    return _COLLECTIONS[body["kind"]].format(namespace=body["metadata"].get("namespace", ""))


def object_path(kind: str, namespace: str, name: str) -> str:
    """The path of one object."""
    return f"{_COLLECTIONS[kind].format(namespace=namespace)}/{name}"


def namespace_body(name: str) -> dict[str, Any]:
    """A namespace for the workloads of one archetype."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def priority_class_name(priority: int, preempts: bool = True) -> str:
    """The class that stands for a number: a Pod's number cannot be set directly."""
    return f"scaletest-{priority}{'' if preempts else '-never'}"


def priority_class_body(priority: int, preempts: bool = True) -> dict[str, Any]:
    """A PriorityClass that gives pods the number `priority`; whether kube-scheduler may then remove
    others for them.
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(priority, preempts)},
        "value": priority,
        **({} if preempts else {"preemptionPolicy": "Never"}),
    }


def budget_body(workload: Workload, catalog: Catalog) -> dict[str, Any] | None:
    """The PodDisruptionBudget that a tenant wants for `workload`, if any."""
    budget = catalog.archetype(workload.archetype).disruption_budget
    if budget is None:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": workload.name, "namespace": workload.namespace},
        "spec": {
            "maxUnavailable": f"{budget.max_unavailable_percent}%",
            "selector": {"matchLabels": {WORKLOAD_LABEL: workload.name}},
        },
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


def capacity_request_body(workload: Workload, catalog: Catalog, name: str) -> dict[str, Any]:
    """What one pod of `workload` needs, written by hand: the request that its pod controller would
    write for it, without a pod to own it.
    """
    archetype = catalog.archetype(workload.archetype)
    size = archetype.sizes[workload.size]
    affinity = _affinity(workload, archetype, size)
    [node_term] = affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    spec: dict[str, Any] = {
        "resources": {**_amounts(size), "pods": "1"},
        "priority": workload.priority,
        "requirements": node_term["matchExpressions"],
        "interruptionPenalty": _dollars(archetype.interruption_penalty_dollars),
        "reclamationPenalty": _dollars(archetype.reclamation_penalty_dollars),
    }
    if "podAffinity" in affinity:
        [spec["coLocation"]] = affinity["podAffinity"][_REQUIRED]
    if workload.spread and archetype.spread is not None:
        spec["topologySpread"] = [_spread(workload, archetype.spread)]
    if not archetype.preempts:
        spec["preemptionPolicy"] = "Never"
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {
            "name": name,
            "namespace": workload.namespace,
            "labels": _labels(workload),
            **({"annotations": {GANG_MEMBERS: str(workload.replicas)}} if workload.group else {}),
        },
        "spec": spec,
    }


def _pod_template(workload: Workload, archetype: Archetype) -> dict[str, Any]:
    size = archetype.sizes[workload.size]
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "priorityClassName": priority_class_name(workload.priority, archetype.preempts),
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
        STEP_LABEL: workload.step_label,
    }
    if workload.group is not None:
        labels[GROUP_LABEL] = workload.group
    return labels


def _annotations(archetype: Archetype) -> dict[str, str]:
    annotations = {
        INTERRUPTION_PENALTY: _dollars(archetype.interruption_penalty_dollars),
        RECLAMATION_PENALTY: _dollars(archetype.reclamation_penalty_dollars),
    }
    if archetype.run_seconds is not None:
        annotations[RUN_SECONDS_ANNOTATION] = f"{archetype.run_seconds:.15g}"
    return annotations


def _dollars(amount: float) -> str:
    return f"{amount:.15g}"


def _affinity(workload: Workload, archetype: Archetype, size: PodSize) -> dict[str, Any]:
    wanted = [
        {"key": INSTANCE_TYPE_KEY, "operator": "In", "values": list(size.instance_types)},
        {"key": ZONE_KEY, "operator": "In", "values": list(archetype.zones)},
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    affinity: dict[str, Any] = {"nodeAffinity": {_REQUIRED: terms}}
    if workload.group is not None and workload.topology is not None:
        term = {
            "labelSelector": {"matchLabels": {GROUP_LABEL: workload.group}},
            "topologyKey": _TOPOLOGY_KEYS[workload.topology],
        }
        affinity["podAffinity"] = {_REQUIRED: [term]}
    return affinity


def _spread(workload: Workload, spread: Spread) -> dict[str, Any]:
    return {
        "topologyKey": ZONE_KEY,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": spread.when_unsatisfiable,
        "labelSelector": {"matchLabels": {WORKLOAD_LABEL: workload.name}},
    }


def _container(size: PodSize) -> dict[str, Any]:
    amounts = _amounts(size)
    return {
        "name": "app",
        "image": "fake",
        "resources": {"requests": amounts, "limits": amounts},
    }


def _amounts(size: PodSize) -> dict[str, str]:
    return {
        "cpu": f"{size.cpu_millicores}m",
        "memory": f"{size.memory_mebibytes}Mi",
        **{name: str(amount) for name, amount in sorted(size.extended_resources.items())},
    }
