"""The guide's commands measure a run without an autoscaler, and somebody else's autoscaler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaddriver.profile.gates import load_gates
from tests.support.guides import commands
from tests.support.scaletest import ROOT, TINY, Scaletest, end_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


# Where a summary has what only BigFleet tells, as hops and CPU by component.
BIGFLEETS = ("audit.", "components.", "hopsSeconds.", "resources.")


def tiny(tmp_path: Path, *arguments: str) -> Scaletest:
    """Such a run, beside other tests."""
    tempdir = tmp_path / "tmp"
    tempdir.mkdir(exist_ok=True)
    return Scaletest(tmp_path / "results", *arguments, *TINY, tempdir=tempdir)


@pytest.mark.parametrize("command", commands("systems.md", "loaddriver run"), ids=lambda c: c[2])
def test_the_guides_commands_bind_all_pods_and_say_what_does_not_apply(
    tmp_path: Path, command: list[str]
) -> None:
    """Another test may keep the machine busy, which voids a run; all else must be as it should."""
    run = tiny(tmp_path, *command)
    assert run.exit_code() in (0, 3, 5), run.output
    found = run.summary()
    assert found["run"]["system"] in command[2]
    assert found["pods"]["bound"] + found["pods"]["withdrawn"] == found["pods"]["created"] >= 40
    assert found["backlog"]["atEnd"] == 0
    skipped = {gate["name"] for gate in found["notApplicable"]["gates"]}
    gates = load_gates(ROOT / "profiles" / "smoke" / "expect.yaml")
    assert skipped == {gate.name for gate in gates if gate.metric.startswith(BIGFLEETS)}
    assert not skipped & {gate["name"] for gate in found["gates"]}
    assert {"seen", "decided"} <= set(found["notApplicable"]["hops"])
    assert found["cost"]["source"] == "nodes"
    page = (run.folder / "report.html").read_text()
    assert "only BigFleet has it" in page
    assert "Not applicable to this system under test:" in page
    assert not run.left_overs()


def test_start_and_stop_commands_that_end_are_run_around_the_load(tmp_path: Path) -> None:
    """`start` installs, `ready` is repeated until it succeeds, `stop` removes, each with a
    kubeconfig of its cluster.
    """
    marks = tmp_path / "marks"
    marks.mkdir()
    step = f"{sys.executable} {_step(tmp_path)} {marks}"
    run = tiny(
        tmp_path,
        "smoke",
        *("--set", "system=command", "--set", f"command.start={step} start"),
        *("--set", f"command.stop={step} stop", "--set", f"command.ready={step} ready"),
    )
    run.await_line("  ramp")
    assert sorted(path.name for path in marks.iterdir()) == ["ready", "ready-once", "start"]
    run.child.terminate()
    assert run.exit_code() == 130, run.output
    stop = marks / "stop"
    wait_until(lambda: stop.exists() and stop.read_text() == "c1 c1", "the stop command")
    assert (marks / "start").read_text() == "c1 c1"
    assert not run.left_overs()


def _step(tmp_path: Path) -> Path:
    """A command that leaves a mark with its cluster, by name and by kubeconfig."""
    path = tmp_path / "step.py"
    path.write_text(
        "import os, pathlib, sys, yaml\n"
        "marks, name = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "context = yaml.safe_load(open(os.environ['KUBECONFIG']))['current-context']\n"
        "(marks / name).write_text(f\"{os.environ['SCALETEST_CLUSTER']} {context}\")\n"
        "if name == 'ready' and not (marks / 'ready-once').exists():\n"
        "    (marks / 'ready-once').touch()\n"
        "    sys.exit(1)\n"
    )
    return path


def test_an_autoscaler_that_ends_early_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    say = "import sys; sys.exit('no licence')"
    run = tiny(
        tmp_path,
        "smoke",
        *("--set", "system=command", "--set", f'command.start={sys.executable} -c "{say}"'),
        *("--set", "command.ready=test -e /nonexistent"),
    )
    assert run.exit_code() == 6, run.output
    assert "no licence" in run.output
    assert "c1/system" in run.output
    assert not run.left_overs()
