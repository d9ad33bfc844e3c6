from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.reaper.cleanup import (
    MARKER_FILE,
    RUN_VARIABLE,
    clean,
    write_removal,
)
from loaddriver.substrates.reaper.handle import Reaper
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import PATIENCE_SECONDS, SLEEPER, marked_processes
from tests.support.waiting import wait_until


def sleeper(run_id: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(SLEEPER, env={RUN_VARIABLE: run_id}, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def marked_directory(path: Path, run_id: str) -> Path:
    path.mkdir()
    (path / MARKER_FILE).write_text(run_id)
    return path


async def test_it_ends_what_a_run_left_and_says_so(scope: RunScope, run_id: str) -> None:
    """Processes of the run, and its data directory; not those of another run."""
    with sleeper(run_id) as ours, sleeper(f"{run_id}0") as theirs:
        report = await scope._reaper.close()
        assert ours.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert theirs.poll() is None
        theirs.kill()
    assert report == (
        f"run {run_id} cleaned up: 1 left-over processes ended; 1 directories removed"
    )
    assert not scope.data_directory.exists()


async def test_it_outlives_the_signals_that_end_a_runner(scope: RunScope) -> None:
    """Ctrl-C, a closed terminal and an orderly shutdown must not stop the cleaning."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(scope._reaper.pid, number)
    assert os.getsid(scope._reaper.pid) == scope._reaper.pid
    assert "1 directories removed" in await scope._reaper.close()


def test_a_child_that_starts_children_is_followed_to_the_last(run_id: str) -> None:
    """Cleaning repeats until nobody with the marker is found any more."""
    program = "while true; do sleep 600 & sleep 0.01; done"
    with subprocess.Popen(
        ["/bin/sh", "-c", program], env={RUN_VARIABLE: run_id}, start_new_session=True
    ):
        # Well more than asserted below: a child in the middle of its exec shows no environment.
        wait_until(lambda: len(marked_processes(run_id)) > 8, seconds=PATIENCE_SECONDS)
        report = clean(run_id, [], deadline_seconds=PATIENCE_SECONDS)
    assert report.survivors == ()
    assert report.ended > 3
    assert marked_processes(run_id) == []


def test_a_directory_of_another_run_is_left_alone(tmp_path: Path, run_id: str) -> None:
    """A wrong argument must never remove what somebody else owns."""
    ours = marked_directory(tmp_path / "ours", run_id)
    theirs = marked_directory(tmp_path / "theirs", "another")
    unmarked = tmp_path / "unmarked"
    unmarked.mkdir()
    report = clean(
        run_id, [ours, theirs, unmarked, tmp_path / "missing"], deadline_seconds=PATIENCE_SECONDS
    )
    assert (report.removed, report.refused) == (1, (theirs, unmarked))
    assert not ours.exists()
    assert f"kept: {theirs}, {unmarked}" in report.sentence(run_id)


async def test_a_reaper_that_cannot_clean_up_is_an_error(tmp_path: Path, run_id: str) -> None:
    theirs = marked_directory(tmp_path / "theirs", "another")
    reaper = Reaper.start(run_id, [theirs], [], tmp_path / "reaper.log")
    with pytest.raises(SubstrateError, match="kept: "):
        await reaper.close()


async def test_the_machine_stays_locked_until_cleaning_is_done(tmp_path: Path, run_id: str) -> None:
    """The reaper holds what the runner held, so a new run never meets the remains of an old."""
    reader, writer = os.pipe()
    reaper = Reaper.start(run_id, [], [writer], tmp_path / "reaper.log")
    os.close(writer)
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    await reaper.close()
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_what_a_run_asked_for_is_removed_before_its_directory(tmp_path: Path, run_id: str) -> None:
    """Containers carry no marker; the run leaves the command that takes them away."""
    ours = marked_directory(tmp_path / "ours", run_id)
    trace = tmp_path / "trace"
    command = ["/bin/sh", "-c", f'ls {ours} > /dev/null && echo "$WHO" > {trace}']
    write_removal(ours, command, {"WHO": "reaper"})
    report = clean(run_id, [ours], deadline_seconds=PATIENCE_SECONDS)
    assert trace.read_text() == "reaper\n"
    assert report.removed == 1


def test_a_removal_that_fails_leaves_its_directory_for_the_next_attempt(
    tmp_path: Path, run_id: str
) -> None:
    """So the next run's sweep tries again, and this one is no success."""
    ours = marked_directory(tmp_path / "ours", run_id)
    write_removal(ours, ["/bin/false"], {})
    assert clean(run_id, [ours], deadline_seconds=PATIENCE_SECONDS).refused == (ours,)
    write_removal(ours, ["/bin/true"], {})
    assert clean(run_id, [ours], deadline_seconds=PATIENCE_SECONDS).removed == 1


def test_a_removal_command_that_others_could_have_written_is_not_run(
    tmp_path: Path, run_id: str
) -> None:
    """A sweep looks into folders that every user of the machine can make."""
    ours = marked_directory(tmp_path / "ours", run_id)
    trace = tmp_path / "trace"
    write_removal(ours, ["/bin/touch", str(trace)], {})
    ours.chmod(0o777)
    assert clean(run_id, [ours], deadline_seconds=PATIENCE_SECONDS).refused == (ours,)
    assert not trace.exists()
