"""A release of charts/scaletest, whose pods are processes here, comes to a verdict by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.kube.client import KubeClient
from controlplane.pins import KARPENTER
from controlplane.request import Binaries
from loaddriver.errors import ExitCode
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.pods.check import not_ready
from loaddriver.substrates.pods.places import RELEASE_VARIABLE, obtain
from loaddriver.substrates.processes import Supervisor
from loaddriver.substrates.runscope import RunScope
from tests.charts.cluster_rig import items, pods_of, restricted
from tests.charts.helm_rig import SCALETEST, VALUES, Helm
from tests.charts.processes_as_pods import Node
from tests.support.shared_clusters import SharedClusters
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1800)]

RELEASE = "st"
# Another for each test: nothing here removes the finalizers of its claims.
_NAMESPACES = (f"{RELEASE}{number}" for number in itertools.count())


@dataclass(frozen=True)
class Release:
    """What is installed: values, settings of the profile, and how many pods that makes."""

    values: Sequence[Path]
    overrides: Sequence[str]
    pods: Mapping[str, int]


# The fewest workers of the load that are pods.
SMOKE = Release(
    (
        SCALETEST / "values" / "smoke.yaml",
        VALUES / "scaletest.yaml",
        VALUES / "scaletest-load-workers.yaml",
    ),
    ("load.workers=2",),
    {
        "prepare": 1,
        "cluster": 1,
        "provider": 1,
        "coordinator": 3,
        "shard": 1,
        "results": 1,
        "runner": 1,
        "load-worker": 2,
    },
)
LONG_SOAK = replace(SMOKE, overrides=(*SMOKE.overrides, "podsPerCluster=40", "soak.seconds=60"))
KARPENTER_RELEASE = Release(
    (VALUES / "scaletest.yaml", VALUES / "scaletest-karpenter.yaml"),
    (),
    {"prepare": 1, "cluster": 1, "results": 1, "runner": 1},
)
LOAD_WORKERS = {f"{RELEASE}-load-worker-0", f"{RELEASE}-load-worker-1"}
# With the names that they have on one machine.
CONTROL_PLANE = {
    *(f"c1/{name}" for name in ("etcd", "kube-apiserver", "kube-controller-manager")),
    *(f"c1/{name}" for name in ("kube-scheduler", "kwok")),
}
PROCESSES = {
    *("runner", "locust", "provider", "shard-0"),
    *(f"coordinator-{number}" for number in range(3)),
    *("c1/operator", "c1/pod-controller"),
    *CONTROL_PLANE,
}


@pytest.fixture
def host(helm: Helm, shared_clusters: SharedClusters) -> Cluster:
    """The cluster that the chart is installed in; `helm` may skip first."""
    assert helm
    return shared_clusters.of("charts")["charts"]


@pytest_asyncio.fixture
async def node(
    request: pytest.FixtureRequest,
    helm: Helm,
    host: Cluster,
    binaries: Binaries,
    scope: RunScope,
    tmp_path: Path,
) -> AsyncIterator[Node]:
    """A release whose pods exist, and can be run: that of the test's parameter."""
    release: Release = getattr(request, "param", SMOKE)
    namespace = next(_NAMESPACES)
    kubeconfig = host.kubeconfigs["admin"]
    installer = replace(helm, access=("--kubeconfig", str(kubeconfig)))
    programs = {"python3": Path(sys.executable), **binaries.paths}
    if release is KARPENTER_RELEASE:
        if binaries.karpenter is None:
            pytest.skip(f"no {KARPENTER}: run `python -m controlplane get --also {KARPENTER}`")
        programs[KARPENTER] = binaries.karpenter
    supervisor = Supervisor(scope.run_id)
    # Not `tmp_path`: the paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="st-", ignore_cleanup_errors=True) as root:
        async with restricted(host, namespace) as client:
            files = [word for path in release.values for word in ("-f", path)]
            more = ("-n", namespace, f"--set-json=overrides={json.dumps(list(release.overrides))}")
            installer.run("install", RELEASE, SCALETEST, *files, *more)
            await eventually(lambda: _all_there(client, namespace, release.pods), "all pods")
            made = Node(
                client, kubeconfig, namespace, Path(root), tmp_path / "logs", programs, supervisor
            )
            await made.adopt()
            try:
                yield made
            finally:
                await supervisor.stop(supervisor.running(), 2.0)
                installer.run("uninstall", RELEASE, "-n", namespace)
            await eventually(
                lambda: _no_secrets(client, namespace), "the end of the release's Secrets"
            )


