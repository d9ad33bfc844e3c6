"""A run is held against stored runs only where these tell something about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from loaddriver.__main__ import main
from loaddriver.errors import ExitCode
from loaddriver.history.check import FEWEST, MOST, baseline_of, check
from loaddriver.history.files import append
from loaddriver.history.record import CALIBRATION_TOLERANCE, Line, line_of
from tests.history.history_rig import MACHINE, line, results, stored
from tests.report.report_rig import judged, make_run

LEAST = 1.10


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        (1.0, ExitCode.PASS, "same"),
        (1.5, ExitCode.REGRESSION, "regression"),
        (0.5, ExitCode.PASS, "improvement"),
    ],
)
def test_a_run_is_as_good_as_the_stored_ones_or_worse(
    change: float, code: ExitCode, word: str
) -> None:
    found = check(line(99, change), stored(), LEAST)
    assert found.exit_code is code
    assert found.sentences[0].startswith(f"due to bind, geometric mean: {word}, ")
    assert len(found.baseline) == len(stored())


def test_one_worse_endpoint_is_enough_and_comes_first() -> None:
    run = line(99)
    worse = {**run.endpoints, "apiCpu": 60.0}
    found = check(msgspec.structs.replace(run, endpoints=worse), stored(), LEAST)
    assert found.exit_code is ExitCode.REGRESSION
    assert found.sentences[0].startswith("CPU of API servers and etcd: regression, 60 ms/pod")


def test_noisy_stored_runs_prove_nothing() -> None:
    """A verdict of `same` needs an interval within the least effect, also without a change."""
    noisy = [line(number, 1 + 0.2 * (number % 2)) for number in range(8)]
    found = check(line(99, 1.1), noisy, LEAST)
    assert found.exit_code is ExitCode.NOT_ENOUGH_DATA


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"revision": line(99).revision}, "of the same revision"),
        ({"dirty": True}, "of a checkout with changes"),
        ({"verdict": "invalid"}, "invalid"),
        ({"inputs": {**line(1).inputs, "plan": "x"}}, "of another plan, profile or provider"),
        ({"inputs": {**line(1).inputs, "machines": "x"}}, "of another plan, profile or provider"),
        ({"versions": {"kubernetes": "1.35.0"}}, "with other versions of Kubernetes"),
        ({"machine": msgspec.structs.replace(MACHINE, id="other")}, "of another machine"),
        (
            {"machine": msgspec.structs.replace(MACHINE, calibration_seconds=0.0123 * 1.06)},
            "of the machine at another speed",
        ),
    ],
)
def test_runs_that_differ_in_more_than_the_revision_are_no_baseline(
    fields: dict[str, Any], why: str
) -> None:
    """So nothing is said, and the reasons are counted."""
    other = [msgspec.structs.replace(each, **fields) for each in stored()]
    found = check(line(99), other, LEAST)
    assert found.exit_code is ExitCode.NOT_ENOUGH_DATA
    assert found.baseline == ()
    assert f"8 {why}" in found.sentences[0]


def test_gates_and_bigfleets_own_version_may_differ() -> None:
    """Neither changes what is measured; the latter is what is compared."""
    run = line(99, inputs={**line(1).inputs, "gates": "x"})
    assert len(baseline_of(run, stored())) == len(stored())


def test_speeds_match_in_both_directions_or_in_none() -> None:
    for ratio in (1 + CALIBRATION_TOLERANCE / 2, 1 + 2 * CALIBRATION_TOLERANCE):
        seconds = MACHINE.calibration_seconds * ratio
        other = msgspec.structs.replace(MACHINE, calibration_seconds=seconds)
        assert MACHINE.matches(other) == other.matches(MACHINE) == (ratio < 1.05)


def test_a_baseline_is_the_newest_runs_and_neither_few_nor_old() -> None:
    assert check(line(99), stored(FEWEST - 1), LEAST).exit_code is ExitCode.NOT_ENOUGH_DATA
    assert check(line(99), stored(FEWEST), LEAST).exit_code is ExitCode.PASS
    assert baseline_of(line(99), stored(MOST + 5)) == tuple(stored(MOST + 5)[5:])


def test_a_lost_pod_that_no_stored_run_had_is_not_passed_over() -> None:
    """One run of a few proves nothing, but it is not the same either."""
    events = {"neverBound": 3}
    found = check(line(99, events=events), stored(), LEAST)
    assert found.exit_code is ExitCode.NOT_ENOUGH_DATA
    assert any("3 in this run, as many in 0 and some in 0 of 8" in s for s in found.sentences)
    before = [msgspec.structs.replace(each, events=events) for each in stored()]
    assert check(line(99, events=events), before, LEAST).exit_code is ExitCode.PASS


def test_more_lost_pods_than_any_stored_run_had_are_not_the_same() -> None:
    """A run that lost one pod is no excuse for one that loses hundreds."""
    before = [*stored()[:-1], msgspec.structs.replace(stored()[-1], events={"neverBound": 1})]
    found = check(line(99, events={"neverBound": 500}), before, LEAST)
    assert found.exit_code is ExitCode.NOT_ENOUGH_DATA
    assert check(line(99, events={"neverBound": 1}), before, LEAST).exit_code is ExitCode.PASS


def test_what_was_measured_before_and_is_not_any_more_is_not_the_same() -> None:
    run = line(99)
    fewer = {key: value for key, value in run.endpoints.items() if key != "shardCpu"}
    found = check(msgspec.structs.replace(run, endpoints=fewer), stored(), LEAST)
    assert found.exit_code is ExitCode.NOT_ENOUGH_DATA


def test_equal_builds_are_rarely_called_a_regression() -> None:
    """At most one in twenty over all endpoints, on made-up histories of equal runs."""
    draws = np.random.default_rng(11).normal(0, 0.03, (400, 9, 6))
    false = sum(
        check(_drawn(99, each[8]), [_drawn(n, each[n]) for n in range(8)], LEAST).exit_code
        is ExitCode.REGRESSION
        for each in draws
    )
    assert false / len(draws) <= 0.05


def _drawn(number: int, logarithms: np.ndarray[Any, np.dtype[np.float64]]) -> Line:
    run = line(number)
    values = np.exp(logarithms)
    endpoints = {key: float(value) for key, value in zip(run.endpoints, values, strict=True)}
    return msgspec.structs.replace(run, endpoints=endpoints)


def test_the_command_says_what_it_compared_and_exits_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pull request's run, against six runs of earlier revisions."""
    run = make_run(400)
    folder = results(tmp_path / "dev-50-20260921-143320", run)
    history = tmp_path / "history"
    options = ["--history", str(history)]
    assert main(["history", "check", str(folder), *options]) == 7
    assert "0 of 0 stored runs" in capsys.readouterr().out
    own = line_of(run.summary, run.rows)
    for number in range(6):
        append(history, _earlier(own, number, 1 + 0.002 * number))
    assert main(["history", "check", str(folder), *options]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "SAME OR BETTER 20260921-143320-dev-50"
    assert max(map(len, shown.splitlines())) <= 80
    for number in range(6, 26):
        append(history, _earlier(own, number, 0.5 + 0.002 * number))
    assert main(["history", "check", str(folder), *options]) == 4
    file = next(history.glob("*/*.jsonl"))
    file.write_bytes(file.read_bytes() + b"oops\n")
    assert main(["history", "check", str(folder), *options]) == 2
    assert f"{file}:27:" in capsys.readouterr().err


def _earlier(own: Line, number: int, factor: float) -> Line:
    """The same run of an earlier, clean revision, with its endpoints multiplied."""
    endpoints = {key: each * factor for key, each in own.endpoints.items()}
    return msgspec.structs.replace(
        own,
        run=f"dev-50-20260920-{100000 + number}",
        started_unix_seconds=own.started_unix_seconds - 86400 + number,
        revision=f"{number:040x}",
        dirty=False,
        endpoints=endpoints,
    )


def test_an_invalid_run_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(400)
    invalid = judged(run, harness_health=None)
    assert invalid.verdict == "invalid"
    folder = results(tmp_path / "dev-50-20260921-143320", run, invalid)
    assert main(["history", "check", str(folder)]) == 2
    assert "measured nothing" in capsys.readouterr().err
