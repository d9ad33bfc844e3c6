from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.runlock import Holder, MachineBusy, RunLock
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import PATIENCE_SECONDS, ROOT
from tests.support.waiting import wait_until

US = Holder(os.getpid(), "smoke", "2026-11-21T04:00:00+00:00")


def test_a_second_run_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    first = RunLock.acquire(tmp_path / "lock", US)
    with pytest.raises(MachineBusy) as refusal:
        RunLock.acquire(tmp_path / "lock", US)
    for part in (f"pid {US.pid}", "profile smoke", "started 2026-11-21T04:00:00", "kill -INT"):
        assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)
    first.release()
    RunLock.acquire(tmp_path / "lock", US).release()


def test_a_run_can_go_on_under_the_lock_of_the_process_that_started_it(tmp_path: Path) -> None:
    """It stays locked when the run has released its own descriptor, until the last one has."""
    path = tmp_path / "lock"
    held = RunLock.acquire(path, US)
    inherited = RunLock.inherited(os.dup(held.descriptor), path)
    inherited.release()
    with pytest.raises(MachineBusy):
        RunLock.acquire(path, US)
    inherited = RunLock.inherited(os.dup(held.descriptor), path)
    held.release()
    with pytest.raises(MachineBusy):
        RunLock.acquire(path, US)
    inherited.release()
    RunLock.acquire(path, US).release()


def test_another_file_is_no_inherited_lock(tmp_path: Path) -> None:
    RunLock.acquire(tmp_path / "lock", US).release()
    with (tmp_path / "other").open("w") as other, pytest.raises(SubstrateError, match="is not the"):
        RunLock.inherited(other.fileno(), tmp_path / "lock")
    with pytest.raises(SubstrateError, match="descriptor 9999: Bad file descriptor"):
        RunLock.inherited(9999, tmp_path / "lock")


async def test_two_runs_at_once_are_one_too_many(
    tmp_path: Path, run_id: str, scope: RunScope
) -> None:
    """The refusal comes before anything is made: the first run goes on undisturbed."""
    with pytest.raises(MachineBusy, match="profile test"):
        RunScope.open(f"{run_id}-2", "dev-50", tmp_path / "logs-2", tmp_path / "lock")
    assert not (tmp_path / "logs-2").exists()
    assert scope.data_directory.exists()


def test_the_lock_of_a_killed_holder_is_free_at_once(tmp_path: Path) -> None:
    """The kernel frees it, so no run ever has to remove a stale lock."""
    program = (
        "import sys, time; from pathlib import Path\n"
        "from loaddriver.substrates.runlock import *\n"
        "lock = RunLock.acquire(Path(sys.argv[1]), Holder(1, 'x', 'y'))\n"
        "print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(MachineBusy):
            RunLock.acquire(tmp_path / "lock", US)
        holder.send_signal(signal.SIGKILL)
    RunLock.acquire(tmp_path / "lock", US).release()


def test_a_run_that_waits_for_a_reaper_is_reported(tmp_path: Path) -> None:
    """When the runner is gone but the lock is held, cleaning is under way."""
    with subprocess.Popen(["true"]) as gone:
        pass
    wait_until(lambda: not Path(f"/proc/{gone.pid}").exists(), seconds=PATIENCE_SECONDS)
    lock = RunLock.acquire(tmp_path / "lock", Holder(gone.pid, "smoke", "then"))
    with pytest.raises(MachineBusy, match="still being cleaned up"):
        RunLock.acquire(tmp_path / "lock", US)
    lock.release()


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SubstrateError, match=r"cannot open the run lock .*/lock"):
        RunLock.acquire(tmp_path / "lock", US)
