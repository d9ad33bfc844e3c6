"""A release of charts/scaletest, whose pods are processes here, comes to a verdict by itself."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bigfleet.kube.client import KubeClient
from controlplane.request import Binaries
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.pods.check import not_ready
from loaddriver.substrates.pods.places import RELEASE_VARIABLE, obtain
from loaddriver.substrates.processes import Supervisor
from loaddriver.substrates.runscope import RunScope
from tests.charts.helm_rig import SCALETEST, VALUES, Helm
from tests.charts.processes_as_pods import Node
from tests.charts.test_charts_on_cluster import items, pods_of, restricted
from tests.support.shared_clusters import SharedClusters
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

RELEASE = NAMESPACE = "st"
# Few replicas, as one machine runs them all.
FLAGS = (
    "-n",
    NAMESPACE,
    "-f",
    SCALETEST / "values" / "smoke.yaml",
    "-f",
    VALUES / "scaletest.yaml",
)
# With the names that they have on one machine.
PROCESSES = {
    *("runner", "locust", "provider", "shard-0"),
    *(f"coordinator-{number}" for number in range(3)),
    *(f"c1/{name}" for name in ("etcd", "kube-apiserver", "kube-controller-manager")),
    *(f"c1/{name}" for name in ("kube-scheduler", "kwok", "operator", "pod-controller")),
}
PODS = {"prepare", "cluster", "provider", "coordinator", "shard", "results", "runner"}


@pytest.fixture
def host(helm: Helm, shared_clusters: SharedClusters) -> Cluster:
    """The cluster that the chart is installed in; `helm` may skip first."""
    assert helm
    return shared_clusters.of("charts")["charts"]


@pytest_asyncio.fixture
async def node(
    helm: Helm, host: Cluster, binaries: Binaries, scope: RunScope, tmp_path: Path
) -> AsyncIterator[Node]:
    """A release whose pods exist, and can be run."""
    kubeconfig = host.kubeconfigs["admin"]
    installer = replace(helm, access=("--kubeconfig", str(kubeconfig)))
    programs = {"python3": Path(sys.executable), **binaries.paths}
    supervisor = Supervisor(scope.run_id)
    # Not `tmp_path`: the paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="st-", ignore_cleanup_errors=True) as root:
        async with restricted(host, NAMESPACE) as client:
            installer.run("install", RELEASE, SCALETEST, *FLAGS)
            await eventually(lambda: _all_there(client), "all pods of the release")
            made = Node(
                client, kubeconfig, NAMESPACE, Path(root), tmp_path / "logs", programs, supervisor
            )
            await made.adopt()
            try:
                yield made
            finally:
                await supervisor.stop(supervisor.running(), 2.0)
                installer.run("uninstall", RELEASE, "-n", NAMESPACE)
            await eventually(lambda: _no_secrets(client), "the end of the release's Secrets")


async def _all_there(client: KubeClient) -> bool:
    found = await pods_of(client, NAMESPACE)
    return set(found) == PODS and found["coordinator"] == 3


async def _no_secrets(client: KubeClient) -> bool:
    return not await items(client, f"/api/v1/namespaces/{NAMESPACE}/secrets")


async def test_smoke_passes_in_the_pods_of_a_release(node: Node) -> None:
    """The runner's exit code is the verdict, and its report is in the volume of results."""
    running = [
        asyncio.create_task(pod.run(), name=name)
        for name, pod in node.pods.items()
        if pod is not node.of("runner")
    ]
    runner = asyncio.create_task(node.of("runner").run())
    try:
        await _until_done(runner, running)
        release = {RELEASE_VARIABLE: str(node.of("runner").folder / "release")}
        assert await not_ready(obtain(release)) == []  # what `helm test` asks
    finally:
        for task in (runner, *running):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(runner, *running)
    process = node.of("runner").running["runner"]
    said = process.log_path.read_text()
    assert process.returncode == 0, said
    [summary] = (node.root / "claims" / f"{RELEASE}-results").glob("smoke-*/summary.json")
    found = json.loads(summary.read_text())
    assert found["verdict"] == "pass"
    assert found["pods"]["created"] >= 200
    assert found["resources"]["unknown"] == []
    used = {name: each["cpuSeconds"] for name, each in found["resources"]["processes"].items()}
    assert used.keys() == PROCESSES
    assert all(seconds > 0 for seconds in used.values()), used
    logs = {path.name for path in summary.parent.rglob("*.log")}
    assert "audit.log" in logs
    assert (summary.parent / "logs" / "machines.jsonl").stat().st_size > 0


async def _until_done(runner: asyncio.Task[None], others: list[asyncio.Task[None]]) -> None:
    """Wait for the runner; a pod that cannot be started fails the test."""
    waiting = {runner, *others}
    while not runner.done():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
