"""A gate holds or it does not; what cannot be read does not hold."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from judge_rig import gate

from loaddriver.judge.gates import GateResult, figure, judge_gates

Op = Literal["<=", ">=", "=="]
SUMMARY: dict[str, Any] = {
    "pods": {"created": 200, "neverBound": 0},
    "bindLatencySeconds": {"p50": 2.5, "p99": {"atLeast": 61.2}, "max": None},
    "components": {"nan": float("nan"), "text": "fast", "yes": True, "list": [1]},
}


def judged(metric: str, limit: float, op: Op = "<=") -> GateResult:
    (result,) = judge_gates(SUMMARY, [gate(metric, limit, op)])
    return result


@pytest.mark.parametrize(
    ("metric", "op", "limit", "verdict"),
    [
        ("pods.created", ">=", 200, "pass"),
        ("pods.created", ">=", 201, "fail"),
        ("pods.neverBound", "==", 0, "pass"),
        ("pods.neverBound", "==", 1, "fail"),
        ("bindLatencySeconds.p50", "<=", 2.5, "pass"),
        ("bindLatencySeconds.p50", "<=", 2.4, "fail"),
    ],
)
def test_limits_include_themselves(metric: str, op: Op, limit: float, verdict: str) -> None:
    """`<= 2.5` holds at 2.5."""
    assert judged(metric, limit, op).verdict == verdict


@pytest.mark.parametrize(
    ("metric", "note"),
    [
        ("soak.bindLatencySeconds.p99", "no soak.bindLatencySeconds.p99"),
        ("bindLatencySeconds.p99.deep", "no bindLatencySeconds.p99.deep"),
        ("bindLatencySeconds.max", "was not measured"),
        ("bindLatencySeconds.p99", "at least 61.2"),
        ("components.nan", "not a number"),
        ("components.text", "not a number"),
        ("components.yes", "not a number"),
        ("components.list", "not a number"),
        ("pods", "not a number"),
    ],
)
@pytest.mark.parametrize("op", ["<=", ">="])
def test_a_metric_that_cannot_be_read_fails_and_says_why(metric: str, note: str, op: Op) -> None:
    """Whatever the limit is: no number, no pass."""
    result = judged(metric, 0 if op == ">=" else 1e9, op)
    assert result.verdict == "fail"
    assert result.value is None
    assert note in result.note
    assert note in result.sentence


def test_a_result_carries_all_that_a_report_needs() -> None:
    """Name, value, limit, unit and origin travel with the verdict."""
    result = judged("pods.created", 300, ">=")
    assert (result.name, result.value, result.op, result.limit) == (
        "the pods.created",
        200,
        ">=",
        300,
    )
    assert (result.unit, result.origin) == ("units", "Made up for a test.")
    assert result.sentence == "The pods.created: 200 units; the limit is at least 300 units."


def test_figures_are_short_but_tell_limits_apart() -> None:
    """Decimals by size, thousands apart, no idle zeros."""
    shown = [figure(value) for value in (0.0123, 3.4482, 60.02, 1234567.0, 5000, 0, -2.5)]
    assert shown == ["0.0123", "3.448", "60.02", "1,234,567", "5,000", "0", "-2.5"]
