"""Whole runs as a user starts them, on a real control plane, with and without failures."""

from __future__ import annotations

import csv
import gzip
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.scaletest import WITHOUT_BIGFLEET, Scaletest, end_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

# A run that is to be broken needs to be no longer than that takes.
BRIEF = ("smoke", "--set", "soak.seconds=5")


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Scaletest:
    """The smoke profile, played with BigFleet and then without."""
    return Scaletest.sound(tmp_path_factory.mktemp("smoke"), "smoke", "--bare")


@pytest.fixture
def tempdir(tmp_path: Path) -> Path:
    """For a run that measures nothing, and bears other runs beside it."""
    path = tmp_path / "tmp"
    path.mkdir()
    return path


@pytest.mark.alone
def test_smoke_passes(smoke: Scaletest) -> None:
    """Every pod is bound by kube-scheduler onto machines that BigFleet provided; verdict pass."""
    assert smoke.exit_code() == 0, smoke.output
    summary = smoke.summary()
    assert summary["verdict"] == "pass"
    assert summary["pods"]["planned"] == 200
    pods = summary["pods"]
    assert pods["created"] - pods["withdrawn"] == pods["bound"] >= 200
    assert set(summary["audit"]["boundBy"]) == {"scheduler"}
    assert (summary["audit"]["differences"], summary["audit"]["found"]) == (0, [])
    assert summary["machines"]["configured"] >= 5
    assert summary["hopsSeconds"].keys() >= {"seen", "rolledUp", "nodeReady", "scheduled"}
    with gzip.open(smoke.folder / "pods.csv.gz", "rt") as file:
        assert len(list(csv.DictReader(file))) == summary["pods"]["created"]
    suites = ElementTree.parse(smoke.folder / "junit.xml").getroot().iter("testsuite")
    assert [suite.get("failures") for suite in suites] == ["0"]
    assert (smoke.results / "latest" / "report.html").stat().st_size > 10_000
    assert not smoke.left_overs()
    for path in (p for p in smoke.folder.rglob("*") if p.is_file() and p.suffix != ".gz"):
        assert b'"token":' not in path.read_bytes(), f"{path} holds a credential"
        assert b"eyJhbGciOi" not in path.read_bytes(), f"{path} holds a ServiceAccount token"


@pytest.mark.alone
def test_a_run_is_compared_with_the_bare_run_of_its_plan(smoke: Scaletest) -> None:
    """Same plan, same nodes, no BigFleet. The bare part can be had anew; interrupted, it says
    nothing any more, while the run's own numbers stay.
    """
    ours, bare = smoke.summary(), smoke.bare_summary()
    assert (bare["run"]["bare"], bare["run"]["bareOf"]) == (True, smoke.folder.name)
    assert bare["verdict"] == "pass"
    assert bare["pods"]["created"] - bare["pods"]["withdrawn"] == bare["pods"]["bound"]
    assert bare["pods"]["bound"] == ours["pods"]["bound"]
    nodes = (smoke.folder / "nodes.jsonl").read_text().splitlines()
    assert bare["nodes"]["readyAtEnd"] == len(nodes)
    assert bare["hopsSeconds"].keys() == {"arrived", "scheduled"}
    assert ours["bare"]["ratios"]["bind"]["p50"] > 0
    folders = (smoke.folder, smoke.folder / "bare")
    plans = [(folder / "plan.jsonl").read_bytes() for folder in folders]
    assert plans[0] == plans[1]

    again = Scaletest.bare_of(smoke)
    again.await_line("  ramp")
    again.child.send_signal(signal.SIGINT)
    assert again.exit_code() == 130, again.output
    assert "Interrupted" in smoke.bare_summary()["why"][0]
    assert smoke.summary()["pods"] == ours["pods"]
    assert smoke.summary()["bare"]["verdict"] == "error"
    assert not again.left_overs()


@pytest.mark.parametrize(
    ("victim", "named", "settings"),
    [
        (("kube-scheduler",), "c1/kube-scheduler", WITHOUT_BIGFLEET),
        (("bigfleet", "shard"), "shard-0", ()),
        (("bigfleet", "provider"), "provider", ()),
    ],
)
def test_a_death_ends_the_run_as_an_infrastructure_failure(
    tmp_path: Path,
    tempdir: Path,
    victim: tuple[str, ...],
    named: str,
    settings: tuple[str, ...],
) -> None:
    """When a component dies mid-run, the run names it and its log, and never passes."""
    run = Scaletest(tmp_path / "results", *BRIEF, *settings, tempdir=tempdir)
    run.await_line("  ramp")
    run.kill(*victim)
    assert run.exit_code() == 6, run.output
    why = run.summary()["why"][0]
    assert f"{named} was killed by SIGKILL" in why
    assert ".log" in why
    assert run.summary()["verdict"] == "error"
    assert not run.left_overs()


@pytest.mark.parametrize("moment", ["starting 1 control plane", "starting BigFleet"])
def test_an_interruption_cleans_up_and_leaves_a_partial_report(
    tmp_path: Path, tempdir: Path, moment: str
) -> None:
    """Ctrl-C ends a run with 130, a report of the interruption, and full cleanup."""
    run = Scaletest(tmp_path / "results", *BRIEF, tempdir=tempdir)
    run.await_line(moment)
    run.child.send_signal(signal.SIGINT)
    assert run.exit_code() == 130, run.output
    assert run.summary()["verdict"] == "error"
    assert "Interrupted" in run.summary()["why"][0]
    assert (run.folder / "report.html").exists()
    assert not run.left_overs()


def test_a_run_has_the_machine_to_itself_and_leaves_nothing_when_it_is_killed(
    tmp_path: Path, tempdir: Path
) -> None:
    """Two runs would falsify each other: a second one is told who holds the machine, and leaves
    nothing that could be taken for results. After kill -9 of the first one's runner its processes
    and data are gone soon.
    """
    first = Scaletest(tmp_path / "first", "smoke", "--set", "soak.seconds=300", tempdir=tempdir)
    first.await_line("  ramp")
    second = Scaletest(tmp_path / "second", *BRIEF, tempdir=tempdir)
    assert second.exit_code() == 6
    assert f"pid {first.child.pid}, profile smoke" in second.output
    assert not second.results.exists()
    os.kill(first.child.pid, signal.SIGKILL)
    assert first.exit_code() == -signal.SIGKILL
    wait_until(lambda: not first.left_overs(), "all that it started to end", seconds=30)
