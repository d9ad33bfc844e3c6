"""Results are kept as long as somebody needs them, and what is removed is named."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from loaddriver.__main__ import main
from loaddriver.errors import ProfileError
from loaddriver.report.results import write_verdict
from loaddriver.run.folder import KEPT_RUNS, finished_runs, prune, set_pinned
from tests.run.run_rig import summary


def runs(results: Path, profile: str, number: int) -> list[str]:
    """Folders of finished runs, the oldest first."""
    names = [f"{profile}-20261101-{n:06d}" for n in range(number)]
    for order, name in enumerate(names):
        folder = results / name
        folder.mkdir(parents=True)
        text = msgspec.json.encode(
            {"verdict": "pass", "run": {"profile": profile, "startedUnixSeconds": 1e9 + order}}
        )
        (folder / "summary.json").write_bytes(text)
    return names


def left(results: Path) -> set[str]:
    return {path.name for path in results.iterdir()}


def test_the_newest_runs_of_each_profile_are_kept(tmp_path: Path) -> None:
    """Many runs of one profile do not remove another's, such as a baseline."""
    baseline = runs(tmp_path, "dev-500", 2)
    many = runs(tmp_path, "smoke", KEPT_RUNS + 3)
    assert prune(tmp_path) == many[:3]
    assert left(tmp_path) == {*baseline, *many[3:]}


def test_a_pinned_run_is_never_removed_and_does_not_count(tmp_path: Path) -> None:
    many = runs(tmp_path, "smoke", KEPT_RUNS + 2)
    set_pinned(tmp_path, many[0], pinned=True)
    assert prune(tmp_path) == [many[1]]
    set_pinned(tmp_path, many[0], pinned=False)
    assert prune(tmp_path) == [many[0]]


def test_only_folders_of_finished_runs_are_removed(tmp_path: Path) -> None:
    """Neither what somebody else put there nor a run that is still going on."""
    many = runs(tmp_path, "smoke", KEPT_RUNS + 1)
    (tmp_path / many[0] / "summary.json").unlink()
    (tmp_path / "notes").mkdir()
    (tmp_path / "latest").symlink_to(many[-1])
    assert prune(tmp_path) == []
    assert {"notes", "latest"} < left(tmp_path)


def test_runs_are_listed_with_verdict_revision_and_pin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs(tmp_path, "smoke", 2)
    changed = {"verdict": "fail", "provenance": {"revision": 40 * "a", "dirty": True}}
    (tmp_path / second / "summary.json").write_bytes(msgspec.json.encode(changed))
    (tmp_path / first / "audit.log").write_bytes(bytes(3 << 20))
    assert main(["runs", "--results", str(tmp_path), "pin", first]) == 0
    assert main(["runs", "--results", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{first} is pinned"
    assert lines[1].split() == ["RUN", "VERDICT", "STARTED", "REVISION", "MIB"]
    assert lines[2].split()[:2] == [first, "pass"]
    assert lines[2].split()[-3:] == ["-", "3.0", "pinned"]
    assert lines[3].split()[:2] == [second, "fail"]
    assert f"{12 * 'a'}+" in lines[3].split()


def test_a_run_of_another_version_is_listed_as_well(tmp_path: Path) -> None:
    """Its summary may not even be JSON."""
    [name] = runs(tmp_path, "smoke", 1)
    (tmp_path / name / "summary.json").write_text("{")
    os.utime(tmp_path / name, (5, 5))
    [run] = finished_runs(tmp_path)
    assert (run.profile, run.verdict, run.revision) == ("smoke", "", "")


def test_pinning_what_is_no_run_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(ProfileError, match=r"notes: no finished run; `loaddriver runs` lists them"):
        set_pinned(tmp_path, "notes", pinned=True)


def test_the_newest_run_can_be_pinned_by_its_link(tmp_path: Path) -> None:
    [name] = runs(tmp_path, "smoke", 1)
    write_verdict(tmp_path / name, summary())
    (tmp_path / "latest").symlink_to(name)
    set_pinned(tmp_path, "latest", pinned=True)
    assert [run.pinned for run in finished_runs(tmp_path)] == [True]
