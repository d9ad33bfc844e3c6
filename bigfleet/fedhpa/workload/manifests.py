"""The Deployment or ReplicaSet that a cluster shall have. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from bigfleet.fedhpa.members.objects import (
    POD_LABEL,
    SPEC_HASH,
    WORKLOAD_LABEL,
    MemberWorkload,
    WorkloadName,
)
from bigfleet.fedhpa.objects import Workload

_ROLLING_UPDATE = {"maxSurge": "25%", "maxUnavailable": "25%"}


def body_of(workload: Workload, name: WorkloadName) -> dict[str, Any]:
    """The whole object as it is applied: never with replicas, so that these are nobody's to lose.

    Whoever applies a field owns it, and leaving it out later would reset it.
    """
    template = copy.deepcopy(workload.spec.template)
    metadata = template.get("metadata") or {}
    spec = template["spec"]
    pods = spec["template"].get("metadata") or {}
    pod_labels = {**(pods.get("labels") or {}), POD_LABEL: name.label}
    spec["template"]["metadata"] = {**pods, "labels": pod_labels}
    if name.kind == "Deployment":
        spec["strategy"] = _whole_strategy(spec.get("strategy") or {})
    labels = {**(metadata.get("labels") or {}), WORKLOAD_LABEL: name.label}
    annotations = {**(metadata.get("annotations") or {}), SPEC_HASH: digest_of([labels, spec])}
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


def _whole_strategy(strategy: Mapping[str, Any]) -> dict[str, Any]:
    """With the API server's defaults: what it fills in is nobody's, and forbids Recreate later."""
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return dict(strategy)
    rolling = {**_ROLLING_UPDATE, **(strategy.get("rollingUpdate") or {})}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


def digest_of(content: Any) -> str:
    """A short name of a content."""
    return blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=8).hexdigest()


def last_applied(member_workload: MemberWorkload) -> str:
    """What a cluster has, but for the replicas: to notice when somebody else changes it."""
    return digest_of(
        {key: value for key, value in member_workload.spec.items() if key != "replicas"}
    )
