"""A gate holds or it does not; what cannot be read does not hold."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from loaddriver.judge.gates import GateResult, format_number, judge_gates
from tests.judge.judge_rig import gate

Op = Literal["<=", ">=", "=="]
SUMMARY: dict[str, Any] = {
    "pods": {"created": 200, "neverBound": 0},
    "bindLatencySeconds": {"p50": 2.5, "p99": {"atLeast": 61.2}, "max": None},
    "archetypes": {
        "memory-cache": {"p99": 4.0, "pods": 3},
        "tiny-stateless": {"p99": 2.0, "pods": 5},
        "gpu-training-small": {
            "p99": {"atLeast": 9.5, "requiredSampleSize": 368, "effectiveSampleSize": 4},
            "pods": 1,
        },
    },
    "clusters": {"c1": {"backlog": {"max": 7}}, "c2": {"backlog": {"max": 12}}},
    "placement": {},
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
    shown = [format_number(value) for value in (0.0123, 3.4482, 60.02, 1234567.0, 5000, 0, -2.5)]
    assert shown == ["0.0123", "3.448", "60.02", "1,234,567", "5,000", "0", "-2.5"]


def test_a_name_with_dashes_is_a_place_like_any_other() -> None:
    """Archetypes and clusters are read by their names."""
    assert judged("archetypes.memory-cache.p99", 4).verdict == "pass"
    assert judged("archetypes.memory-cash.p99", 4).note == (
        "this run's summary has no archetypes.memory-cash.p99"
    )


def test_one_gate_can_hold_for_every_cluster() -> None:
    """N clusters, one verdict: the worst decides and is named, the others are shown."""
    missed = judged("clusters.*.backlog.max", 10)
    assert (missed.verdict, missed.value) == ("fail", 12)
    assert [(each.name, each.value, each.passed) for each in missed.each] == [
        ("c1", 7, True),
        ("c2", 12, False),
    ]
    assert (
        missed.sentence == "The clusters.*.backlog.max: c2 12 units; the limit is at most 10 units."
    )
    assert judged("clusters.*.backlog.max", 12).verdict == "pass"


def test_for_a_lower_limit_the_smallest_is_the_worst() -> None:
    """The value that stands for all is the one nearest to the limit."""
    held = judged("archetypes.*.pods", 1, ">=")
    assert (held.verdict, held.value, held.note) == ("pass", 1, "the worst is gpu-training-small")


def test_one_place_that_cannot_be_read_fails_the_gate_for_all() -> None:
    """And the reason says which place and how many data it would take."""
    result = judged("archetypes.*.p99", 100)
    assert (result.verdict, result.value) == ("fail", None)
    assert result.note == (
        "gpu-training-small: at least 9.5 units; effective sample size 4, "
        "required 368; 1 of 3 missed"
    )


@pytest.mark.parametrize("metric", ["placement.*.pods", "nowhere.*.pods", "pods.created.*"])
def test_a_gate_for_each_of_none_fails(metric: str) -> None:
    """Nothing was judged."""
    result = judged(metric, 100)
    assert result.verdict == "fail"
    assert result.note == f"this run's summary has nothing at {metric}"


def test_many_missed_places_are_named_up_to_three() -> None:
    """A sentence stays a sentence."""
    many = {"clusters": {f"c{n}": {"pods": n} for n in range(9)}}
    (result,) = judge_gates(many, [gate("clusters.*.pods", 3)])
    assert "c4 4 units, c5 5 units, c6 6 units and 2 more; the limit" in result.sentence


BARE: dict[str, Any] = {
    "verdict": "pass",
    "bindLatencySeconds": {"p50": 1.25, "p99": {"atLeast": 3.0}, "max": 0.0},
}


@pytest.mark.parametrize(
    ("metric", "bare", "value", "note"),
    [
        ("bindLatencySeconds.p50", BARE, 2.0, ""),
        ("bindLatencySeconds.p50", None, None, "this run has no bare run"),
        ("bindLatencySeconds.p50", {**BARE, "verdict": "invalid"}, None, "the bare run is invalid"),
        (
            "bindLatencySeconds.p50",
            {"verdict": "fail"},
            None,
            "in the bare run: this run's summary",
        ),
        ("pods.neverBound", {"verdict": "pass", "pods": {"neverBound": 0}}, None, "it is 0"),
    ],
)
def test_a_ratio_needs_both_runs(
    metric: str, bare: dict[str, Any] | None, value: float | None, note: str
) -> None:
    """This run's number over the bare run's; whatever is missing fails the gate with its reason."""
    (result,) = judge_gates(SUMMARY, [gate(metric, 2, ratio_to="bare")], bare)
    assert result.value == value
    assert note in result.note
    assert result.passed == (value is not None)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([2.0, 4.0], [1.0, 1.6], (1.25, 4.0)),
        ([2.0, {"atLeast": 9.0}], [1.0, 1.6], (1.25, None)),
        ([2.0, 4.0], [0.0, 1.6], (1.25, None)),
        ([2.0, 4.0], [1.0, {"atLeast": 3.0}], (0.0, 4.0)),
        ([2.0, 4.0], [None, None], None),
    ],
)
def test_a_ratio_carries_what_both_runs_leave_open(
    ours: list[Any], theirs: list[Any], expected: Any
) -> None:
    """The smallest and the largest quotient that both intervals allow."""
    run = {"bindLatencySeconds": {"p50": 2.5, "p50Interval": ours}}
    bare = {"verdict": "pass", "bindLatencySeconds": {"p50": 1.25, "p50Interval": theirs}}
    (ratio,) = judge_gates(run, [gate("bindLatencySeconds.p50", 2, ratio_to="bare")], bare)
    assert (ratio.value, ratio.interval) == (2.0, expected)
    (own,) = judge_gates(run, [gate("bindLatencySeconds.p50", 3)])
    assert own.interval == (2.0, ours[1] if isinstance(ours[1], float) else None)


def test_what_has_no_interval_is_judged_without_one() -> None:
    """Counts are what they are."""
    assert judged("pods.created", 200, ">=").interval is None
