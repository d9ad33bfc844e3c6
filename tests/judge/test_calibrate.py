"""Measured limits follow from the runs by one rule; contracts are nobody's to measure."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import stdev
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loaddriver.errors import ProfileError
from loaddriver.judge.calibrate import Calibrated, Measured, calibrate
from loaddriver.judge.expect_text import expectations_text
from loaddriver.judge.facts import InvalidReason
from loaddriver.judge.gates import GateSpec, judge_gates
from loaddriver.judge.limit_rule import POWER, expected, limit_of
from loaddriver.judge.schema import Summary
from loaddriver.profile.gates import Gate, load_gates
from loaddriver.record.provenance import MachineIdentity, Provenance
from tests.judge.judge_rig import facts, gate, row, summarised, unseen

MACHINE = {"cores": "2", "processor": "AMD EPYC"}
VALUES = st.lists(st.integers(1, 10_000).map(lambda n: n / 100), min_size=3, max_size=9)


def timed(metric: str, limit: float = 99, unit: str = "seconds", **more: Any) -> Gate:
    return Gate(
        **{
            "name": "create to bind: the median",
            "metric": metric,
            "op": "<=",
            "limit": limit,
            "unit": unit,
            "origin": "Somebody's first guess.",
            **more,
        }
    )


def run(seconds: float, seed: int = 11, pods: int = 10, **more: Any) -> Measured:
    rows = [row(str(n), n, n + seconds, archetype=f"kind-{n % 2}") for n in range(pods)]
    known = facts(**{"id": f"smoke-{seed}", "seed": seed, "environment": MACHINE, **more})
    return Measured(summarised(known, [unseen()], rows, [gate("pods.neverBound", 0)]))


def of_plan(digest: str) -> Provenance:
    machine = MachineIdentity(id="m", calibration_seconds=0.025)
    inputs = {"plan": digest}
    return Provenance(
        revision="",
        dirty=None,
        code={},
        inputs=inputs,
        dependencies="",
        binaries={},
        machine=machine,
    )


def runs(*seconds: float) -> list[Measured]:
    return [run(each, id=f"smoke-{number}") for number, each in enumerate(seconds)]


def calibrated(gates: list[GateSpec], *seconds: float) -> list[Calibrated]:
    return calibrate("smoke", gates, runs(*seconds))


def test_a_measured_limit_is_the_prediction_limit_of_one_more_run() -> None:
    """And its origin tells all that it rests on."""
    [found] = calibrated([timed("bindLatencySeconds.p50")], 4, 10, 6, 8, 5)
    logs = [math.log(each) for each in (4, 10, 6, 8, 5)]
    predicted = stats.norm.fit(logs)[0] + stats.t.ppf(0.99, 4) * stdev(logs) * math.sqrt(1 + 1 / 5)
    assert found.limit == math.ceil(math.exp(predicted))
    assert found.origin.startswith(
        "Measured 4 to 10 seconds, in 5 runs with seed 11 on 2 cores (AMD EPYC). Simulated: 1."
    )
    assert found.kept == ""


def test_runs_that_agree_still_leave_room_for_another_day() -> None:
    """A spread of nearly nothing in one hour says little."""
    upper, lower = calibrated(
        [timed("bindLatencySeconds.p50"), timed("bindLatencySeconds.p50", op=">=")], *[8.0] * 5
    )
    assert (upper.limit, lower.limit) == (9.9, 6.5)
    assert upper.origin.startswith("Measured 8 seconds, in 5 runs")
    assert re.search(r" of those with \d+ % more\.$", upper.origin)
    assert re.search(r" of those with \d+ % less\.$", lower.origin)


@given(VALUES, st.sampled_from(["<=", ">="]))
def test_every_run_that_set_a_limit_holds_it(values: list[float], op: str) -> None:
    """And the limit has two digits at most."""
    limit = limit_of(values, op)
    assert all(value <= limit if op == "<=" else value >= limit for value in values)
    assert float(f"{limit:.2g}") == limit


@pytest.mark.parametrize("runs", [3, 5, 8, 16])
@pytest.mark.parametrize("sd", [0.1, 0.2, 0.4])
def test_one_equal_run_in_a_hundred_fails(runs: int, sd: float) -> None:
    """That is what the rule promises, within the error of its simulation."""
    assert expected(runs, sd).false_alarms <= 0.0125


def test_a_run_that_is_worse_by_the_stated_factor_fails_19_times_in_20() -> None:
    """Played with limits as they are set, for both directions."""
    runs_each, sd, played = 5, 0.15, 2000
    random = np.random.default_rng(1)
    factor = expected(runs_each, sd).found_factor
    failed = 0
    for logs in random.normal(1.0, sd, (played, runs_each + 1)):
        *calibration, worse = np.exp(logs)
        failed += worse * factor > limit_of(calibration, "<=")
        failed += worse / factor < limit_of(calibration, ">=")
    assert failed / (2 * played) == pytest.approx(POWER, abs=0.02)


def test_cpu_is_measured_in_calibration_tasks() -> None:
    """So that its limit carries to a machine of another speed."""
    gate = timed("resources.cpuSecondsPerPod", unit="times the calibration task")
    slow = {"provenance": {"machine": {"calibrationSeconds": 0.05}}}
    fast = {"provenance": {"machine": {"calibrationSeconds": 0.025}}}
    found = [
        judge_gates({"resources": {"cpuSecondsPerPod": cost}, **where}, [as_ratio(gate)])[0].value
        for cost, where in ((0.08, slow), (0.04, fast))
    ]
    assert found == pytest.approx([1.6, 1.6])
    [unknown] = judge_gates({"resources": {"cpuSecondsPerPod": 1.0}}, [as_ratio(gate)])
    assert not unknown.passed
    assert "no provenance.machine.calibrationSeconds" in unknown.note


def as_ratio(gate: Gate) -> Gate:
    return msgspec.structs.replace(gate, ratio_to="calibration")


@pytest.mark.parametrize(
    "contract",
    [
        timed("pods.created", 10, "pods", op=">="),
        timed("backlog.atEnd", 0, "pods", op="=="),
        timed("gangs.completeShare", 1, "share of gangs", op=">="),
        timed("bindLatencySeconds.p50", 3, "seconds", op="=="),
    ],
)
def test_contracts_stay_as_they_are(contract: Gate) -> None:
    """Counts, shares and exact values, whatever was measured."""
    [found] = calibrated([contract], 1, 2, 3)
    assert (found.limit, found.origin, found.kept) == (
        contract.limit,
        contract.origin,
        "a contract",
    )


def test_a_number_that_a_run_lacks_keeps_its_limit_and_says_so() -> None:
    """Ten pods have no p99: nothing is made up from what is not a number."""
    [found] = calibrated([timed("bindLatencySeconds.p99", 7)], 1, 2, 3)
    assert (found.limit, found.origin) == (7, "Somebody's first guess.")
    assert found.kept.startswith(
        "not a number in 3 of 3 runs: at least 1 seconds; effective sample size 10, required"
    )


def test_a_gate_for_each_is_set_by_the_worst_of_each_run() -> None:
    """Its limit must hold for all of them."""
    [found] = calibrated([timed("archetypes.*.bindLatencySeconds.max")], 4, 6, 5)
    assert found.limit == limit_of([4, 6, 5], "<=")
    assert "seconds, the worst of each run, in 3 runs" in found.origin


def test_a_ratio_is_measured_beside_each_runs_own_bare_run() -> None:
    """4, 6 and 8 times."""
    measured = [Measured(each.summary, run(0.5).summary) for each in runs(2, 3, 4)]
    ratio = timed("bindLatencySeconds.p50", unit="times the bare run", ratio_to="bare")
    [found] = calibrate("smoke", [ratio], measured)
    assert found.limit == limit_of([4, 6, 8], "<=")
    [alone] = calibrated([ratio], 2, 3, 4)
    assert "this run has no bare run" in alone.kept


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (runs(1, 2), "2 runs are too few for a spread: at least 3"),
        ([*runs(1, 2), run(2, id="smoke-1")], "smoke-1 is given twice"),
        (
            [
                *runs(1, 2),
                run(3, provenance=of_plan("b")),
                run(3, provenance=of_plan("c"), id="v2"),
            ],
            "runs of different plans",
        ),
        ([*runs(1, 2), run(3, profile="dev-50", id="d1")], "d1: a run of dev-50, not of smoke"),
        (
            [*runs(1, 2), run(3, invalid_reasons=(InvalidReason("It stalled."),), id="v1")],
            "v1: invalid or aborted",
        ),
        ([*runs(1, 2), run(3, failures=("Stuck.",), id="f1")], "f1: invalid or aborted"),
    ],
)
def test_runs_that_teach_nothing_are_refused(measured: list[Measured], said: str) -> None:
    """Each by its name."""
    with pytest.raises(ProfileError, match=said):
        calibrate("smoke", [timed("bindLatencySeconds.p50")], measured)


def test_what_is_written_is_read_again_as_it_was_meant(tmp_path: Path) -> None:
    """The file is an ordinary expect.yaml, with the runs it comes from on top."""
    gates: list[Gate] = [
        timed("archetypes.*.bindLatencySeconds.max", name="each: \"quoted\", 'so'"),
        timed("backlog.atEnd", 0, "pods", op="==", name="nobody waits"),
        timed("bindLatencySeconds.max", 2.5, "times the bare run", ratio_to="bare", name="ratio"),
    ]
    summaries: list[Summary] = [each.summary for each in runs(1.5, 2, 2.25)]
    text = expectations_text(calibrated([*gates], 1.5, 2, 2.25), summaries)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "smoke-0, smoke-1, smoke-2" in " ".join(text.replace("#", " ").split())
    (tmp_path / "expect.yaml").write_text(text)
    read = load_gates(tmp_path / "expect.yaml")
    assert [each.name for each in read] == [each.name for each in gates]
    assert [(each.op, each.unit, each.ratio_to) for each in read] == [
        (each.op, each.unit, each.ratio_to) for each in gates
    ]
    assert [each.limit for each in read] == [limit_of([1.5, 2, 2.25], "<="), 0, 2.5]
    assert read[0].origin.startswith("Measured 1.5 to 2.25 seconds, the worst of each run")
