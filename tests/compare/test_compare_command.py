"""`loaddriver compare` on results of disk: its exit codes, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaddriver.__main__ import main
from loaddriver.commands import compare
from loaddriver.compare.state import (
    SIDES,
    RunRecord,
    SessionSpec,
    SessionState,
    SideSpec,
    read_state,
    write_state,
)
from loaddriver.compare.stored import runs_in
from loaddriver.errors import ExitCode
from loaddriver.judge.schema import Summary
from loaddriver.record.rows import PodRow
from loaddriver.report.results import seal_results, write_results
from tests.report.report_rig import Run, make_run

RUNS = 3
COMPONENTS = {"durations": {"shardCycle": {"count": 100.0}}}


@pytest.fixture(scope="module")
def made() -> Run:
    """A run in which every pod was bound."""
    return make_run(120)


def store(folder: Path, summary: Summary, rows: Sequence[PodRow]) -> None:
    (folder / "logs").mkdir(parents=True)
    write_results(folder, summary, rows)
    seal_results(folder, summary)


def slower_scheduler(made: Run, factor: float) -> tuple[Summary, list[PodRow]]:
    """The run with `scheduled` of each pod multiplied by the factor."""
    hops = dict(made.summary.hops_seconds)
    scheduled = hops["scheduled"]
    hops["scheduled"] = msgspec.structs.replace(scheduled, mean=factor * scheduled.mean)
    summary = msgspec.structs.replace(made.summary, hops_seconds=hops, components=COMPONENTS)
    return summary, [_bound_later(row, factor) for row in made.rows]


def _bound_later(row: PodRow, factor: float) -> PodRow:
    if row.bound_micros is None:
        return row
    later = (factor - 1) * row.hops_micros().get("scheduled", 0)
    return replace(row, bound_micros=row.bound_micros + round(later))


@pytest.fixture
def sides(made: Run, tmp_path: Path) -> Any:
    """Makes a folder of runs for each side, with the factor of HEAD's `scheduled`."""

    def stored(factor: float = 1.0) -> tuple[str, str]:
        for side, change in (("a", 1.0), ("b", factor)):
            for number in range(RUNS):
                folder = tmp_path / side / f"dev-50-20261123-00000{number}"
                store(folder, *slower_scheduler(made, change))
        return str(tmp_path / "a"), str(tmp_path / "b")

    return stored


