"""A namespace of a real cluster in which a chart is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bigfleet.api.install import SYSTEM_NAMESPACE
from bigfleet.kube.client import KubeClient
from loaddriver.substrates.base import Cluster
from tests.charts.helm_rig import (
    Object,
)
from tests.support.clusters import get, namespace

ENFORCED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}


@asynccontextmanager
async def restricted(cluster: Cluster, name: str) -> AsyncIterator[KubeClient]:
    """An administrator, while a namespace of that name enforces the restricted standard."""
    async with (
        await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client,
        # Claims of volumes keep the others: nothing here removes their finalizers.
        namespace(client, name, until_gone=name == SYSTEM_NAMESPACE),
    ):
        await client.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": ENFORCED}})
        yield client


async def items(client: KubeClient, path: str) -> list[Object]:
    found: list[Object] = (await get(client, path))["items"]
    return found


async def pods_of(client: KubeClient, name: str) -> Counter[str]:
    """How many pods each component has that are not being deleted."""
    pods = await items(client, f"/api/v1/namespaces/{name}/pods")
    alive = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
    return Counter(each["metadata"]["labels"]["app.kubernetes.io/component"] for each in alive)
