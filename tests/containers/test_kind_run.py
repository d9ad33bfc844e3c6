"""Whole kind clusters: a run to its verdict, and every way to end one leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.api.install import install
from bigfleet.kube.client import KubeClient
from controlplane.request import request_from
from kind.engine import Engine, find_engine
from kind.errors import KindError
from loaddriver.errors import ExitCode
from loaddriver.substrates.base import RoleSpec, SubstrateError
from loaddriver.substrates.kind.layout import kind_name
from loaddriver.substrates.kind.prerequisites import Prerequisites, obtain
from loaddriver.substrates.kind.substrate import KindSubstrate
from loaddriver.substrates.runlock import current_holder, machine_lock_path
from loaddriver.substrates.runscope import RunScope
from tests.containers.containers_rig import ROOT
from tests.containers.summary_differences import differences, reason
from tests.support.providers import write_inventory
from tests.support.scaletest import Scaletest
from tests.support.substrates import marked_processes
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

# Only a failing test waits this long: images may have to be built, other runs may go first.
TIMEOUT_SECONDS = 900.0
ATTEMPTS = 5
BUSY = "another measuring run is under way"
LIST_INDEX = re.compile(r"\[\d+\]")


@pytest.fixture(scope="module")
def engine() -> Engine:
    try:
        return find_engine(os.environ, request_from(os.environ).cache_directory)
    except KindError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def prerequisites(engine: Engine) -> Prerequisites:
    assert engine.path
    return obtain(request_from(os.environ), print)


def left_of(run_id: str, engine: Engine, *clusters: str) -> list[str]:
    """Containers, volumes, processes and folders that the run has left."""
    nodes = [f"{kind_name(cluster, run_id)}-control-plane" for cluster in clusters]
    containers = engine.run("ps", "--all", "--format={{.Names}}").split()
    volumes = [
        engine.run("volume", "ls", "--quiet", "--filter", f"label={node}").strip() for node in nodes
    ]
    folders = [str(p) for root in ("/dev/shm", "/tmp") for p in Path(root).glob(f"*{run_id}*")]
    processes = [str(pid) for pid in marked_processes(run_id)]
    return [*(n for n in nodes if n in containers), *filter(None, volumes), *folders, *processes]


def test_the_same_plan_reads_the_same_on_kind_and_on_local(tmp_path: Path, engine: Engine) -> None:
    """Both pass; what differs is where it ran and how long things took, and nothing else.

    Two clusters, so that roles reach each other and API servers across their border, too.
    """
    summaries, plans = {}, {}
    for substrate in ("kind", "local"):
        run = played(tmp_path / substrate, "--set", "clusters=2", "--substrate", substrate)
        assert run.child.returncode == 0, run.output
        summaries[substrate] = run.summary()
        plans[substrate] = (run.folder / "plan.jsonl").read_bytes()
        assert left_of(run.folder.name, engine, "c1", "c2") == []
        assert (run.folder / "logs/c1/kube-apiserver.log").stat().st_size
        assert (run.folder / "logs/shard-0.log").stat().st_size
    assert plans["kind"] == plans["local"]
    differing = differences(summaries["kind"], summaries["local"])
    assert [path for path in differing if reason(path) is None] == []
    assert shape(summaries["kind"]) == shape(summaries["local"])
    assert verdicts(summaries["kind"]) == verdicts(summaries["local"])
    for summary in summaries.values():
        assert summary["audit"]["available"]
        assert set(summary["audit"]["boundBy"]) == {"scheduler"}
        assert summary["run"]["environment"]["clock"] == "this machine's"
    assert summaries["kind"]["run"]["environment"]["bigfleetRoles"] == "pods"


def played(results: Path, *arguments: str) -> Scaletest:
    """A finished run of smoke; made again where this machine was busy with something else."""
    for attempt in range(ATTEMPTS):
        wait_until(lambda: current_holder(machine_lock_path()) is None, seconds=TIMEOUT_SECONDS)
        run = Scaletest(results / str(attempt), "smoke", *arguments)
        code = run.exit_code(TIMEOUT_SECONDS)
        if code != ExitCode.INVALID_RUN and BUSY not in run.output:
            break
    return run


def shape(summary: dict[str, Any]) -> set[str]:
    """The keys of all parts that do not depend on what happened."""
    parts = ("run.environment", "pods", "backlog", "audit.watch", "audit.clock", "selfChecks")
    known = differences(summary, {})
    return {LIST_INDEX.sub("[]", path) for path in known if path.startswith(parts)}


def verdicts(summary: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """What was asked of the run, and whether it held."""
    return [(gate["name"], gate["limit"], gate["verdict"]) for gate in summary["gates"]]


class Runner:
    """A run in a process of its own, and what it said."""

    def __init__(self, run_id: str, directory: Path) -> None:
        self.child = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("kind_runner.py")),
                run_id,
                str(directory),
            ],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def await_line(self, beginning: str) -> str:
        """The first line that begins so."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line.startswith(beginning):
                return line.strip()
        raise AssertionError(f"it ended before it said {beginning!r}")


