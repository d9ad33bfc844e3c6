"""A machine belongs to one run at a time, from its first arm to its last."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from loaddriver.__main__ import main
from loaddriver.commands import bare, common
from loaddriver.errors import ExitCode, InfrastructureError
from loaddriver.report.results import BARE
from loaddriver.run.context import AtOnce, RunContext
from loaddriver.substrates.runlock import Holder, MachineBusy, RunLock, machine_lock_path
from loaddriver.substrates.runscope import RunScope
from tests.run.run_rig import finished_run, smoke, summary

OTHER = Holder(os.getpid(), "other", "2026-11-21T04:00:00+00:00")


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results directory on a machine that another run holds."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for module in (common, bare):
        monkeypatch.setattr(module, "get_prerequisites", lambda *_: None)
    RunLock.acquire(machine_lock_path(), OTHER)
    return tmp_path / "results"


@pytest.mark.parametrize("command", ["run", "hold"])
def test_a_rejected_run_creates_no_folder(
    taken: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, "smoke", "--results", str(taken)]) == ExitCode.INFRASTRUCTURE
    assert "profile other" in capsys.readouterr().err
    assert not taken.exists()


def test_one_of_two_runs_goes_on_under_the_lock_that_its_session_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows its session and takes its number, so that both may begin in one second."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(common, "get_prerequisites", lambda *_: None)
    held, begun = RunLock.acquire(machine_lock_path(), OTHER), list[tuple[str, AtOnce | None]]()

    async def arms(context: RunContext, _: object, folder: Path) -> None:
        begun.append((folder.name, context.options.at_once))
        raise InfrastructureError("far enough")

    monkeypatch.setattr(common, "run_arms", arms)
    for number in (1, 2):
        lock = os.dup(held.descriptor)
        command = ["run", "smoke", "--results", str(tmp_path / str(number))]
        assert main([*command, "--of-two", f"{number}:{lock}"]) == ExitCode.INFRASTRUCTURE
        name, at_once = begun[-1]
        assert name.endswith(f"-{number}")
        assert at_once == AtOnce(number, lock, os.getppid())
    with pytest.raises(MachineBusy):
        RunLock.acquire(machine_lock_path(), OTHER)
    held.release()


def test_a_rejected_bare_run_keeps_the_earlier_one(
    taken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken.mkdir()
    own = finished_run(taken / "smoke-1", smoke(), summary(), [])
    (own / BARE).mkdir()
    (own / BARE / "summary.json").write_text("{}")
    assert main(["bare", str(own)]) == ExitCode.INFRASTRUCTURE
    assert "profile other" in capsys.readouterr().err
    assert (own / BARE / "summary.json").exists()


async def test_the_machine_stays_locked_between_two_arms(tmp_path: Path, run_id: str) -> None:
    path = tmp_path / "lock"
    lock = RunLock.acquire(path, OTHER)
    for arm in (run_id, f"{run_id}-bare"):
        scope = RunScope.within(lock, arm, tmp_path / "logs")
        with pytest.raises(MachineBusy):
            RunLock.acquire(path, OTHER)
        await scope.close()
        with pytest.raises(MachineBusy):
            RunLock.acquire(path, OTHER)
    lock.release()
    RunLock.acquire(path, OTHER).release()
