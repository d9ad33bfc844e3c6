"""The Kubernetes objects of a workload, as a tenant would write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loaddriver.plan.records import Workload
from loaddriver.profile.archetypes import Archetype, PodSize, Spread, Toleration
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.instance_types import DaemonSet

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
HOSTNAME_KEY = "kubernetes.io/hostname"

TOPOLOGY_KEYS = {"sameRack": RACK_KEY, "sameZone": ZONE_KEY}
_MOST_RETRIES = 2**31 - 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_COLLECTIONS = {
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "CapacityRequest": "/apis/bigfleet.lucy.sh/v1alpha1/namespaces/{namespace}/capacityrequests",
}


def manifest_path(body: dict[str, Any]) -> str:
    """The API path to create this object."""
    return _COLLECTIONS[body["kind"]].format(namespace=body["metadata"].get("namespace", ""))


def object_path(kind: str, namespace: str, name: str) -> str:
    """The API path of one object."""
    return f"{_COLLECTIONS[kind].format(namespace=namespace)}/{name}"


def has_priority_class(archetype: Archetype) -> bool:
    """Whether its pods have a priority class; pods without one have priority 0."""
    return archetype.pods_per_machine is not None or bool(
        archetype.priority or not archetype.preempts
    )


def priority_class_name(priority: int, preempts: bool = True) -> str:
    """The name of the class for a priority, which Pods cannot set directly."""
    return f"scaletest-{priority}{'' if preempts else '-never'}"


def budget_body(workload: Workload, catalog: Catalog) -> dict[str, Any] | None:
    """The PodDisruptionBudget of `workload`, if any."""
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
            # Ordered creation would wait for each gang member to bind before the next one.
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


_PENALTY_FIELDS = {
    "interruptionPenalty": INTERRUPTION_PENALTY,
    "reclamationPenalty": RECLAMATION_PENALTY,
}


def capacity_request_body(workload: Workload, catalog: Catalog, name: str) -> dict[str, Any]:
    """The CapacityRequest of one pod of `workload`, as the pod controller would write it, but
    without an owner.
    """
    archetype = catalog.archetype(workload.archetype)
    size = archetype.sizes[workload.size]
    affinity = _affinity(workload, archetype, size)
    nodes = affinity.get("nodeAffinity", {}).get(_REQUIRED, {"nodeSelectorTerms": [{}]})
    [node_term] = nodes["nodeSelectorTerms"]
    penalties = _penalties(archetype)
    spec: dict[str, Any] = {
        "resources": {**quantities_of(size), "pods": "1"},
        "priority": workload.priority,
        "requirements": node_term.get("matchExpressions", []),
        **{field: penalties[key] for field, key in _PENALTY_FIELDS.items() if key in penalties},
    }
    if "podAffinity" in affinity:
        [spec["coLocation"]] = affinity["podAffinity"][_REQUIRED]
    if workload.spread and archetype.spread is not None:
        spec["topologySpread"] = _spreads(workload, archetype.spread)
    if "podAntiAffinity" in affinity:
        [apart] = affinity["podAntiAffinity"][_REQUIRED]
        selector, key = apart["labelSelector"], apart["topologyKey"]
        spec["antiAffinity"] = {"topologyKeys": [key], "labelSelector": selector}
    if archetype.tolerations:
        spec["tolerations"] = tolerations_of(archetype.tolerations)
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
    }
    if has_priority_class(archetype):
        spec["priorityClassName"] = priority_class_name(workload.priority, archetype.preempts)
    if affinity := _affinity(workload, archetype, size):
        spec["affinity"] = affinity
    spec["containers"] = [_container(size)]
    if archetype.node_selector:
        spec["nodeSelector"] = archetype.node_selector
    if archetype.tolerations:
        spec["tolerations"] = tolerations_of(archetype.tolerations)
    if workload.kind == "Job":
        spec["restartPolicy"] = "Never"
    if workload.spread and archetype.spread is not None:
        spec["topologySpreadConstraints"] = _spreads(workload, archetype.spread)
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
    annotations = _penalties(archetype)
    if archetype.run_seconds is not None:
        annotations[RUN_SECONDS_ANNOTATION] = f"{archetype.run_seconds:.15g}"
    return annotations


def _penalties(archetype: Archetype) -> dict[str, str]:
    dollars = {
        INTERRUPTION_PENALTY: archetype.interruption_penalty_dollars,
        RECLAMATION_PENALTY: archetype.reclamation_penalty_dollars,
    }
    return {name: f"{amount:.15g}" for name, amount in dollars.items() if amount is not None}


def _affinity(workload: Workload, archetype: Archetype, size: PodSize) -> dict[str, Any]:
    accepted = {INSTANCE_TYPE_KEY: size.instance_types, ZONE_KEY: archetype.zones}
    wanted = [
        {"key": key, "operator": "In", "values": list(values)}
        for key, values in accepted.items()
        if values
    ]
    affinity: dict[str, Any] = {}
    if wanted:
        terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
        affinity["nodeAffinity"] = {_REQUIRED: terms}
    if workload.group is not None and workload.topology is not None:
        term = {
            "labelSelector": {"matchLabels": {GROUP_LABEL: workload.group}},
            "topologyKey": TOPOLOGY_KEYS[workload.topology],
        }
        affinity["podAffinity"] = {_REQUIRED: [term]}
    if archetype.anti_affinity is not None:
        own = {"matchLabels": {WORKLOAD_LABEL: workload.name}}
        affinity["podAntiAffinity"] = {
            _REQUIRED: [{"labelSelector": own, "topologyKey": HOSTNAME_KEY}]
        }
    return affinity


def _spreads(workload: Workload, spread: Spread) -> list[dict[str, Any]]:
    own = {"matchLabels": {WORKLOAD_LABEL: workload.name}}
    zones = {
        "topologyKey": ZONE_KEY,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": spread.when_unsatisfiable,
        "labelSelector": own,
    }
    if spread.hostname_max_skew is None:
        return [zones]
    machines = {
        "topologyKey": HOSTNAME_KEY,
        "maxSkew": spread.hostname_max_skew,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": own,
    }
    return [zones, machines]


def tolerations_of(tolerations: Iterable[Toleration]) -> list[dict[str, str]]:
    """Tolerations as in a pod spec."""
    return [
        {
            "key": each.key,
            **({"operator": "Exists"} if each.value is None else {"value": each.value}),
            **({} if each.effect is None else {"effect": each.effect}),
        }
        for each in tolerations
    ]


def _container(size: PodSize) -> dict[str, Any]:
    amounts = quantities_of(size)
    return {
        "name": "app",
        "image": "fake",
        "resources": {"requests": amounts, "limits": amounts},
    }


def quantities_of(size: PodSize | DaemonSet) -> dict[str, str]:
    """The requests of one pod, as Kubernetes quantities by resource name."""
    extended = size.extended_resources if isinstance(size, PodSize) else {}
    return {
        "cpu": f"{size.cpu_millicores}m",
        "memory": f"{size.memory_mebibytes}Mi",
        **{name: str(amount) for name, amount in sorted(extended.items())},
    }