@pytest.fixture
def runner(run_id: str, tmp_path: Path, prerequisites: Prerequisites) -> Iterator[Runner]:
    assert prerequisites
    runner = Runner(run_id, tmp_path)
    with runner.child:
        yield runner
        runner.child.kill()


@pytest.mark.parametrize("moment", ["while making a cluster", "when ready"])
def test_kill_9_of_the_runner_leaves_no_cluster(
    runner: Runner, run_id: str, engine: Engine, moment: str
) -> None:
    """The reaper removes what carries no marker, too."""
    runner.await_line("data")
    if moment == "when ready":
        runner.await_line("ready")
    else:
        node = f"{kind_name('a', run_id)}-control-plane"
        wait_until(
            lambda: node in engine.run("ps", "--all", "--format={{.Names}}").split(),
            seconds=TIMEOUT_SECONDS,
        )
    runner.child.send_signal(signal.SIGKILL)
    wait_until(lambda: left_of(run_id, engine, "a") == [], seconds=TIMEOUT_SECONDS)


def test_ctrl_c_while_a_cluster_is_made_ends_that_too(
    runner: Runner, run_id: str, engine: Engine
) -> None:
    """kind's own process is ended, not waited for."""
    runner.await_line("data")
    wait_until(lambda: bool(marked_processes(run_id)), seconds=TIMEOUT_SECONDS)
    runner.child.send_signal(signal.SIGINT)
    assert runner.child.wait(TIMEOUT_SECONDS) == 130
    wait_until(lambda: left_of(run_id, engine, "a") == [], seconds=TIMEOUT_SECONDS)


async def test_a_component_that_dies_is_named_with_all_that_was_found(
    scope: RunScope, run_id: str, tmp_path: Path, prerequisites: Prerequisites, engine: Engine
) -> None:
    """Here the scheduler, killed inside its node; log, events and journal are in the folder."""
    substrate = KindSubstrate(run_id, scope.data_directory, tmp_path / "logs", prerequisites, {})
    try:
        await substrate.start_clusters(["a"])
        node = f"{kind_name('a', run_id)}-control-plane"
        pid = engine.run("exec", node, "pidof", "kube-scheduler").strip()
        engine.run("exec", node, "kill", "-9", pid)
        unexpected_exit = await substrate.first_unexpected_exit()
        assert (unexpected_exit.name, unexpected_exit.returncode) == (
            "a/kube-scheduler",
            -signal.SIGKILL,
        )
        assert unexpected_exit.log_path.stat().st_size
        assert unexpected_exit.last_lines
        assert unexpected_exit.bundle is not None
        events = json.loads((unexpected_exit.bundle / "events.json").read_text())
        assert any(
            "kube-scheduler" in each["involvedObject"].get("name", "") for each in events["items"]
        )
        assert list(unexpected_exit.bundle.rglob("journal.log"))
        assert "systemd" in (tmp_path / "logs/a/node.log").read_text()
        assert str(unexpected_exit.bundle) in unexpected_exit.sentence
    finally:
        await substrate.stop()
    assert left_of(run_id, engine, "a") == [str(scope.data_directory)]


@pytest_asyncio.fixture
async def substrate(
    scope: RunScope, run_id: str, tmp_path: Path, prerequisites: Prerequisites
) -> AsyncIterator[KindSubstrate]:
    """One cluster, a, with BigFleet's resources in it."""
    substrate = KindSubstrate(run_id, scope.data_directory, tmp_path / "logs", prerequisites, {})
    try:
        [cluster] = await substrate.start_clusters(["a"])
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as admin:
            await install(admin)
        yield substrate
    finally:
        await substrate.stop()


async def test_a_role_is_started_again_after_a_declared_exit_and_explained_when_it_cannot(
    substrate: KindSubstrate, run_id: str, tmp_path: Path, engine: Engine
) -> None:
    """Same address, same state, no death; and for a wrong flag: step, exit code, last lines."""
    inventory = write_inventory(tmp_path / "inventory.jsonl", {"id": "m-0"})
    provider = RoleSpec(
        "provider",
        [
            *("provider", "--insecure", "--listen", "{listen}", "--observe", "{observe}"),
            *("--state", "{state}", "--inventory", "{inventory}"),
        ],
        ports=("listen", "observe"),
        observe_port="observe",
        inputs={"inventory": inventory},
    )
    before = await substrate.start_role(provider)
    substrate.expect_exit("provider")
    node = f"{kind_name('a', run_id)}-control-plane"
    pid = engine.run("exec", node, "pgrep", "-f", "bigfleet provider").split()[0]
    engine.run("exec", node, "kill", "-9", pid)
    assert await substrate.start_role(provider) == before
    wrong = RoleSpec("shard-0", ["shard", "--listen", "nonsense"], ["observe"], "observe")
    with pytest.raises(SubstrateError) as failure:
        await substrate.start_role(wrong)
    for part in (
        "starting shard-0 failed: shard-0 ended with exit code 2 while starting",
        "'nonsense' is not HOST:PORT",
        f"all that was found: {tmp_path / 'logs' / 'bundle' / 'a'}",
    ):
        assert part in str(failure.value)
    log = (tmp_path / "logs" / "provider.log").read_text()
    assert "machines kept from the last run" in log
