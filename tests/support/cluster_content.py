"""What a cluster has, to tell whether a run left anything behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bigfleet.kube.client import KubeClient
from loaddriver.substrates.base import Cluster

# `kubectl get all,crd,nodes -A`, and what else a run could leave.
COLLECTIONS = (
    *("/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods", "/api/v1/services"),
    *("/api/v1/replicationcontrollers", "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets"),
    *("/apis/apps/v1/statefulsets", "/apis/apps/v1/daemonsets", "/apis/batch/v1/jobs"),
    *("/apis/batch/v1/cronjobs", "/apis/autoscaling/v2/horizontalpodautoscalers"),
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    *("/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/policy/v1/poddisruptionbudgets"),
    *(
        f"/apis/rbac.authorization.k8s.io/v1/{kind}"
        for kind in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
    ),
    *("/api/v1/serviceaccounts", "/apis/coordination.k8s.io/v1/leases"),
)


def content(cluster: Cluster) -> dict[str, list[str]]:
    """Everything that is there, by collection."""

    async def read() -> dict[str, list[str]]:
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
            return {path: sorted(await _names(client, path)) for path in COLLECTIONS}

    return asyncio.run(read())


async def _names(client: KubeClient, path: str) -> list[str]:
    items: list[dict[str, Any]] = json.loads(await client.get(path))["items"]
    return [f"{i['metadata'].get('namespace', '')}/{i['metadata']['name']}" for i in items]
