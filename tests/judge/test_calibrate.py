"""Measured limits follow from the runs by one rule; contracts are nobody's to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loaddriver.errors import ProfileError
from loaddriver.judge.calibrate import Calibrated, Measured, calibrate, limit_of
from loaddriver.judge.expect_text import expectations_text
from loaddriver.judge.facts import InvalidReason
from loaddriver.judge.gates import GateSpec
from loaddriver.judge.schema import Summary
from loaddriver.profile.gates import Gate, load_gates
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


def runs(*seconds: float) -> list[Measured]:
    return [run(each, 11 + number) for number, each in enumerate(seconds)]


def calibrated(gates: list[GateSpec], *seconds: float) -> list[Calibrated]:
    return calibrate("smoke", gates, runs(*seconds))


def test_a_measured_limit_lies_beyond_the_worst_run_by_the_spread() -> None:
    """And its origin tells all that it rests on."""
    [found] = calibrated([timed("bindLatencySeconds.p50")], 4, 10, 6, 8, 5)
    assert found.limit == 16
    assert found.origin == (
        "Measured 4 to 10 seconds, in 5 runs, seeds 11-15, on 2 cores (AMD EPYC); "
        "limit = the worst + the spread."
    )
    assert found.kept == ""


def test_a_limit_is_not_within_what_a_run_says_it_does_not_know() -> None:
    """Twenty pods of which a third were slow: their median may as well be a slow one."""
    made = []
    for seed in (11, 12, 13):
        rows = [row(str(n), n, n + (9 if n % 3 == 0 else 1)) for n in range(20)]
        known = facts(id=f"smoke-{seed}", seed=seed, environment=MACHINE)
        summary = summarised(known, [unseen()], rows, [gate("pods.neverBound", 0)])
        assert summary.bind_latency_seconds.p50_interval == (1.0, 9.0)
        made.append(Measured(summary))
    [found] = calibrate("smoke", [timed("bindLatencySeconds.p50")], made)
    assert found.limit == 9
    assert found.origin.endswith("limit = the end of a run's own interval.")


def test_runs_that_agree_still_leave_room_for_chance() -> None:
    """A quarter of the worst; for a lower limit it lies below."""
    upper, lower = calibrated(
        [timed("bindLatencySeconds.p50"), timed("bindLatencySeconds.p50", op=">=")], 8, 8, 8
    )
    assert (upper.limit, lower.limit) == (10, 6)
    assert upper.origin.startswith("Measured 8 seconds, in 3 runs")
    assert lower.origin.endswith("limit = the worst - its quarter.")


@given(VALUES, st.sampled_from(["<=", ">="]))
@example([0.21, 0.21, 0.28], "<=")  # 1.25 times the last is 0.35000000000000003
def test_every_run_that_set_a_limit_holds_it(values: list[float], op: str) -> None:
    """With at least a quarter to spare, but for the error of binary fractions, and two digits at
    most.
    """
    limit, error = limit_of(values, op), 1e-12
    for value in values:
        if op == "<=":
            assert limit >= 1.25 * value * (1 - error)
        else:
            assert limit <= 0.75 * value * (1 + error)
    assert len(f"{limit:g}".replace(".", "").strip("0")) <= 2


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
    assert found.limit == 8
    assert "seconds, the worst of each run, in 3 runs" in found.origin


def test_a_ratio_is_measured_beside_each_runs_own_bare_run() -> None:
    """4, 6 and 8 times."""
    measured = [Measured(each.summary, run(0.5).summary) for each in runs(2, 3, 4)]
    ratio = timed("bindLatencySeconds.p50", unit="times the bare run", ratio_to="bare")
    [found] = calibrate("smoke", [ratio], measured)
    assert found.limit == 12
    [alone] = calibrated([ratio], 2, 3, 4)
    assert "this run has no bare run" in alone.kept


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (runs(1, 2), "2 runs are too few for a spread: at least 3"),
        ([*runs(1, 2), run(2, 12)], "smoke-12 is given twice"),
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
    assert "smoke-11, smoke-12, smoke-13" in " ".join(text.replace("#", " ").split())
    (tmp_path / "expect.yaml").write_text(text)
    read = load_gates(tmp_path / "expect.yaml")
    assert [each.name for each in read] == [each.name for each in gates]
    assert [(each.op, each.unit, each.ratio_to) for each in read] == [
        (each.op, each.unit, each.ratio_to) for each in gates
    ]
    assert [each.limit for each in read] == [3, 0, 2.5]
    assert read[0].origin.startswith("Measured 1.5 to 2.25 seconds, the worst of each run")