def compared(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is written."""
    code = main(["compare", *arguments, "--out", str(tmp_path / "out")])
    (found,) = (tmp_path / "out").glob("*/comparison.json")
    return code, json.loads(found.read_text())


def test_equal_results_are_not_worse(sides: Any, tmp_path: Path) -> None:
    """And the page says that they were not interleaved."""
    code, found = compared(tmp_path, *sides())
    assert code == ExitCode.PASS
    assert (found["pairs"], found["errors"]["looks"]) == (RUNS, [RUNS])
    assert {each["verdict"] for each in found["endpoints"]} == {"same"}
    assert "not interleaved" in found["warnings"][0]


def test_a_slower_scheduler_is_a_regression_of_its_hop(sides: Any, tmp_path: Path) -> None:
    code, found = compared(tmp_path, *sides(1.3))
    assert code == ExitCode.REGRESSION
    assert found["attributed"] == "scheduled"


def test_single_runs_are_not_enough(sides: Any, tmp_path: Path) -> None:
    """One pair has no noise to compare a difference with."""
    one, other = (str(next(Path(side).iterdir())) for side in sides(1.3))
    assert compared(tmp_path, one, other)[0] == ExitCode.NOT_ENOUGH_DATA


def test_one_changed_byte_is_refused_and_can_be_forced(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 with the file's name; forced, the page says so on top."""
    base, head = sides()
    path = Path(head) / "dev-50-20261123-000001" / "report.html"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert main(["compare", base, head, "--out", str(tmp_path / "out")]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "dev-50-20261123-000001" in said
    assert "report.html" in said
    code, found = compared(tmp_path, base, head, "--force")
    assert code == ExitCode.PASS
    assert any("report.html" in warning for warning in found["warnings"])


def test_a_truncated_summary_is_refused_by_name(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = sides()
    path = Path(head) / "dev-50-20261123-000002" / "summary.json"
    path.write_bytes(path.read_bytes()[:400])
    assert main(["compare", base, head, "--out", str(tmp_path / "out")]) == ExitCode.USAGE
    assert "dev-50-20261123-000002/summary.json" in capsys.readouterr().err


def damaged(content: bytes, kind: str) -> bytes:
    at = {"first": 0, "middle": len(content) // 2, "last": len(content) - 1}
    if kind in at:
        changed = bytearray(content)
        changed[at[kind]] ^= 0x80
        return bytes(changed)
    return content[: len(content) // 2]


@pytest.mark.parametrize("kind", ["first", "middle", "last", "truncated", "gone"])
def test_any_damage_to_results_is_refused_by_name(
    kind: str, sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of any file of a run, also one that cannot be read at all."""
    base, head = sides()
    of_head = sorted(Path(head).iterdir())
    for path in sorted(of_head[0].iterdir()):
        if path.is_dir():
            continue
        content = path.read_bytes()
        if kind == "gone":
            path.unlink()
        else:
            path.write_bytes(damaged(content, kind))
        command = ["compare", base, str(of_head[0]), "--out", str(tmp_path / "out")]
        assert main(command) == ExitCode.USAGE, path
        # Without its summary it is no run, and is called that.
        name = of_head[0].name if (kind, path.name) == ("gone", "summary.json") else path.name
        assert name in capsys.readouterr().err
        path.write_bytes(content)


def test_runs_of_two_builds_are_no_side(
    sides: Any, made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a folder of results to which a later revision has added its own."""
    base, head = sides()
    source = made.summary.provenance
    assert source is not None
    other = msgspec.structs.replace(source, code={**source.code, "bigfleet": "another"})
    summary = msgspec.structs.replace(made.summary, provenance=other)
    store(Path(head) / "dev-50-20261123-000009", summary, made.rows)
    assert main(["compare", base, head, "--out", str(tmp_path / "out")]) == ExitCode.USAGE
    assert "another bigfleet than" in capsys.readouterr().err


def test_a_run_beside_another_is_not_compared_with_one_alone(
    sides: Any, made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pods waited for cores that the other run used."""
    base, head = sides()
    shutil.rmtree(head)
    at_once = msgspec.structs.replace(made.summary.run, at_once=True)
    summary = msgspec.structs.replace(made.summary, run=at_once)
    store(Path(head) / "dev-50-20261123-000000", summary, made.rows)
    assert main(["compare", base, head, "--out", str(tmp_path / "out")]) == ExitCode.USAGE
    assert "another number of runs at once than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "at_once", "profile"),
    [
        ([], False, "compare-50"),
        (["--at-once"], True, "compare-25"),
        (["--at-once", "--profile", "smoke"], True, "smoke"),
    ],
)
def test_pairs_at_once_have_half_of_the_load_unless_a_profile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], at_once: bool, profile: str
) -> None:
    monkeypatch.setattr(compare, "_play", lambda *_: ExitCode.PASS)
    command = ["compare", "--base", ".", "--head", ".", "--out", str(tmp_path), *flags]
    assert main(command) == ExitCode.PASS
    (session,) = tmp_path.iterdir()
    found = read_state(session).spec
    assert (found.at_once, found.profile) == (at_once, profile)


def test_runs_with_two_settings_are_no_side(
    sides: Any, made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the sides are to differ in settings: the profile was edited in between."""
    sides()
    folder = session_of(tmp_path)
    state = read_state(folder)
    head = msgspec.structs.replace(state.spec.head, overrides=["bigfleet.cycleSeconds=2"])
    write_state(
        folder,
        msgspec.structs.replace(state, spec=msgspec.structs.replace(state.spec, head=head)),
    )
    assert main(["compare", str(folder)]) == ExitCode.PASS
    source = made.summary.provenance
    assert source is not None
    other = msgspec.structs.replace(source, inputs={**source.inputs, "profile": "edited"})
    summary = msgspec.structs.replace(made.summary, provenance=other)
    edited = tmp_path / "b" / "dev-50-20261123-000001"
    shutil.rmtree(edited)
    store(edited, summary, made.rows)
    assert main(["compare", str(folder)]) == ExitCode.USAGE
    assert "another profile's settings than" in capsys.readouterr().err


def test_a_session_broken_off_before_its_first_pair_is_no_baseline(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides()
    folder = session_of(tmp_path)
    write_state(folder, msgspec.structs.replace(read_state(folder), runs=[]))
    assert main(["compare", str(folder), str(tmp_path / "b")]) == ExitCode.USAGE
    assert "without any run of HEAD" in capsys.readouterr().err


def test_results_are_not_compared_with_themselves(sides: Any) -> None:
    base, _ = sides()
    assert main(["compare", base, f"{base}/."]) == ExitCode.USAGE


def test_a_least_effect_of_nothing_is_refused(sides: Any) -> None:
    assert main(["compare", *sides(), "--least-effect", "-100"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    "arguments", [[], ["nowhere"], ["nowhere", "elsewhere"], ["--resume", "nowhere"]]
)
def test_what_is_nothing_to_compare_is_refused(arguments: list[str]) -> None:
    assert main(["compare", *arguments]) == ExitCode.USAGE


def test_a_session_goes_on_as_it_was_begun(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of ignoring what it cannot change any more."""
    sides()
    folder = str(session_of(tmp_path))
    changes = ["--pairs", "8..16", "--profiles", "/x", "--set-head", "bigfleet.cycleSeconds=2"]
    assert main(["compare", "--resume", folder, *changes]) == ExitCode.USAGE
    assert "leave out --profiles, --pairs, --set-head" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_session_is_interrupted_by_whatever_ends_its_terminal(number: int) -> None:
    """Its runs have sessions of their own and would play on."""
    # Whoever runs these tests may have made this process ignore it.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), compare._interrupted_by_signals():
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_session_under_nohup_goes_on_when_its_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with compare._interrupted_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_void_runs_of_a_session_count_when_it_is_a_baseline(sides: Any, tmp_path: Path) -> None:
    """Or a HEAD that crashed would look as sound as any."""
    sides()
    folder = session_of(tmp_path)
    state = read_state(folder)
    void = [msgspec.structs.replace(run, void="crashed") for run in state.runs[-1:]]
    write_state(folder, msgspec.structs.replace(state, runs=[*state.runs[:-1], *void]))
    assert len(runs_in(folder)) == RUNS


def session_of(folder: Path, head: str = "v2") -> Path:
    """A finished session whose runs are those of `sides`."""
    runs = [
        RunRecord(
            pair=number + 1, side=side, folder=f"{name}/dev-50-20261123-00000{number}", void=""
        )
        for number in range(RUNS)
        for side, name in zip(SIDES, ("a", "b"), strict=True)
    ]
    spec = SessionSpec(
        profile="dev-50",
        seed=1,
        least_pairs=RUNS,
        most_pairs=RUNS,
        least_effect=1.1,
        order_seed=1,
        base=SideSpec(label="v1"),
        head=SideSpec(label=head),
    )
    write_state(folder, SessionState(spec=spec, runs=runs, facts=[]))
    return folder


def test_a_finished_session_is_judged_again_from_its_runs(sides: Any, tmp_path: Path) -> None:
    """Nothing is taken from session.json but which run belongs where; resuming it runs nothing."""
    sides(1.3)
    folder = session_of(tmp_path)
    for arguments in ([str(folder)], ["--resume", str(folder)]):
        assert main(["compare", *arguments]) == ExitCode.REGRESSION
        found = json.loads((folder / "comparison.json").read_text())
        assert (found["head"]["label"], found["attributed"]) == ("v2", "scheduled")
        assert not any("interleaved" in warning for warning in found["warnings"])


def test_a_session_of_equal_systems_says_how_much_its_pairs_vary(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides()
    assert main(["compare", "--resume", str(session_of(tmp_path, "v1"))]) == ExitCode.PASS
    assert "from a ready node to the binding, geometric mean: pairs vary by" in "".join(
        capsys.readouterr()
    )


def test_a_pool_has_the_pairs_of_sessions(sides: Any, tmp_path: Path) -> None:
    sides()
    folder, pool = session_of(tmp_path, "v1"), tmp_path / "pool.json"
    assert main(["compare-pool", str(folder), str(folder), "--out", str(pool)]) == ExitCode.PASS
    found = json.loads(pool.read_text())
    assert (len(found["pairs"]), found["injected"]) == (2 * RUNS, "")


def test_a_pool_grows_by_further_sessions(sides: Any, tmp_path: Path) -> None:
    sides()
    folder, pool = session_of(tmp_path, "v1"), tmp_path / "pool.json"
    for count in (RUNS, 2 * RUNS):
        earlier = [str(pool)] if pool.exists() else []
        command = ["compare-pool", *earlier, str(folder), "--out", str(pool)]
        assert main(command) == ExitCode.PASS
        assert len(json.loads(pool.read_text())["pairs"]) == count


def test_a_session_is_the_baseline_by_its_head(sides: Any, tmp_path: Path) -> None:
    """What was HEAD then is what is to be compared with now."""
    sides(1.3)
    session_of(tmp_path)
    code, found = compared(tmp_path, str(tmp_path), str(tmp_path / "b"))
    assert code == ExitCode.PASS
    assert found["pairs"] == RUNS


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--schema"]) == ExitCode.PASS
    assert "Comparison" in json.loads(capsys.readouterr().out)["$defs"]