async def _all_there(client: KubeClient, namespace: str, wanted: Mapping[str, int]) -> bool:
    return await pods_of(client, namespace) == wanted


async def _no_secrets(client: KubeClient, namespace: str) -> bool:
    return not await items(client, f"/api/v1/namespaces/{namespace}/secrets")


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[asyncio.Task[None]]:
    """All pods run; what ends with the runner."""
    others = [
        asyncio.create_task(pod.run(), name=name)
        for name, pod in node.pods.items()
        if pod is not node.of("runner")
    ]
    runner = asyncio.create_task(node.of("runner").run())
    ended = asyncio.create_task(_until_done(runner, others))
    try:
        yield ended
    finally:
        for task in (ended, runner, *others):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(ended, runner, *others)


async def test_smoke_passes_in_the_pods_of_a_release(node: Node) -> None:
    """The runner's exit code is the verdict, its report is in the volume of results, and both
    workers have sent the load.
    """
    async with running(node) as ended:
        await ended
        release = {RELEASE_VARIABLE: str(node.of("runner").folder / "release")}
        assert await not_ready(obtain(release)) == []  # what `helm test` asks
    process = node.of("runner").running["runner"]
    said = process.log_path.read_text()
    assert process.returncode == 0, said
    found = summary(node)
    assert found["verdict"] == "pass"
    assert found["pods"]["created"] >= 200
    workers = found["load"]["workers"]
    assert set(workers) == LOAD_WORKERS
    assert all(each["requestsSent"] == each["requestsPlanned"] > 0 for each in workers.values())
    assert found["resources"]["unknown"] == []
    used = {name: each["cpuSeconds"] for name, each in found["resources"]["processes"].items()}
    assert used.keys() == PROCESSES
    assert all(seconds > 0 for seconds in used.values()), used
    folder = folder_of(node)
    logs = {path.name for path in folder.rglob("*.log")}
    assert "audit.log" in logs
    assert (folder / "logs" / "machines.jsonl").stat().st_size > 0


@pytest.mark.parametrize("node", [KARPENTER_RELEASE], ids=[""], indirect=True)
async def test_karpenter_serves_the_load_in_the_pods_of_a_release(node: Node) -> None:
    """The runner finds it beside the control plane, judges it, and knows what it used."""
    async with running(node) as ended:
        await ended
        release = {RELEASE_VARIABLE: str(node.of("runner").folder / "release")}
        assert await not_ready(obtain(release)) == []
    process = node.of("runner").running["runner"]
    said = process.log_path.read_text()
    assert process.returncode in (ExitCode.PASS, ExitCode.GATE_MISSED), said
    found = summary(node)
    assert found["run"]["system"] == KARPENTER
    assert found["run"]["versions"][KARPENTER] == "1.14.1"
    assert found["pods"]["bound"] == found["pods"]["created"] - found["pods"]["withdrawn"] >= 200
    assert found["resources"]["unknown"] == []
    used = {name: each["cpuSeconds"] for name, each in found["resources"]["processes"].items()}
    assert used.keys() == {"runner", "locust", "c1/karpenter", *CONTROL_PLANE}
    assert used["c1/karpenter"] > 0.1


@pytest.mark.parametrize("node", [LONG_SOAK], ids=[""], indirect=True)
async def test_a_worker_that_is_killed_ends_the_run_with_its_name(node: Node) -> None:
    """Long before the master could notice that it is silent."""
    async with running(node) as ended:
        runner = node.of("runner")
        await eventually(lambda: "runner" in runner.running, "the runner")
        log = runner.running["runner"].log_path
        await eventually(lambda: "  soak" in log.read_text(), "the soak", seconds=300.0)
        lost = node.pods[sorted(LOAD_WORKERS)[1]]
        await lost.kill("load-worker")
        await ended
    assert runner.running["runner"].returncode == ExitCode.INFRASTRUCTURE, log.read_text()
    [why] = summary(node)["why"]
    assert f"load worker {lost.name} was killed by SIGKILL" in why


def folder_of(node: Node) -> Path:
    """The results of the only run."""
    [folder] = (node.root / "claims" / f"{RELEASE}-results").glob("smoke-*")
    return folder


def summary(node: Node) -> Any:
    return json.loads((folder_of(node) / "summary.json").read_text())


async def _until_done(runner: asyncio.Task[None], others: list[asyncio.Task[None]]) -> None:
    """Wait for the runner; a pod that cannot be started fails the test."""
    waiting = {runner, *others}
    while not runner.done():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
