"""What a run leaves behind can be read again, by people and by programs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from loaddriver.errors import ExitCode, ProfileError
from loaddriver.judge.facts import RunFailure
from loaddriver.report.junit import render_junit
from loaddriver.report.results import (
    encode_summary,
    read_bare,
    read_pods,
    read_summary,
    write_results,
)
from tests.report.report_rig import GATES, Run, gate, judged, make_run


@pytest.fixture(scope="module")
def run() -> Run:
    """A small run with two pods never bound, so that a gate is missed."""
    return make_run(400, lost=1)


def test_summary_and_rows_come_back_as_they_were(run: Run, tmp_path: Path) -> None:
    """Re-judging and comparing need nothing else."""
    write_results(tmp_path, run.summary, run.rows)
    assert read_summary(tmp_path) == run.summary
    assert read_pods(tmp_path) == run.rows
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "junit.xml",
        "pods.csv.gz",
        "report.html",
        "summary.json",
    ]


def test_the_same_run_gives_the_same_files(run: Run, tmp_path: Path) -> None:
    """No file holds the moment of its writing."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_results(tmp_path / name, run.summary, run.rows)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_the_summary_has_the_keys_that_others_rely_on(run: Run) -> None:
    """They are an interface: a gate, a script or an older comparison reads them."""
    read = json.loads(encode_summary(run.summary))
    assert read["schema"] == "bigfleet.scaletest/v5"
    assert {"id", "profile", "seed", "substrate", "durationSeconds", "versions"} <= set(read["run"])
    assert {"planned", "created", "bound", "neverBound"} <= set(read["pods"])
    assert set(read["dueToBindSeconds"]) == set(read["bindLatencySeconds"])
    assert set(read["bindLatencySeconds"]) == {
        "p50",
        "p90",
        "p99",
        "max",
        "p50Interval",
        "p99Interval",
        "p90Interval",
    }
    assert {"configured", "created", "deleted"} <= set(read["machines"])
    gangs = {"count", "complete", "rackPure", "anchored", "schedulerFirst", "unplaced"}
    assert gangs <= set(read["gangs"])
    gate = {"name", "value", "op", "limit", "unit", "verdict", "origin"}
    assert all(gate <= set(each) for each in read["gates"])
    assert isinstance(read["bindLatencySeconds"]["p50"], float)
    assert read["bindLatencySeconds"]["max"] == {"atLeast": pytest.approx(150, abs=5)}


def test_lists_of_numbers_stay_on_one_line(run: Run) -> None:
    """A run of an hour would otherwise be ten thousand lines to scroll through."""
    text = encode_summary(run.summary).decode()
    assert text.count("\n") < 1300
    assert '"p99Interval": [' in text
    assert "]" in text.split('"p99Interval": [')[1].splitlines()[0]
    assert '"created": [' in text


def test_rows_are_a_table_that_any_tool_reads(run: Run, tmp_path: Path) -> None:
    """One header, one line per pod."""
    write_results(tmp_path, run.summary, run.rows)
    lines = gzip.decompress((tmp_path / "pods.csv.gz").read_bytes()).decode().splitlines()
    assert len(lines) == len(run.rows) + 1
    assert lines[0].startswith("cluster,namespace,name,uid,archetype,")


@pytest.mark.parametrize("content", [None, b"{}", b'{"schema": 3', b"[]"])
def test_a_folder_without_a_good_summary_is_a_sentence(
    content: bytes | None, tmp_path: Path
) -> None:
    """Not a traceback."""
    if content is not None:
        (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(ProfileError, match=r"summary\.json"):
        read_summary(tmp_path)


def test_a_summary_of_another_version_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    """Its percentiles follow another rule, whether or not its keys would fit."""
    old = encode_summary(run.summary).replace(b"scaletest/v5", b"scaletest/v3")
    (tmp_path / "summary.json").write_bytes(old)
    said = r"summary of schema bigfleet\.scaletest/v3, and this build reads .*/v5.*run the profile"
    with pytest.raises(ProfileError, match=said):
        read_summary(tmp_path)


def test_junit_has_a_case_per_gate_and_says_what_was_missed(run: Run) -> None:
    """Value against limit, and where the limit comes from."""
    suite = Xml.fromstring(render_junit(run.summary)).find("testsuite")
    assert suite is not None
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert set(cases) == {"the run can be judged", *(gate.name for gate in GATES)}
    failure = cases["no pod was left unbound"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert "2 pods; the limit is exactly 0 pods" in failure.text
    assert "origin: Made up for this run" in failure.text
    assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
    assert suite.get("tests") == str(len(cases))


def test_junit_tells_a_void_run_from_a_missed_gate(run: Run) -> None:
    """A CI system shows an error, with the reason."""
    dead = RunFailure(ExitCode.INFRASTRUCTURE, "c0/kube-scheduler was killed by SIGKILL.")
    suite = Xml.fromstring(render_junit(judged(run, run_failure=dead))).find("testsuite")
    assert suite is not None
    assert suite.get("errors") == "1"
    assert suite.findtext("testcase/error") == dead.sentence


def test_junit_says_what_pods_waited_for_and_each_reading_of_a_gate(run: Run) -> None:
    """Whoever sees only the CI's page need not open the report to begin."""
    slow = gate("each cluster, p50", "clusters.*.bindLatencySeconds.p50", 0.001)
    summary = judged(run, gates=(slow,))
    suite = Xml.fromstring(render_junit(summary)).find("testsuite")
    assert suite is not None
    said = suite.findtext("testcase/system-out")
    assert said == "\n".join(summary.diagnosis)
    assert "pod in c0 waits" in said
    failure = suite.findtext("testcase/failure")
    assert failure is not None
    assert "\nc0: " in failure
    assert "\nc1: " in failure


def test_a_bare_run_is_found_within_the_folder_of_its_pair(run: Run, tmp_path: Path) -> None:
    """Without one there is none, and that is no error."""
    assert read_bare(tmp_path) is None
    (tmp_path / "bare").mkdir()
    write_results(tmp_path / "bare", judged(run, bare=True), run.rows)
    found = read_bare(tmp_path)
    assert found is not None
    assert found.run.bare
