"""Real HPAs on real resource metrics: what the load says Pods use becomes replicas."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from bigfleet.kube.client import APPLY_PATCH, KubeClient
from controlplane.pins import METRICS_SERVER
from controlplane.request import Binaries
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import FEW_OBJECTS
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

# Only a failing test waits this long; metrics and HPAs are looked at every 15 s.
PATIENCE_SECONDS = 90.0
NAMESPACE = "/namespaces/default"
AT_ONCE = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}],
}


@pytest_asyncio.fixture
async def measured(binaries: Binaries, scope: RunScope) -> AsyncIterator[Cluster]:
    """A cluster with resource metrics."""
    if binaries.metrics_server is None:
        pytest.skip(
            f"no {METRICS_SERVER}: run `python -m controlplane get --also {METRICS_SERVER}`"
        )
    settings = replace(FEW_OBJECTS, resource_metrics=True)
    logs = scope.data_directory / "logs"
    substrate = LocalSubstrate(scope.run_id, scope.data_directory, logs, binaries, {}, settings)
    try:
        [cluster] = await substrate.start_clusters([f"m-{uuid.uuid4().hex[:6]}"])
        yield cluster
    finally:
        await substrate.stop()


async def test_an_hpa_follows_the_cpu_that_the_load_says_up_and_down(measured: Cluster) -> None:
    """Pods ask for one core and shall use half of it."""
    async with (
        await KubeClient.from_kubeconfig(measured.kubeconfigs["admin"]) as admin,
        await KubeClient.from_kubeconfig(measured.kubeconfigs["load-driver"]) as load,
    ):
        await add_node(admin)
        await use(load, "400m")
        await admin.create(f"/apis/apps/v1{NAMESPACE}/deployments", deployment())
        await admin.create(f"/apis/autoscaling/v2{NAMESPACE}/horizontalpodautoscalers", hpa())
        await until_replicas(admin, 1)
        await use(load, "3300m")  # seven Pods' worth
        await until_replicas(admin, 7)
        await use(load, "40m")
        await until_replicas(admin, 1)


async def until_replicas(admin: KubeClient, wanted: int) -> None:
    seen: list[Any] = []

    async def reached() -> bool:
        path = f"/apis/autoscaling/v2{NAMESPACE}/horizontalpodautoscalers/web"
        status = msgspec.json.decode(await admin.get(path)).get("status", {})
        seen.append(status)
        measured = bool(status.get("currentMetrics"))
        return measured and status.get("desiredReplicas") == wanted

    try:
        await eventually(reached, seconds=PATIENCE_SECONDS)
    except TimeoutError:
        raise AssertionError(f"never {wanted} replicas: {seen[-1]}") from None


async def use(load: KubeClient, cores: str) -> None:
    """Each Pod uses so much from now on."""
    body = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterResourceUsage",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchNamespaces": ["default"]},
            "usages": [{"usage": {"cpu": {"value": cores}, "memory": {"value": "10Mi"}}}],
        },
    }
    path = "/apis/kwok.x-k8s.io/v1alpha1/clusterresourceusages/web"
    await load.patch(path, body, APPLY_PATCH, {"fieldManager": "test", "force": "true"})


async def add_node(admin: KubeClient) -> None:
    annotation, value = FAKE_NODE_ANNOTATION
    room = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    metadata = {
        "name": "n",
        "labels": {"kubernetes.io/hostname": "n"},
        "annotations": {annotation: value},
    }
    status = {"capacity": room, "allocatable": room}
    await admin.create("/api/v1/nodes", {"kind": "Node", "metadata": metadata, "status": status})


def deployment() -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "fake",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pod}
    return {"metadata": {"name": "web"}, "spec": spec}


def hpa() -> dict[str, Any]:
    half = {"type": "Utilization", "averageUtilization": 50}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 7,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": half}}],
            "behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE},
        },
    }
