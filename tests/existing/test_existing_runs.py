"""A run in a cluster of other people gets a verdict, and leaves the cluster as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigfleet.kube.client import KubeClient
from loaddriver.run.node_source import set_apart
from loaddriver.substrates.applying import apply
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.existing.objects import OWN_NAMESPACE, manifests
from tests.support.cluster_content import content
from tests.support.clusters import node
from tests.support.guides import commands
from tests.support.scaletest import ROOT, TINY, Scaletest, end_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GUIDE = "existing-clusters.md"
# The commands of the guide, for the context that the tests have.
[RUN] = [[w.replace("kind-east", "c") for w in each] for each in commands(GUIDE, "loaddriver run")]
[DOWN] = [
    [w.replace("kind-east", "c") for w in each] for each in commands(GUIDE, "loaddriver down")
]
EXISTING, NONE = (*RUN[:-2], *TINY), tuple(RUN[-2:])
# An autoscaler that is installed and removed: all machines at once.
INSTALLED = """
import asyncio, json, os, pathlib, sys
from bigfleet.kube.client import KubeClient
sys.path.insert(0, "examples/autoscaler")
from autoscaler import node
async def main():
    fleet = [json.loads(l) for l in pathlib.Path(os.environ["SCALETEST_FLEET"]).open()]
    async with await KubeClient.from_kubeconfig(pathlib.Path(os.environ["KUBECONFIG"])) as client:
        for machine in fleet:
            if sys.argv[1] == "start":
                await client.create("/api/v1/nodes", node(machine))
            else:
                await client.delete("/api/v1/nodes/" + machine["id"])
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


@pytest.fixture
def user(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Somebody whose kubeconfig has the cluster, as context `c`."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfigs["admin"]))
    return cluster


def installed(tmp_path: Path) -> tuple[str, ...]:
    """The settings of a system that has to be removed again."""
    path = tmp_path / "installed.py"
    path.write_text(INSTALLED)
    line = f"{sys.executable} {path}"
    return (
        *("--set", "system=command", "--set", f"command.start={line} start"),
        *("--set", f"command.stop={line} stop"),
        *("--set", "command.nodeSelector={example.com/autoscaler: one-file}"),
    )


def started(tmp_path: Path, *arguments: str) -> Scaletest:
    tempdir = tmp_path / "tmp"
    tempdir.mkdir(exist_ok=True)
    return Scaletest(tmp_path / "results", *EXISTING, *arguments, tempdir=tempdir)


@pytest.mark.parametrize("system", ["none", "command"])
def test_a_run_gets_a_verdict_and_leaves_nothing_behind(
    tmp_path: Path, user: Cluster, system: str
) -> None:
    """Pods are bound and judged by receipts of watches, whose error is stated."""
    before = content(user)
    run = started(tmp_path, *(NONE if system == "none" else installed(tmp_path)))
    assert run.exit_code() in (0, 3, 5), run.output
    found = run.summary()
    assert found["run"]["substrate"] == "existing"
    pods = found["pods"]
    assert pods["bound"] + pods["withdrawn"] == pods["created"] >= 40, run.output
    assert found["audit"]["available"] is False
    assert found["audit"]["stampError"]["samples"] >= 3
    assert found["audit"]["stampError"]["p99Seconds"] > 0
    if found["verdict"] in ("pass", "fail"):
        assert any("receipts by watch" in sentence for sentence in found["why"])
    assert "Receipts are late by at most" in (run.folder / "report.html").read_text()
    assert content(user) == before
    assert not run.left_overs()


@pytest.mark.parametrize("system", ["none", "command"])
def test_a_runner_that_is_killed_leaves_nothing_behind(
    tmp_path: Path, user: Cluster, system: str
) -> None:
    """Its reaper removes the load, the Nodes and the identity, and runs the stop command."""
    before = content(user)
    run = started(tmp_path, *(NONE if system == "none" else installed(tmp_path)))
    run.await_line("  soak")
    assert content(user) != before
    run.child.send_signal(signal.SIGKILL)
    run.child.wait()
    wait_until(lambda: content(user) == before, "the cluster to be as before", seconds=240)


def test_what_remained_is_found_by_its_label_and_removed(tmp_path: Path, user: Cluster) -> None:
    """A run refuses to start beside it, and names the command that removes it."""
    before = content(user)

    async def leave() -> None:
        async with await KubeClient.from_kubeconfig(user.kubeconfigs["admin"]) as client:
            await apply(client, manifests("lost-run", "somebody on another machine"))
            body = node("lost-node")
            await client.create("/api/v1/nodes", set_apart({**body, "spec": {"taints": []}}))

    asyncio.run(leave())
    refused = started(tmp_path, *NONE)
    assert refused.exit_code() == 6, refused.output
    assert "run lost-run, started by somebody on another machine" in refused.output
    assert "loaddriver down --context c" in refused.output
    down = subprocess.run(
        [sys.executable, "-m", "loaddriver", "down", *DOWN],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert down.returncode == 0, down.stderr
    assert f"removing namespaces/{OWN_NAMESPACE}" in down.stderr
    assert content(user) == before


def test_each_missing_right_is_named_and_nothing_is_created(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder's own identity may read pods and nodes, and no more."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfigs["recorder"]))
    before = content(cluster)
    run = started(tmp_path, *NONE)
    assert run.exit_code() == 6, run.output
    for right in (
        "create namespaces",
        "patch deployments.apps/scale",
        "create serviceaccounts/token",
        "create clusterroles.rbac.authorization.k8s.io",
        "create nodes",
    ):
        assert f"  {right}\n" in run.output + "\n", right
    assert "  list pods\n" not in run.output
    assert content(cluster) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "system: bigfleet needs clusters of its own"),
        ((*NONE, "--context", "c"), "the profile has 1 clusters, and 2 contexts were given"),
    ],
)
def test_what_cannot_be_run_there_is_refused_before_anything_starts(
    tmp_path: Path, user: Cluster, arguments: tuple[str, ...], message: str
) -> None:
    assert user.name == "c"
    run = started(tmp_path, *arguments)
    assert run.exit_code() == 2, run.output
    assert message in run.output
