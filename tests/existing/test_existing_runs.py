"""A run in a cluster of other people gets a verdict, and leaves the cluster as it was."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.request import Binaries
from loaddriver.karpenter.guest import karpenter_guest
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.existing.rights import needed_rules
from tests.support.existing_clusters import KARPENTER, NODES, NONE, confine, content, started
from tests.support.scaletest import end_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

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


def settings(system: str, tmp_path: Path, binaries: Binaries) -> tuple[str, ...]:
    """The command line's, for this system."""
    if system == "karpenter" and binaries.karpenter is None:
        pytest.skip("no karpenter: run `python -m controlplane get --also karpenter`")
    return {"none": NONE, "karpenter": KARPENTER}.get(system) or installed(tmp_path)


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


@pytest.mark.parametrize("system", ["none", "command", "karpenter"])
def test_a_run_gets_a_verdict_and_leaves_nothing_behind(
    tmp_path: Path,
    user: Cluster,
    system: str,
    binaries: Binaries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods are bound and judged by receipts of watches, whose error is stated. The user may do no
    more than is asked for; commands are his own business.
    """
    own = settings(system, tmp_path, binaries)
    if system != "command":
        guest = karpenter_guest() if system == "karpenter" else None
        rules = needed_rules(fleet_nodes=True, guest=guest)
        monkeypatch.setenv("KUBECONFIG", str(confine(user, tmp_path / "somebody", rules)))
    before = content(user)
    run = started(tmp_path, *own)
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
    # Leases of Nodes are the garbage collector's, which takes its time.
    wait_until(lambda: content(user) == before, "the cluster to be as it was")
    assert not run.left_overs()


@pytest.mark.parametrize("system", ["none", "command", "karpenter"])
def test_a_runner_that_is_killed_leaves_nothing_behind(
    tmp_path: Path, user: Cluster, system: str, binaries: Binaries
) -> None:
    """Its reaper removes the load, the Nodes and the identities, and runs the stop command."""
    own = settings(system, tmp_path, binaries)
    before = content(user)
    run = started(tmp_path, *own)
    run.await_line("  soak")
    wait_until(lambda: content(user)[NODES] != before[NODES], "a Node of the run's")
    run.child.send_signal(signal.SIGKILL)
    run.child.wait()
    wait_until(lambda: content(user) == before, "the cluster to be as before", seconds=240)


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
