"""A results folder shows whether its files are still those of the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loaddriver.__main__ import main
from loaddriver.report.manifest import MANIFEST, PIN, check_manifest, update_manifest
from loaddriver.report.results import REPORT, seal_results, write_results
from tests.report.report_rig import Run, judged, make_run

EXPECT = """
gates:
  - name: every pod was created
    metric: pods.created
    op: ">="
    limit: 1
    unit: pods
    origin: Somebody's first guess.
"""


@pytest.fixture(scope="module")
def run() -> Run:
    """A run in which every pod was bound."""
    return make_run(400)


@pytest.fixture(scope="module")
def sealed(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sealed results of a run with a bare run."""
    folder = tmp_path_factory.mktemp("sealed") / "r1"
    (folder / "bare" / "logs").mkdir(parents=True)
    (folder / "logs" / "c0").mkdir(parents=True)
    (folder / "logs" / "c0" / "audit.log").write_text("a line\n")
    write_results(folder / "bare", judged(run, bare=True), run.rows)
    seal_results(folder / "bare", judged(run, bare=True))
    write_results(folder, run.summary, run.rows)
    seal_results(folder, run.summary)
    return folder


@pytest.fixture
def results(sealed: Path, tmp_path: Path) -> Path:
    """A test's own copy of them, and a file of gates beside them."""
    (tmp_path / "expect.yaml").write_text(EXPECT)
    return shutil.copytree(sealed, tmp_path / "r1")


def judge(results: Path) -> int:
    return main(["judge", str(results), "--expect", str(results.parent / "expect.yaml")])


def test_untouched_results_are_as_the_run_left_them(results: Path) -> None:
    """All files count, logs too; the bare run has a manifest of its own."""
    for folder, files in ((results, 5), (results / "bare", 4)):
        check = check_manifest(folder)
        assert check is not None
        assert (check.files, check.changed, check.missing) == (files, (), ())
    said = "all 5 files are as the run left them (manifest.json)"
    assert f"When this page was written, {said}." in (results / REPORT).read_text()


@pytest.mark.parametrize("name", ["pods.csv.gz", "summary.json", "logs/c0/audit.log"])
def test_a_changed_file_is_not_judged(
    results: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is one of the bare run."""
    with (results / name).open("ab") as file:
        file.write(b" ")
    assert judge(results) == 2
    assert f"1 changed since the run ({name}); restore them" in capsys.readouterr().err


def test_a_changed_bare_run_is_not_judged(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / "bare" / "pods.csv.gz").write_bytes(b"")
    assert judge(results) == 2
    assert "bare: of 4 files in manifest.json, 1 changed" in capsys.readouterr().err


def test_judging_again_changes_its_own_files_only(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So it can be done as often as one likes."""
    assert judge(results) == 0
    assert judge(results) == 0
    check = check_manifest(results)
    assert check is not None
    assert check.changed == ()
    assert "r1: all 5 files are as the run left them" in capsys.readouterr().err


def test_removed_logs_are_named_and_do_not_prevent_judging(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are large, and people remove them."""
    (results / "logs" / "c0" / "audit.log").unlink()
    assert judge(results) == 0
    assert "1 gone (logs/c0/audit.log)" in capsys.readouterr().err
    assert "1 gone (logs/c0/audit.log)" in (results / REPORT).read_text()


def test_a_pin_is_no_change(results: Path) -> None:
    (results / PIN).touch()
    seal_results(results, judged(make_run(50)))
    check = check_manifest(results)
    assert check is not None
    assert check.files == 5


@pytest.mark.parametrize("content", [None, "{", '{"schema": "other", "files": {}}'])
def test_results_without_a_manifest_are_judged_and_it_is_said(
    results: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as those of an older version, or of a run that was killed."""
    (results / MANIFEST).unlink()
    if content is not None:
        (results / MANIFEST).write_text(content)
    assert judge(results) == 0
    assert "has no manifest.json" in capsys.readouterr().err
    update_manifest(results, ["summary.json"])
    assert check_manifest(results) is None
