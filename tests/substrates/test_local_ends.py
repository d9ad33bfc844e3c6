"""However a run ends, nothing of it is left, and whoever is to blame is named."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.request import Binaries
from loaddriver.substrates.base import RoleSpec, SubstrateError
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runlock import Holder, RunLock
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import (
    FEW_OBJECTS,
    PATIENCE_SECONDS,
    binaries_at,
    marked_processes,
    script,
    start_runner,
)
from tests.support.waiting import wait_until

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
# On a machine that is busy with other tests; by itself it is a second or two.
GONE_WITHIN_SECONDS = 30.0
STOPPED_WITHIN_SECONDS = 30.0


class Runner:
    """A run in a process of its own, and what it said."""

    def __init__(self, child: subprocess.Popen[str], run_id: str, directory: Path) -> None:
        self.child = child
        self._run_id = run_id
        self._directory = directory
        self.data_directory = Path(self.line().removeprefix("data "))

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def is_gone(self) -> bool:
        """No process, no data, and the machine is free for the next run."""
        if marked_processes(self._run_id) or self.data_directory.exists():
            return False
        try:
            RunLock.acquire(self._directory / "lock", Holder(1, "next", "now")).release()
        except SubstrateError:
            return False
        return True


@pytest.fixture
def runner(run_id: str, tmp_path: Path, binaries: Binaries) -> Iterator[Runner]:
    with start_runner(run_id, tmp_path, binaries) as child:
        yield Runner(child, run_id, tmp_path)
        child.kill()


@pytest.mark.cluster
@pytest.mark.parametrize("moment", ["while starting", "when ready"])
def test_kill_9_of_the_runner_leaves_nothing(runner: Runner, run_id: str, moment: str) -> None:
    """The reaper does what the runner no longer can, within seconds."""
    wait_for(moment, runner, run_id)
    runner.child.send_signal(signal.SIGKILL)
    wait_until(runner.is_gone, seconds=GONE_WITHIN_SECONDS)


@pytest.mark.cluster
@pytest.mark.parametrize("moment", ["while starting", "when ready"])
def test_ctrl_c_stops_the_run_and_leaves_nothing(runner: Runner, run_id: str, moment: str) -> None:
    """The runner itself stops everything: nothing is left for the reaper to end."""
    wait_for(moment, runner, run_id)
    runner.child.send_signal(signal.SIGINT)
    assert "0 left-over processes ended; 1 directories removed" in runner.line()
    assert runner.child.wait(PATIENCE_SECONDS) == 130
    assert runner.is_gone()


def wait_for(moment: str, runner: Runner, run_id: str) -> None:
    if moment == "when ready":
        assert runner.line() == "ready"
        assert len(marked_processes(run_id)) == len(COMPONENTS)
    else:
        wait_until(lambda: len(marked_processes(run_id)) >= 2, seconds=PATIENCE_SECONDS)


@pytest.mark.cluster
async def test_a_component_that_is_killed_is_named_with_its_log(
    scope: RunScope, run_id: str, tmp_path: Path, binaries: Binaries
) -> None:
    """Here the scheduler; and stopping what is left takes seconds, not minutes."""
    substrate = LocalSubstrate(
        run_id, scope.data_directory, tmp_path / "logs", binaries, {}, FEW_OBJECTS
    )
    try:
        await substrate.start_clusters(["a"])
        assert substrate.versions()["kube-scheduler"].startswith("1.")
        pid = the_process(run_id, "kube-scheduler")
        os.kill(pid, signal.SIGKILL)
        unexpected_exit = await substrate.first_unexpected_exit()
        assert unexpected_exit.name == "a/kube-scheduler"
        assert unexpected_exit.log_path == tmp_path / "logs" / "a" / "kube-scheduler.log"
        assert unexpected_exit.sentence.startswith(
            "a/kube-scheduler was killed by SIGKILL; its log: /"
        )
    finally:
        start = time.monotonic()
        await substrate.stop()
        took_seconds = time.monotonic() - start
    assert took_seconds < STOPPED_WITHIN_SECONDS
    assert marked_processes(run_id) == []


@pytest.mark.cluster
async def test_a_component_that_cannot_start_is_named_with_command_and_log(
    scope: RunScope, run_id: str, tmp_path: Path, binaries: Binaries
) -> None:
    """And the clusters that were starting beside it are stopped too."""
    broken = script(tmp_path / "kube-apiserver", "echo unknown flag >&2; exit 1")
    mixed = dataclasses.replace(binaries, kube_apiserver=broken)
    substrate = LocalSubstrate(
        run_id, scope.data_directory, tmp_path / "logs", mixed, {}, FEW_OBJECTS
    )
    with pytest.raises(SubstrateError) as failure:
        await substrate.start_clusters(["a", "b"])
    await substrate.stop()
    message = str(failure.value)
    assert re.search(r"^[ab]/kube-apiserver ended with exit code 1 while starting", message)
    assert f"command: {broken} --etcd-servers=" in message
    assert f"log: {tmp_path / 'logs'}/" in message
    assert "unknown flag" in message
    assert marked_processes(run_id) == []


async def test_a_missing_binary_is_one_clear_error(
    scope: RunScope, run_id: str, tmp_path: Path
) -> None:
    nothing = binaries_at(dict.fromkeys(COMPONENTS, tmp_path / "missing"), {})
    substrate = LocalSubstrate(run_id, scope.data_directory, tmp_path / "logs", nothing, {})
    with pytest.raises(SubstrateError, match="a/etcd cannot be run: No such file or directory"):
        await substrate.start_clusters(["a"])
    await substrate.stop()


async def test_a_role_that_ends_while_starting_is_named(
    scope: RunScope, run_id: str, tmp_path: Path
) -> None:
    """The same holds for BigFleet's own roles; here one that does not exist."""
    nothing = binaries_at(dict.fromkeys(COMPONENTS, tmp_path / "missing"), {})
    substrate = LocalSubstrate(run_id, scope.data_directory, tmp_path / "logs", nothing, {})
    role = RoleSpec("shard-0", ["no-such-role", "--observe={observe}"], ["observe"], "observe")
    with pytest.raises(SubstrateError, match=r"shard-0 ended with exit code \d") as failure:
        await substrate.start_role(role)
    await substrate.stop()
    assert re.search(r"-m bigfleet no-such-role --observe=127\.0\.0\.1:\d+", str(failure.value))


