"""A history keeps one line for each run, loses none, and shows where a number changed."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from loaddriver.__main__ import main
from loaddriver.compare.measures import ENDPOINTS
from loaddriver.errors import ProfileError
from loaddriver.history.files import append, path_of, read_history
from loaddriver.history.page import render_history
from loaddriver.history.record import MOST_BYTES, encode, line_of
from loaddriver.history.terminal import drawing
from tests.history.history_rig import MACHINE, line, results, stored, with_decisions
from tests.report.report_rig import Run, judged, make_run
from tests.support.git import git

FILE = Path("smoke") / f"{MACHINE.id}.jsonl"


@pytest.fixture(scope="module")
def run() -> Run:
    """A run with everything that a comparison needs."""
    return make_run(400)


def test_a_run_is_one_line_with_all_that_a_comparison_decides_by(run: Run) -> None:
    found = line_of(with_decisions(run.summary), run.rows)
    assert list(found.endpoints) == [each.key for each in ENDPOINTS]
    assert all(each > 0 for each in found.endpoints.values())
    assert (found.revision, found.dirty) == (run.summary.provenance.revision, True)  # type: ignore[union-attr]
    assert found.machine.id == MACHINE.id
    encoded = encode(found)
    assert encoded.count(b"\n") == 1
    assert len(encoded) <= MOST_BYTES


def test_lines_of_equal_runs_are_equal_to_the_byte(run: Run) -> None:
    """So that git shows what changed, and a run that is added twice is one line."""
    again = make_run(400)
    assert encode(line_of(run.summary, run.rows)) == encode(line_of(again.summary, again.rows))
    keys = list(msgspec.json.decode(encode(line(1))))
    assert keys[:5] == ["schema", "run", "profile", "startedUnixSeconds", "revision"]


def test_what_a_run_did_not_measure_has_no_number(run: Run) -> None:
    summary = judged(run, harness_health=None)
    found = line_of(summary, run.rows)
    assert set(found.endpoints) == {"dueToBind", "machines", "scheduled"}


def test_a_run_of_unknown_origin_and_a_line_too_long_are_refused(run: Run) -> None:
    with pytest.raises(ProfileError, match="has no provenance"):
        line_of(judged(run, provenance=None), run.rows)
    at_once = msgspec.structs.replace(run.summary.run, at_once=True)
    with pytest.raises(ProfileError, match="another run was played at the same time"):
        line_of(msgspec.structs.replace(run.summary, run=at_once), run.rows)
    with pytest.raises(ProfileError, match="at most 4096"):
        encode(line(1, versions={"kubernetes": "1" * MOST_BYTES}))


def test_lines_come_back_in_the_order_of_time(tmp_path: Path) -> None:
    """Whatever order a merge has left them in."""
    for number in (5, 1, 3):
        assert append(tmp_path, line(number))
    assert not append(tmp_path, line(3))
    found = read_history(tmp_path, "smoke")
    assert found.lines == (line(1), line(3), line(5))
    assert found.bad == ()


def test_bad_lines_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    """Also after a writer was killed in a line: the next one begins a line of its own."""
    append(tmp_path, line(1))
    path = tmp_path / FILE
    with path.open("ab") as file:
        file.write(b"\n<<<<<<< ours\n" + encode(line(2))[:100])
    append(tmp_path, line(3))
    other = encode(line(4, machine=msgspec.structs.replace(MACHINE, id="other")))
    newer = encode(line(5)).replace(b"history/v2", b"history/v9")
    twice = encode(line(1, verdict="fail"))
    path.write_bytes(path.read_bytes() + other + newer + twice)
    found = read_history(tmp_path, "smoke")
    assert [each.run for each in found.lines] == [line(n).run for n in (1, 1, 3)]
    named = {int(str(each).split(":")[1]): each.why for each in found.bad}
    assert all(str(each).startswith(f"{path}:") for each in found.bad)
    assert sorted(named) == [3, 4, 6, 7, 8]
    assert "no run's line" in named[3]
    assert "belongs into" in named[6]
    assert "schema bigfleet.history/v9" in named[7]
    assert "differs from line 1" in named[8]


def test_writers_at_the_same_time_lose_no_line(tmp_path: Path) -> None:
    """Each has the file open for itself, as two processes have."""
    numbers = range(60)
    with ThreadPoolExecutor(3) as writers:
        assert all(writers.map(lambda number: append(tmp_path, line(number)), numbers))
    found = read_history(tmp_path, "smoke")
    assert found.lines == tuple(map(line, numbers))
    assert found.bad == ()


def test_git_merges_the_runs_of_two_branches(tmp_path: Path) -> None:
    """Both have appended to the same file, and nobody has to resolve anything."""
    git(tmp_path, "init", "-q")
    history = tmp_path / "history"
    append(history, line(1))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "checkout", "-qb", "other")
    append(history, line(2))
    append(history, line(4))
    git(tmp_path, "commit", "-qam", "other")
    git(tmp_path, "checkout", "-q", "main")
    append(history, line(3))
    git(tmp_path, "commit", "-qam", "ours")
    git(tmp_path, "merge", "-q", "other", "-m", "merge")
    found = read_history(history, "smoke")
    assert found.lines == tuple(line(number) for number in (1, 2, 3, 4))
    assert found.bad == ()


def test_the_drawing_fits_a_terminal_and_shows_each_revision() -> None:
    lines = [*stored(30), line(30, 1.5), line(31, 1.5, dirty=True), line(32, verdict="invalid")]
    drawn = list(drawing("smoke", MACHINE.id, lines))
    assert max(map(len, drawn)) <= 80
    assert drawn[0] == f"smoke on {MACHINE.id}: 33 runs of 33 revisions"
    assert any(re.match(r"2026-\d\d-\d\d 001f00000\+ +1 ", each) for each in drawn)
    [trend] = [each for each in drawn if each.startswith("due-bind ")]
    bars = trend.split()[1]
    assert bars[:30] == "\u2581" * 30
    assert bars[30:] == "\u2588\u2588\u00b7"


def test_another_speed_of_the_machine_is_said() -> None:
    """A step in all numbers that no revision has made."""
    slow = msgspec.structs.replace(MACHINE, calibration_seconds=0.0223)
    lines = drawing("smoke", MACHINE.id, [line(1), line(2, machine=slow)])
    drawn = " ".join(" ".join(lines).split())
    assert "12.3 ms in 1 run, 22.3 ms in 1 run" in drawn
    assert "speed" not in " ".join(drawing("smoke", MACHINE.id, stored()))


def test_the_page_has_each_run_as_a_dot_and_names_bad_lines(tmp_path: Path) -> None:
    """Self-contained: no script, and nothing from elsewhere."""
    for each in stored():
        append(tmp_path, each)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"<script>\n")
    page = render_history("smoke", read_history(tmp_path, "smoke"))
    assert page.count('class="point') == len(ENDPOINTS) * len(stored()) * 3  # of three widths
    assert f"{FILE}:9:" in page
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=", page)


def test_the_command_adds_draws_and_names_the_file(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results(tmp_path / "dev-50-20260921-143320", run)
    history, page = tmp_path / "history", tmp_path / "history.html"
    assert main(["history", "add", str(folder), "--history", str(history)]) == 0
    path = path_of(history, line_of(run.summary, run.rows))
    assert f"added to {path}" in capsys.readouterr().err
    assert main(["history", "add", str(folder), "--history", str(history)]) == 0
    assert "is already in" in capsys.readouterr().err
    options = ["--history", str(history), "--html", str(page)]
    assert main(["history", "dev-50", *options]) == 0
    assert "dev-50 on 0123456789abcdef: 1 run of 1 revision" in capsys.readouterr().out
    assert "<svg" in page.read_text()
    path.write_bytes(path.read_bytes() + b"oops\n")
    assert main(["history", "dev-50", *options]) == 2
    shown = capsys.readouterr()
    assert f"left out: {path}:2:" in shown.err
    assert "1 run of 1 revision" in shown.out


def test_results_without_a_manifest_are_refused(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody knows whether these files are the run's."""
    folder = results(tmp_path / "dev-50-20260921-143320", run)
    (folder / "manifest.json").unlink()
    assert main(["history", "add", str(folder), "--history", str(tmp_path / "history")]) == 2
    assert "no manifest.json" in capsys.readouterr().err


def test_changed_results_and_unclear_words_are_refused(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results(tmp_path / "dev-50-20260921-143320", run)
    (folder / "junit.xml").write_text("changed")
    history = ["--history", str(tmp_path / "history")]
    assert main(["history", "add", str(folder), *history]) == 2
    assert "junit.xml" in capsys.readouterr().err
    for words in (["add"], ["check"], ["check", "a", "b"], ["smoke", "dev-50"], ["smoke"]):
        assert main(["history", *words, *history]) == 2
