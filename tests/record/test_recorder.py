"""The recorder beside a real control plane: what it writes down is what the servers did."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from record_rig import labels

from bigfleet.api.kube.client import KubeClient
from controlplane.request import Binaries, request_from
from controlplane.resolve import resolve
from loaddriver.manifests import RACK_KEY
from loaddriver.record.clocks import receipt_lags_seconds
from loaddriver.record.recorder import ClusterRecorder, Observations
from loaddriver.record.rows import build_rows
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

PODS = 3
DEPLOYMENTS = "/apis/apps/v1/namespaces/load/deployments"
OWN_PODS = "/api/v1/namespaces/load/pods"


@pytest.fixture(scope="module")
def binaries() -> Binaries:
    return resolve(request_from(os.environ), print)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def observed(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Observations]:
    """Three pods wait for a node, get it, and one of them is deleted and replaced."""
    directory: Path = tmp_path_factory.mktemp("run")
    run_id = f"test-{uuid.uuid4().hex[:12]}"
    scope = RunScope.open(run_id, "test", directory / "logs", directory / "lock")
    substrate = LocalSubstrate(run_id, scope.data_directory, directory / "logs", binaries, {})
    try:
        (cluster,) = await substrate.start_clusters(["c0"])
        yield await record(cluster)
    finally:
        await substrate.stop()
        await scope.close()


async def record(cluster: Cluster) -> Observations:
    async with (
        await KubeClient.from_kubeconfig(cluster.kubeconfigs["recorder"]) as eyes,
        await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as admin,
    ):
        recorder = ClusterRecorder(cluster.name, eyes, cluster.audit_log)
        running = asyncio.create_task(recorder.run())
        await asyncio.wait_for(recorder.started(), 20)
        await admin.create("/api/v1/namespaces", {"metadata": {"name": "load"}})
        await admin.create(DEPLOYMENTS, deployment())
        await until(lambda: recorder.tally.backlog == PODS)
        await admin.create("/api/v1/nodes", fake_node())
        await until(lambda: recorder.tally.bound_total == PODS)
        pods = msgspec.json.decode(await admin.get(OWN_PODS))["items"]
        await admin.delete(f"{OWN_PODS}/{pods[0]['metadata']['name']}")
        await until(lambda: recorder.tally.bound_total == PODS + 1)
        assert recorder.nodes() == (1, 1)
        running.cancel()
        await asyncio.wait([running])
        return recorder.finish()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():  # noqa: ASYNC110 - the servers set no event of ours
            await asyncio.sleep(0.05)


def deployment() -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "web", **labels("g1")}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": PODS, "selector": selector, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


def fake_node() -> dict[str, Any]:
    key, value = FAKE_NODE_ANNOTATION
    resources = {"cpu": "4", "memory": "8Gi", "pods": "50"}
    node_labels = {"kubernetes.io/hostname": "n1", RACK_KEY: "r7"}
    return {
        "metadata": {"name": "n1", "labels": node_labels, "annotations": {key: value}},
        "status": {"capacity": resources, "allocatable": resources},
    }


async def test_every_pod_is_a_row_with_both_sources_joined(observed: Observations) -> None:
    """Also the one that was deleted, and the one that replaced it."""
    rows = build_rows([observed])
    assert len(rows) == PODS + 1
    for row in rows:
        assert (row.source, row.bound_by, row.node, row.rack) == ("audit", "scheduler", "n1", "r7")
        assert sum(row.hops_micros().values()) == round(row.waited_seconds * 1e6)
    assert sum(row.deleted_micros is not None for row in rows) == 1
    assert sorted(row.found_room is True for row in rows) == [False] * PODS + [True]


async def test_nothing_of_the_log_was_lost(observed: Observations) -> None:
    """Each line is read, and each request is there once."""
    assert observed.audit is not None
    assert (observed.audit.undecodable, observed.audit.nameless) == (0, 0)
    assert observed.audit.succeeded["create pods"] == PODS + 1
    assert observed.audit.succeeded["create pods/binding"] == PODS + 1
    assert list(observed.audit.nodes_created) == ["n1"]


async def test_the_watch_agrees_with_the_log(observed: Observations) -> None:
    """Receipt comes a little later than the stamp, by the same wall clock."""
    lags = receipt_lags_seconds([observed])
    assert len(lags) == 2 * (PODS + 1)
    assert all(-1 < lag < 10 for lag in lags)