async def test_a_role_that_is_started_again_keeps_its_addresses(
    scope: RunScope, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a declared kill its peers find it where it was, and it counts as up when it says so."""
    (tmp_path / "bigfleet").mkdir()
    shutil.copy(Path(__file__).with_name("substrate_role.py"), tmp_path / "bigfleet/__main__.py")
    monkeypatch.chdir(tmp_path)  # where `python -m` looks first
    nothing = binaries_at(dict.fromkeys(COMPONENTS, tmp_path / "missing"), {})
    substrate = LocalSubstrate(run_id, scope.data_directory, tmp_path / "logs", nothing, {})
    role = RoleSpec("shard-0", ["{observe}"], ["observe"], "observe")
    try:
        before = await substrate.start_role(role)
        substrate.expect_exit("shard-0")
        (pid,) = marked_processes(run_id)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not marked_processes(run_id), seconds=PATIENCE_SECONDS)
        after = await substrate.start_role(role)
        assert after.observe == before.observe
        assert after.log_path.read_text().count("asked") == 4
    finally:
        await substrate.stop()
    assert marked_processes(run_id) == []


def the_process(run_id: str, component: str) -> int:
    (found,) = (
        pid
        for pid in marked_processes(run_id)
        if Path(os.readlink(f"/proc/{pid}/exe")).name == component
    )
    return found
