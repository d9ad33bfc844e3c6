"""A cluster that is somebody else's: what is in it, who may do what there, and runs in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from bigfleet.api.install import request_token
from bigfleet.kube.client import KubeClient
from loaddriver.substrates.applying import apply
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.credentials import kubeconfig
from loaddriver.substrates.existing.objects import Rule
from tests.support.guides import commands
from tests.support.scaletest import TINY, Scaletest

GUIDE = "existing-clusters.md"
# The commands of the guide, for the context that the tests have.
RUN, WITH_KARPENTER = (
    [w.replace("kind-east", "c") for w in each] for each in commands(GUIDE, "loaddriver run")
)
[DOWN] = [
    [w.replace("kind-east", "c") for w in each] for each in commands(GUIDE, "loaddriver down")
]
EXISTING, NONE, KARPENTER = (*RUN[:-2], *TINY), tuple(RUN[-2:]), tuple(WITH_KARPENTER[-2:])
NODES = "/api/v1/nodes"
# `kubectl get all,crd,nodes -A`, and what else a run could leave.
COLLECTIONS = (
    *("/api/v1/namespaces", NODES, "/api/v1/pods", "/api/v1/services"),
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
_SOMEBODY = "somebody"


def started(tmp_path: Path, *arguments: str) -> Scaletest:
    tempdir = tmp_path / "tmp"
    tempdir.mkdir(exist_ok=True)
    return Scaletest(tmp_path / "results", *EXISTING, *arguments, tempdir=tempdir)


def content(cluster: Cluster) -> dict[str, list[str]]:
    """Everything that is there, by collection."""

    async def read() -> dict[str, list[str]]:
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
            return {path: sorted(await _names(client, path)) for path in COLLECTIONS}

    return asyncio.run(read())


async def _names(client: KubeClient, path: str) -> list[str]:
    items: list[dict[str, Any]] = json.loads(await client.get(path))["items"]
    return [f"{i['metadata'].get('namespace', '')}/{i['metadata']['name']}" for i in items]


def confine(cluster: Cluster, path: Path, rules: Iterable[Rule]) -> Path:
    """A kubeconfig of somebody who may do only this, with the cluster as context `c`."""

    async def make() -> bytes:
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
            await apply(client, _account(rules))
            token = await request_token(client, _SOMEBODY, namespace="default")
        [given] = yaml.safe_load(cluster.kubeconfigs["admin"].read_text())["clusters"]
        own = given["cluster"]
        return kubeconfig("c", own.pop("server"), own, token)

    path.write_bytes(asyncio.run(make()))
    return path


def _account(rules: Iterable[Rule]) -> Iterator[dict[str, Any]]:
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": _SOMEBODY, "namespace": "default"}
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _SOMEBODY, "namespace": "default"},
    }
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _SOMEBODY},
        "rules": [{"apiGroups": [g], "resources": [*r], "verbs": [*v]} for g, r, v in rules],
    }
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _SOMEBODY},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": _SOMEBODY},
        "subjects": [subject],
    }


def definition(name: str, **labels: str) -> dict[str, Any]:
    """A CustomResourceDefinition of anything, for the whole cluster."""
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].title()},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
