"""Derives the rules' HpaReport from a cluster's HPA. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from kubernetes.utils.quantity import parse_quantity

from bigfleet.fedhpa.members.objects import Hpa
from bigfleet.fedhpa.shares import HpaReport
from bigfleet.fedhpa.shares.records import NEVER


def hpa_report_of(
    hpa: Hpa, unscheduled: int, metrics_replicas: int | None = None
) -> HpaReport | None:
    """The report; None while the HPA does not scale: no target, no metrics, not processed yet.

    `unscheduled` is the number of the target's Pods without a node, `metrics_replicas` the number
    of replicas that the HPA's metrics cover, None for all.
    """
    status = hpa.status
    if not (_holds(hpa, "AbleToScale") and _holds(hpa, "ScalingActive")):
        return None
    current, desired = status.current_replicas, status.desired_replicas
    usage = usage_of(hpa)
    wanted, scheduled = desired, max(0, current - unscheduled)
    if desired >= hpa.spec.max_replicas and _holds(hpa, "ScalingLimited", "TooManyReplicas"):
        used = min(scheduled, current if metrics_replicas is None else metrics_replicas)
        wanted = max(desired + 1, math.ceil(used * usage - 1e-9) if usage else 0)
    return HpaReport(current, desired, wanted, scheduled, usage)


def active_since(hpa: Hpa) -> float:
    """Since when this HPA exists and scales, in Unix time."""
    moments = [moment(hpa.metadata.creation_timestamp)]
    moments += [
        moment(each.last_transition_time)
        for each in hpa.status.conditions or ()
        if each.type == "ScalingActive"
    ]
    return max(moments)


def moment(text: str) -> float:
    """An RFC 3339 timestamp in Unix time; NEVER for an invalid one."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return NEVER


def _holds(hpa: Hpa, kind: str, reason: str = "") -> bool:
    for each in hpa.status.conditions or ():
        if each.type == kind:
            return each.status == "True" and (not reason or each.reason == reason)
    return False


def usage_of(hpa: Hpa) -> float | None:
    """The observed metric over its target; the largest ratio of several metrics."""
    wanted = _sources(hpa.spec.metrics)
    found = _sources(hpa.status.current_metrics)
    ratios = [
        ratio
        for want, has in zip(wanted, found, strict=False)
        if (ratio := _ratio(want.get("target", {}), has.get("current", {}))) is not None
    ]
    return max(ratios, default=None)


def _sources(raw: msgspec.Raw) -> list[dict[str, Any]]:
    return list(_source(raw))


def _source(raw: msgspec.Raw) -> Iterator[dict[str, Any]]:
    for metric in msgspec.json.decode(raw) or ():
        kind = str(metric.get("type", ""))
        yield metric.get(kind[:1].lower() + kind[1:]) or {}


def _ratio(target: dict[str, Any], current: dict[str, Any]) -> float | None:
    for field in ("averageUtilization", "averageValue", "value"):
        if field in target and field in current:
            goal = Decimal(parse_quantity(target[field]))
            return float(Decimal(parse_quantity(current[field])) / goal) if goal else None
    return None
