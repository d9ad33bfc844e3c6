"""The desired HPA of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.fedhpa.members.objects import (
    AUTOSCALER_LABEL,
    CAPACITY_LIMIT,
    LAST_INCREASE,
    SPEC_HASH,
    Hpa,
    WorkloadName,
    spec_hash,
)
from bigfleet.fedhpa.objects import Autoscaler
from bigfleet.fedhpa.shares import Share, Write

_KEPT = (LAST_INCREASE, CAPACITY_LIMIT)


def content_of(autoscaler: Autoscaler, target: WorkloadName) -> dict[str, Any]:
    """The part of the spec that is the same in each cluster."""
    content: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": target.kind, "name": target.name}
    }
    if metrics := msgspec.json.decode(autoscaler.spec.metrics):
        content["metrics"] = metrics
    if behavior := msgspec.json.decode(autoscaler.spec.behavior):
        content["behavior"] = behavior
    return content


def kept_annotations(hpa: Hpa | None) -> dict[str, str]:
    """The annotations that the rules depend on."""
    found = hpa.metadata.annotations if hpa else {}
    return {key: found[key] for key in _KEPT if key in found}


def updated_annotations(write: Write, annotations: Mapping[str, str], now: str) -> dict[str, str]:
    """`annotations` as `write` changes them; `now` is in RFC 3339."""
    after = dict(annotations)
    if write.increased:
        after[LAST_INCREASE] = now
    if write.capacity_limit is not None:
        after[CAPACITY_LIMIT] = msgspec.json.encode(write.capacity_limit).decode()
    return after


def hpa_body(
    autoscaler: Autoscaler, content: Mapping[str, Any], share: Share, annotations: Mapping[str, str]
) -> dict[str, Any]:
    """The HPA manifest to apply."""
    metadata = autoscaler.metadata
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": {AUTOSCALER_LABEL: "true"},
            "annotations": {SPEC_HASH: spec_hash(content), **annotations},
        },
        "spec": {**content, "minReplicas": share.min, "maxReplicas": share.max},
    }
