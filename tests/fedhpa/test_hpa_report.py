"""What an HPA's status means for the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bigfleet.fedhpa.autoscaler.hpa_report import active_since, hpa_report_of
from bigfleet.fedhpa.members.objects import Hpa
from bigfleet.fedhpa.members.state import Listeners, MemberState

_WORKS = [
    {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
    {
        "type": "ScalingActive",
        "status": "True",
        "reason": "ValidMetricFound",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    },
]
_TOO_MANY = {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}


def _hpa(
    metrics: list[dict[str, Any]], current: list[dict[str, Any]], *conditions: dict[str, Any]
) -> Hpa:
    body = {
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"minReplicas": 1, "maxReplicas": 5, "metrics": metrics},
        "status": {
            "currentReplicas": 5,
            "desiredReplicas": 5,
            "currentMetrics": current,
            "conditions": [*_WORKS, *conditions],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Hpa)


def _cpu(**target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _seen(**current: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "current": current}}


@pytest.mark.parametrize(
    ("target", "current", "usage"),
    [
        ({"averageUtilization": 50}, {"averageUtilization": 150}, 3.0),
        ({"averageValue": "200m"}, {"averageValue": "500m"}, 2.5),
        ({"averageValue": "1"}, {"averageValue": "250m"}, 0.25),
    ],
)
def test_usage_is_the_observed_over_the_target(
    target: dict[str, Any], current: dict[str, Any], usage: float
) -> None:
    report = hpa_report_of(_hpa([_cpu(**target)], [_seen(**current)]), 0)
    assert report is not None
    assert report.usage == usage


def test_of_several_metrics_the_most_demanding_counts() -> None:
    hpa = _hpa(
        [_cpu(averageUtilization=50), _cpu(averageValue="1")],
        [_seen(averageUtilization=25), _seen(averageValue="2")],
    )
    report = hpa_report_of(hpa, 0)
    assert report is not None
    assert report.usage == 2.0


def test_more_is_wanted_only_where_max_holds_it_down() -> None:
    cpu, seen = [_cpu(averageUtilization=50)], [_seen(averageUtilization=150)]
    limited, free = hpa_report_of(_hpa(cpu, seen, _TOO_MANY), 0), hpa_report_of(_hpa(cpu, seen), 0)
    assert limited is not None
    assert free is not None
    assert (limited.wanted, free.wanted) == (15, 5)


def test_metrics_of_fewer_replicas_than_now_are_scaled_by_those_only() -> None:
    """An HPA that has just scaled from two to five still has the metrics of the two."""
    hpa = _hpa([_cpu(averageUtilization=50)], [_seen(averageUtilization=200)], _TOO_MANY)
    stale, fresh = hpa_report_of(hpa, 0, 2), hpa_report_of(hpa, 0, 5)
    assert stale is not None
    assert fresh is not None
    assert (stale.wanted, fresh.wanted) == (8, 20)


def test_pods_without_a_node_use_nothing() -> None:
    hpa = _hpa([_cpu(averageUtilization=50)], [_seen(averageUtilization=150)], _TOO_MANY)
    report = hpa_report_of(hpa, 2)
    assert report is not None
    assert report.wanted == 9


def test_metrics_are_of_as_many_replicas_as_there_were_when_they_came() -> None:
    state = MemberState("east", {}, Listeners(lambda _: None, lambda _: None, lambda: None))
    before, after = [_seen(averageUtilization=200)], [_seen(averageUtilization=80)]
    seen = []
    for version, (replicas, current) in enumerate([(2, before), (5, before), (5, after)], start=1):
        hpa = _hpa([], current)
        hpa.metadata.resource_version = str(version)
        hpa.status.current_replicas = replicas
        state.put_hpa(hpa)
        seen.append(state.metrics_replicas[hpa.name])
    assert seen == [2, 2, 5]


def test_without_a_usable_metric_it_wants_at_least_one_more() -> None:
    report = hpa_report_of(_hpa([], [], _TOO_MANY), 0)
    assert report is not None
    assert report.wanted == 6


def test_pods_without_a_node_are_not_placed() -> None:
    report = hpa_report_of(_hpa([], []), 2)
    assert report is not None
    assert (report.current, report.scheduled) == (5, 3)


@pytest.mark.parametrize("condition", ["AbleToScale", "ScalingActive"])
def test_an_hpa_without_target_or_metrics_has_no_report(condition: str) -> None:
    hpa = _hpa([], [])
    for each in hpa.status.conditions or ():
        if each.type == condition:
            each.status = "False"
    assert hpa_report_of(hpa, 0) is None


def test_it_counts_as_fresh_from_when_it_began_to_scale() -> None:
    assert active_since(_hpa([], [])) == 1767225660.0
