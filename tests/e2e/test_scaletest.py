"""Whole runs as a user starts them, on a real control plane, with and without failures."""

from __future__ import annotations

import csv
import gzip
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.scaletest import Scaletest, end_all

pytestmark = [pytest.mark.alone, pytest.mark.cluster, pytest.mark.timeout(1000)]

# A run that is to be broken needs to be no longer than that takes.
BRIEF = ("smoke", "--set", "soak.seconds=5")


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


def test_smoke_passes(tmp_path: Path) -> None:
    """Every pod is bound by kube-scheduler onto machines that BigFleet provided; verdict pass."""
    run = Scaletest.sound(tmp_path, "smoke")
    assert run.exit_code() == 0, run.output
    summary = run.summary()
    assert summary["verdict"] == "pass"
    assert summary["pods"]["planned"] == 200
    assert summary["pods"]["created"] == summary["pods"]["bound"] >= 200
    assert set(summary["audit"]["boundBy"]) == {"scheduler"}
    assert summary["machines"]["configured"] >= 5
    assert summary["hopsSeconds"].keys() >= {"seen", "rolledUp", "nodeReady", "scheduled"}
    with gzip.open(run.folder / "pods.csv.gz", "rt") as file:
        assert len(list(csv.DictReader(file))) == summary["pods"]["created"]
    suites = ElementTree.parse(run.folder / "junit.xml").getroot().iter("testsuite")
    assert [suite.get("failures") for suite in suites] == ["0"]
    assert (run.results / "latest" / "report.html").stat().st_size > 10_000
    assert not run.left_overs()
    for path in (p for p in run.folder.rglob("*") if p.is_file() and p.suffix != ".gz"):
        assert b'"token":' not in path.read_bytes(), f"{path} holds a credential"
        assert b"eyJhbGciOi" not in path.read_bytes(), f"{path} holds a ServiceAccount token"


@pytest.mark.parametrize(
    ("victim", "named"),
    [
        (("kube-scheduler",), "c1/kube-scheduler"),
        (("bigfleet", "shard"), "shard-0"),
        (("bigfleet", "provider"), "provider"),
    ],
)
def test_a_death_ends_the_run_as_an_infrastructure_failure(
    tmp_path: Path, victim: tuple[str, ...], named: str
) -> None:
    """When a component dies mid-run, the run names it and its log, and never passes."""
    run = Scaletest(tmp_path, *BRIEF)
    run.await_line("  ramp")
    run.kill(*victim)
    assert run.exit_code() == 6, run.output
    why = run.summary()["why"][0]
    assert f"{named} was killed by SIGKILL" in why
    assert ".log" in why
    assert run.summary()["verdict"] == "error"
    assert not run.left_overs()


@pytest.mark.parametrize("moment", ["starting 1 control plane", "starting BigFleet", "  soak"])
def test_an_interruption_cleans_up_and_leaves_a_partial_report(tmp_path: Path, moment: str) -> None:
    """Ctrl-C ends a run with 130, a report of the interruption, and full cleanup."""
    run = Scaletest(tmp_path, *BRIEF)
    run.await_line(moment)
    run.child.send_signal(signal.SIGINT)
    assert run.exit_code() == 130, run.output
    assert run.summary()["verdict"] == "error"
    assert "Interrupted" in run.summary()["why"][0]
    assert (run.folder / "report.html").exists()
    assert not run.left_overs()


def test_a_run_is_compared_with_the_bare_run_of_its_plan(tmp_path: Path) -> None:
    """Same plan, same nodes, no BigFleet. The bare part can be had anew; interrupted, it says
    nothing any more, while the run's own numbers stay.
    """
    run = Scaletest.sound(tmp_path, *BRIEF, "--bare")
    assert run.exit_code() == 0, run.output
    ours, bare = run.summary(), run.bare_summary()
    assert (bare["run"]["bare"], bare["run"]["bareOf"]) == (True, run.folder.name)
    assert bare["verdict"] == "pass"
    assert bare["pods"]["created"] == bare["pods"]["bound"] == ours["pods"]["created"]
    assert bare["nodes"]["readyAtEnd"] == len((run.folder / "nodes.jsonl").read_text().splitlines())
    assert bare["hopsSeconds"].keys() == {"scheduled"}
    assert ours["bare"]["ratios"]["bind"]["p50"] > 0
    plans = [(folder / "plan.jsonl").read_bytes() for folder in (run.folder, run.folder / "bare")]
    assert plans[0] == plans[1]
    assert not run.left_overs()

    again = Scaletest.bare_of(run)
    again.await_line("  ramp")
    again.child.send_signal(signal.SIGINT)
    assert again.exit_code() == 130, again.output
    assert "Interrupted" in run.bare_summary()["why"][0]
    assert run.summary()["pods"] == ours["pods"]
    assert run.summary()["bare"]["verdict"] == "error"
    assert not again.left_overs()


def test_a_killed_runner_leaves_nothing(tmp_path: Path) -> None:
    """After kill -9 of the runner its processes and data are gone within ten seconds."""
    run = Scaletest(tmp_path, *BRIEF)
    run.await_line("  ramp")
    os.kill(run.child.pid, signal.SIGKILL)
    assert run.exit_code() == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while run.left_overs() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not run.left_overs()


def test_a_second_run_is_rejected_while_the_first_one_runs(tmp_path: Path) -> None:
    """Two runs would falsify each other; the second is told who holds the machine, and
    leaves nothing that could be taken for results.
    """
    first = Scaletest(tmp_path / "first", *BRIEF)
    first.await_line("starting")
    second = Scaletest(tmp_path / "second", *BRIEF)
    assert second.exit_code() == 6
    assert f"pid {first.child.pid}, profile smoke" in second.output
    assert not second.results.exists()
    first.child.send_signal(signal.SIGINT)
    assert first.exit_code() == 130
