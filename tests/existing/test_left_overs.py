"""What a run left in a cluster of other people is found by its label, and removed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from loaddriver.run.node_source import set_apart
from loaddriver.substrates.applying import apply
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.existing.definitions import COLLECTION
from loaddriver.substrates.existing.objects import MANAGED, OWN_NAMESPACE, manifests
from tests.support.clusters import node
from tests.support.existing_clusters import DOWN, NONE, content, definition, started
from tests.support.scaletest import ROOT, end_all
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

LEFT = "things.example.com"
LEFT = "things.example.com"
AGENTS = "/apis/apps/v1/namespaces/default/daemonsets"


@pytest.fixture
def user(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Somebody whose kubeconfig has the cluster, as context `c`. It has an agent for every Node,
    whatever its taints.
    """
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfigs["admin"]))
    asyncio.run(apply_agents(cluster))
    yield cluster
    end_all()
    asyncio.run(remove_agents(cluster))


def test_what_remained_is_found_by_its_label_and_removed(tmp_path: Path, user: Cluster) -> None:
    """A run refuses to start beside it, and names the command that removes it: also Nodes and
    objects that only an autoscaler that is gone could end, and pods of the cluster's DaemonSets.
    """
    before = content(user)
    asyncio.run(leave(user))
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
    assert f"removing customresourcedefinitions/{LEFT}" in down.stderr
    assert content(user) == before


async def apply_agents(cluster: Cluster) -> None:
    labels = {"app": "agents"}
    spec = {"containers": [{"name": "c", "image": "fake"}], "tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    agents = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agents", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        await apply(client, [agents])


async def remove_agents(cluster: Cluster) -> None:
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        await client.delete(f"{AGENTS}/agents")


async def leave(cluster: Cluster) -> None:
    """What a run with an autoscaler of its own leaves, once an agent is on its Node."""
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        await apply(client, manifests("lost-run", "somebody on another machine"))
        body = set_apart({**node("lost-node"), "spec": {"taints": []}})
        body["metadata"]["finalizers"] = ["example.com/gone"]
        await client.create("/api/v1/nodes", body)
        await client.create(COLLECTION, definition(LEFT, **{MANAGED[0]: MANAGED[1]}))
        thing = {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "lost", "finalizers": ["example.com/gone"]},
        }
        await eventually(lambda: _created(client, "/apis/example.com/v1/things", thing))
        await eventually(lambda: _bound(client, "agents"))


async def _created(client: KubeClient, path: str, body: dict[str, Any]) -> bool:
    try:
        await client.create(path, body)
    except ApiError as error:
        if error.status == NOT_FOUND:  # its kind is not served yet
            return False
        raise
    return True


async def _bound(client: KubeClient, name: str) -> bool:
    pods = json.loads(await client.get("/api/v1/namespaces/default/pods"))["items"]
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith(name)]
    return any(pod["spec"].get("nodeName") for pod in mine)
