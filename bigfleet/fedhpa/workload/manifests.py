"""The desired Deployment or ReplicaSet of a cluster. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from bigfleet.fedhpa.members.objects import (
    POD_LABEL,
    SPEC_HASH,
    WORKLOAD_LABEL,
    MemberWorkload,
    WorkloadName,
    spec_hash,
)
from bigfleet.fedhpa.objects import Workload

_ROLLING_UPDATE = {"maxSurge": "25%", "maxUnavailable": "25%"}


def body_of(workload: Workload, name: WorkloadName) -> dict[str, Any]:
    """The manifest to apply, without replicas.

    With server-side apply we would own the field, and omitting it later would reset it.
    """
    template = copy.deepcopy(workload.spec.template)
    metadata = template.get("metadata") or {}
    spec = template["spec"]
    pods = spec["template"].get("metadata") or {}
    pod_labels = {**(pods.get("labels") or {}), POD_LABEL: name.label}
    spec["template"]["metadata"] = {**pods, "labels": pod_labels}
    if name.kind == "Deployment":
        spec["strategy"] = _explicit_strategy(spec.get("strategy") or {})
    labels = {**(metadata.get("labels") or {}), WORKLOAD_LABEL: name.label}
    annotations = {**(metadata.get("annotations") or {}), SPEC_HASH: spec_hash([labels, spec])}
    return {
        "apiVersion": "apps/v1",
        "kind": name.kind,
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def _explicit_strategy(strategy: Mapping[str, Any]) -> dict[str, Any]:
    """With the API server's defaults, which we would otherwise not own: they forbid Recreate."""
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return dict(strategy)
    rolling = {**_ROLLING_UPDATE, **(strategy.get("rollingUpdate") or {})}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


def last_applied(member_workload: MemberWorkload) -> str:
    """The hash of what a cluster has, without replicas, to detect others' changes."""
    return spec_hash(
        {key: value for key, value in member_workload.spec.items() if key != "replicas"}
    )
