"""`loaddriver judge` and `loaddriver calibrate --from` need nothing but finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaddriver.__main__ import main
from loaddriver.judge.facts import InvalidReason
from loaddriver.judge.limit_rule import limit_of
from loaddriver.profile.gates import load_gates
from loaddriver.report.results import read_summary, write_results
from tests.report.report_rig import START, Run, judged, make_run

PROFILES = Path(__file__).parents[2] / "profiles"
GATES = """
gates:
  - name: create to bind, p50
    metric: bindLatencySeconds.p50
    op: "<="
    limit: {limit}
    unit: seconds
    origin: Somebody's first guess.
  - name: nobody waits in any cluster
    metric: clusters.*.neverBound
    op: "=="
    limit: 0
    unit: pods
    origin: There is room for everybody.
  - name: scheduled, against the bare run
    metric: hopsSeconds.scheduled.p50
    op: "<="
    limit: 9
    unit: times the bare run
    ratioTo: bare
    origin: Somebody's first guess.
"""


@pytest.fixture(scope="module")
def run() -> Run:
    """A run in which every pod was bound."""
    return make_run(400)


def folder(root: Path, run: Run, name: str, *, bare: bool = True, **changes: Any) -> Path:
    """The results of a run called `name`, with those of its bare run within."""
    made = root / name
    (made / "bare").mkdir(parents=True)
    if bare:
        write_results(made / "bare", judged(run, bare=True, bare_of=name), run.rows)
    write_results(made, judged(run, id=name, **changes), run.rows)
    return made


def profiles(root: Path, limit: float = 1) -> Path:
    """A profile of the run's name, with gates of its own."""
    own = root / "profiles" / "dev-50"
    own.mkdir(parents=True)
    (own.parent / "catalog.yaml").write_text((PROFILES / "catalog.yaml").read_text())
    (own / "profile.yaml").write_text((PROFILES / "dev-50" / "profile.yaml").read_text())
    (own / "expect.yaml").write_text(GATES.format(limit=limit))
    return own.parent


def test_a_run_is_judged_again_beside_its_bare_run(run: Run, tmp_path: Path) -> None:
    """Wildcards and ratios among its gates; the folder shows the new verdict."""
    results = folder(tmp_path, run, "r1")
    expect = tmp_path / "expect.yaml"
    for limit, code, verdict in ((1000, 0, "pass"), (0.0001, 3, "fail")):
        expect.write_text(GATES.format(limit=limit))
        assert main(["judge", str(results), "--expect", str(expect)]) == code
        summary = read_summary(results)
        assert summary.verdict == verdict
        assert summary.bare is not None
        assert [gate.value for gate in summary.gates[1:]] == [0, 1]


def test_without_its_bare_run_a_ratio_fails_and_says_so(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And below the verdict stands what pods waited for."""
    expect = tmp_path / "expect.yaml"
    expect.write_text(GATES.format(limit=1000))
    results = folder(tmp_path, run, "r1", bare=False)
    assert main(["judge", str(results), "--expect", str(expect)]) == 3
    said = capsys.readouterr().err
    assert "this run has no bare run" in said
    assert "Of all pods the slowest" in said


def test_limits_are_set_from_finished_runs_without_starting_any(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The profile's own file is written; its contracts stay as they were."""
    there = profiles(tmp_path)
    runs = [folder(tmp_path, run, name) for name in ("r1", "r2", "r3")]
    command = ["calibrate", "dev-50", "--profiles", str(there), "--from", *map(str, runs)]
    assert main(command) == 0
    time, nobody, ratio = load_gates(there / "dev-50" / "expect.yaml")
    p50 = run.summary.bind_latency_seconds.p50
    assert isinstance(p50, float)
    assert time.limit == limit_of([p50] * 3, "<=")
    assert "in 3 runs with seed" in time.origin
    assert (nobody.limit, nobody.origin) == (0, "There is room for everybody.")
    assert (ratio.limit, ratio.ratio_to) == (1.5, "bare")
    assert "nobody waits in any cluster: == 0 pods, kept: a contract" in capsys.readouterr().err


def test_limits_can_be_written_beside_the_profile(run: Run, tmp_path: Path) -> None:
    """To look at them before they count."""
    there, out = profiles(tmp_path), tmp_path / "proposed.yaml"
    runs = [folder(tmp_path, run, name) for name in ("r1", "r2", "r3")]
    command = ["calibrate", "dev-50", "--profiles", str(there), "--out", str(out), "--from"]
    assert main([*command, *map(str, runs)]) == 0
    assert load_gates(out)[0].limit != 1
    assert load_gates(there / "dev-50" / "expect.yaml")[0].limit == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "2"], "--runs 2: must be at least 3"),
        (["--from", "{r1}", "{r1}"], "2 runs are too few for a spread: at least 3"),
        (["--from", "{r1}", "{r1}", "/nowhere"], "give the results folder of a finished run"),
    ],
)
def test_too_little_to_learn_from_is_a_sentence(
    arguments: list[str],
    said: str,
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, and no file is touched."""
    there = profiles(tmp_path)
    first = str(folder(tmp_path, run, "r1"))
    given = [argument.replace("{r1}", first) for argument in arguments]
    assert main(["calibrate", "dev-50", "--profiles", str(there), *given]) == 2
    assert said in capsys.readouterr().err
    assert load_gates(there / "dev-50" / "expect.yaml")[0].limit == 1


def test_gates_say_what_they_would_let_pass_by_the_last_valid_run(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid run and one of another profile measure nothing."""
    there, results = profiles(tmp_path, limit=1000), tmp_path / "results"
    first = "dev-50-20261101-000001"
    folder(results, run, first, started_micros=START - 60_000_000)
    folder(results, run, "dev-50-20261101-000002", invalid_reasons=(InvalidReason("It stalled."),))
    folder(results, run, "smoke-20261101-000003", profile="smoke")
    command = ["gates", "dev-50", "--profiles", str(there), "--results", str(results)]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"measured by {first} (fail)"
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "create to bind, p50",
        "nobody waits in any cluster",
        "scheduled, against the bare run",
    ]
    assert "at most 1,000 seconds" in lines[2]
    assert "times)" in lines[2]
    assert lines[3].endswith("any change")


def test_without_a_valid_run_gates_have_nothing_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = profiles(tmp_path)
    assert main(["gates", "dev-50", "--profiles", str(there), "--results", str(tmp_path)]) == 2
    assert "run it first: loaddriver run dev-50" in capsys.readouterr().err
