"""Whole runs on kind: to a verdict also while pods are killed, and every end leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.request import request_from
from kind.cluster import clusters
from kind.engine import Engine
from kind.errors import KindError
from kind.setup import Tools, find_tools
from loaddriver.errors import ExitCode
from loaddriver.kindrun.node import Node
from loaddriver.kindrun.prerequisites import image_names, obtain
from loaddriver.kindrun.runner import NAMESPACE
from loaddriver.profile.loading import PROFILES, load_profile
from tests.support.scaletest import Scaletest, end_all
from tests.support.substrates import marked_processes
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

# Only a failing test waits this long: machines that run tests may be slow.
PATIENCE_SECONDS = 900.0
LONGEST_SECONDS = 900.0
LEADS = "bigfleet_coordinator_is_leader 1.0"
COORDINATORS = [f"run-coordinator-{number}" for number in range(3)]


@pytest.fixture(scope="module")
def tools() -> Tools:
    """All prerequisites are there; without an engine there is nothing to test here."""
    try:
        found = find_tools(request_from(os.environ), print)
    except KindError as error:
        pytest.skip(str(error))
    settings = load_profile("smoke", PROFILES).settings
    obtain(request_from(os.environ), print, image_names(settings))
    return found


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its run as well."""
    yield
    end_all()


def node_of(run: Scaletest, engine: Engine) -> Node:
    return Node(engine, f"{run.folder.name}-control-plane")


def left_of(name: str, tools: Tools) -> list[str]:
    """The cluster, volumes, processes and folders that the run of that name has left."""
    label = f"label={name}-control-plane"
    volumes = tools.engine.run("volume", "ls", "--quiet", "--filter", label).split()
    folders = [str(p) for root in ("/dev/shm", "/tmp") for p in Path(root).glob(f"*{name}*")]
    processes = [str(pid) for pid in marked_processes(name)]
    return [*({name} & set(clusters(tools))), *volumes, *folders, *processes]


@pytest.mark.parametrize("profile", ["smoke", "dev-50"])
def test_a_profile_passes_on_kind_although_the_leader_and_a_shard_are_killed(
    tmp_path: Path, tools: Tools, profile: str
) -> None:
    """A coordinator and a shard keep their state in volumes: their restarts are recorded."""
    began = time.monotonic()
    run = Scaletest(tmp_path, profile, "--substrate", "kind", "--set", "soak.seconds=60")
    name, node = run.folder.name, node_of(run, tools.engine)
    run.await_line("  soak", PATIENCE_SECONDS)
    [leader] = [each for each in COORDINATORS if LEADS in metrics(node, each)]
    for pod in (leader, "run-shard-0"):
        node.kubectl("delete", "pod", pod, f"--namespace={NAMESPACE}", "--grace-period=0")
    assert run.exit_code(PATIENCE_SECONDS) == ExitCode.PASS, run.output
    assert time.monotonic() - began < LONGEST_SECONDS
    summary = run.summary()
    assert (summary["verdict"], summary["run"]["substrate"]) == ("pass", "pods")
    assert summary["audit"]["available"]
    restarts = (run.folder / "logs" / "restarts.log").read_text()
    assert f"coordinator-{leader[-1]} was restarted" in restarts
    assert "shard-0 was restarted" in restarts
    assert (run.folder / "logs" / "kind" / "kind.log").exists()
    assert left_of(name, tools) == []


def test_karpenter_is_measured_on_kind(tmp_path: Path, tools: Tools) -> None:
    """In the pods of nested clusters, by the same command as BigFleet."""
    run = Scaletest(tmp_path, "smoke", "--substrate", "kind", "--set", "system=karpenter")
    name = run.folder.name
    assert run.exit_code(PATIENCE_SECONDS) in (ExitCode.PASS, ExitCode.GATE_MISSED), run.output
    summary = run.summary()
    assert (summary["run"]["system"], summary["run"]["substrate"]) == ("karpenter", "pods")
    pods = summary["pods"]
    assert pods["bound"] == pods["created"] - pods["withdrawn"] >= 200
    assert summary["resources"]["unknown"] == []
    assert summary["resources"]["processes"]["c1/karpenter"]["cpuSeconds"] > 0
    assert left_of(name, tools) == []


def metrics(node: Node, coordinator: str) -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{coordinator}:8791/proxy/metrics"
    return node.kubectl("get", f"--raw={path}")


@pytest.mark.parametrize("moment", ["creating a kind cluster", "installing charts/scaletest"])
def test_kill_9_leaves_no_cluster(tmp_path: Path, tools: Tools, moment: str) -> None:
    """The reaper removes it."""
    run = Scaletest(tmp_path, "smoke", "--substrate", "kind")
    run.await_line(moment, PATIENCE_SECONDS)
    name = run.folder.name
    run.child.send_signal(signal.SIGKILL)
    wait_until(lambda: left_of(name, tools) == [], seconds=PATIENCE_SECONDS)


def test_ctrl_c_leaves_a_report_and_no_cluster(tmp_path: Path, tools: Tools) -> None:
    """The runner judges what it has seen."""
    run = Scaletest(tmp_path, "smoke", "--substrate", "kind")
    run.await_line("  ramp", PATIENCE_SECONDS)
    name = run.folder.name
    run.child.send_signal(signal.SIGINT)
    assert run.exit_code(PATIENCE_SECONDS) == ExitCode.INTERRUPTED
    assert run.summary()["verdict"] == "error"
    assert left_of(name, tools) == []
