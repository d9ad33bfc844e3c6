"""A run of a session is a process, and its end says whether the session goes on."""

from __future__ import annotations

import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loaddriver.compare.request import Ports, Request, session_spec
from loaddriver.compare.runner import ProcessRunner, RunEndedError
from loaddriver.compare.systems import WORKING_TREE
from loaddriver.errors import ExitCode
from loaddriver.run.system import component_at
from loaddriver.substrates.runlock import (
    MachineBusy,
    RunLock,
    holder_here,
    machine_lock_path,
)
from tests.support.waiting import wait_until

PORTS = Ports(lambda _: "", str, component_at)
# Stands in for `python -m loaddriver run`: leaves a results folder, says a line, and ends.
_STAND_IN = """#!{python}
import pathlib, signal, sys, time
arguments = sys.argv[1:]
results = pathlib.Path(arguments[arguments.index("--results") + 1])
{body}
"""
_LEAVE_RESULTS = """
folder = results / "compare-50-20261123-120000"
folder.mkdir()
(folder / "summary.json").write_text('{{"verdict": "error"}}')
sys.exit(6)
"""
_LEAVE_RESULTS_OF_TWO = """
import os
number, lock = arguments[arguments.index("--of-two") + 1].split(":")
(results / ("fd-" + os.readlink("/proc/self/fd/" + lock).replace("/", "!"))).touch()
folder = results / ("compare-25-20261123-120000-" + number)
folder.mkdir()
other = results.parent / ("ended" if number == "1" else "results")
(results / "started").touch()
until = time.monotonic() + 20
while not (other / "started").exists() and time.monotonic() < until:
    time.sleep(0.01)
(folder / "summary.json").write_text('{{"verdict": "pass"}}')
sys.exit(0 if time.monotonic() < until else 2)
"""
_WAIT_FOR_INTERRUPT = """
def end(*_):
    (results / "cleaned-up").touch()
    sys.exit(130)
signal.signal(signal.SIGINT, end)
(results / "started").touch()
time.sleep(60)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ProcessRunner]:
    """A runner whose `loaddriver` is this program."""

    def made(body: str) -> ProcessRunner:
        program = tmp_path / "python"
        program.write_text(_STAND_IN.format(python=sys.executable, body=body.format()))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(program))
        request = Request(profile="compare-50", base=WORKING_TREE, head=WORKING_TREE)
        return ProcessRunner(session_spec(request, PORTS, 1), tmp_path)

    return made


def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def test_a_run_that_failed_is_a_result(
    stand_in: Callable[[str], ProcessRunner], tmp_path: Path
) -> None:
    """Its folder says why, and whether it is void; the session goes on."""
    runner, folder = stand_in(_LEAVE_RESULTS), results(tmp_path)
    assert runner.run([(runner.spec.base, folder)]) == [folder / "compare-50-20261123-120000"]


@pytest.mark.parametrize(
    ("code", "expected"), [(6, ExitCode.INFRASTRUCTURE), (2, ExitCode.USAGE), (0, 6), (99, 6)]
)
def test_a_run_that_never_started_ends_the_session(
    stand_in: Callable[[str], ProcessRunner], tmp_path: Path, code: int, expected: int
) -> None:
    """With its last lines: nobody's side is to blame for a lock that is held."""
    runner = stand_in(f"print('another run holds the lock'); sys.exit({code})")
    with pytest.raises(RunEndedError, match="another run holds the lock") as error:
        runner.run([(runner.spec.base, results(tmp_path))])
    assert error.value.exit_code == expected


def test_two_runs_play_at_once_and_share_the_machines_lock(
    stand_in: Callable[[str], ProcessRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other to begin. Nobody else can measure meanwhile, and afterwards can."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runner, one, other = stand_in(_LEAVE_RESULTS_OF_TWO), results(tmp_path), tmp_path / "ended"
    other.mkdir()
    found = runner.run([(runner.spec.base, one), (runner.spec.head, other)])
    assert found == [
        one / "compare-25-20261123-120000-1",
        other / "compare-25-20261123-120000-2",
    ], "each has its number"
    lock = str(machine_lock_path()).replace("/", "!")
    assert (one / f"fd-{lock}").exists()
    assert (other / f"fd-{lock}").exists()
    RunLock.acquire(machine_lock_path(), holder_here("another")).release()


def test_two_runs_end_before_they_start_on_a_machine_that_is_taken(
    stand_in: Callable[[str], ProcessRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runner, one = stand_in(_LEAVE_RESULTS_OF_TWO), results(tmp_path)
    taken = RunLock.acquire(machine_lock_path(), holder_here("another"))
    with pytest.raises(MachineBusy, match="profile another"):
        runner.run([(runner.spec.base, one), (runner.spec.head, one)])
    assert list(one.iterdir()) == []
    taken.release()


def test_an_interruption_waits_until_the_run_has_cleaned_up(
    stand_in: Callable[[str], ProcessRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control plane that outlived its session would disturb the next one."""
    runner, folder = stand_in(_WAIT_FOR_INTERRUPT), results(tmp_path)
    wait, interrupted = subprocess.Popen.wait, list[int]()

    def interrupt_once(child: object, *arguments: object, **more: object) -> int:
        while not (folder / "started").exists():
            time.sleep(0.01)
        if not interrupted:
            interrupted.append(1)
            raise KeyboardInterrupt
        return int(wait(child, *arguments, **more))  # type: ignore[arg-type]

    monkeypatch.setattr(subprocess.Popen, "wait", interrupt_once)
    with pytest.raises(RunEndedError) as error:
        runner.run([(runner.spec.base, folder)])
    assert error.value.exit_code == ExitCode.INTERRUPTED
    assert (folder / "cleaned-up").exists()


def test_an_interruption_between_two_starts_ends_the_run_that_was_started(
    stand_in: Callable[[str], ProcessRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the machine, with nobody to end it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, never = results(tmp_path), tmp_path / "never"

    def interrupted(_: float) -> None:
        wait_until((folder / "started").exists, "the first run has started")
        raise KeyboardInterrupt

    runner = replace(stand_in(_WAIT_FOR_INTERRUPT), pause=interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run([(runner.spec.base, folder), (runner.spec.head, never)])
    assert (folder / "cleaned-up").exists()
    assert not never.exists()
    RunLock.acquire(machine_lock_path(), holder_here("another")).release()
