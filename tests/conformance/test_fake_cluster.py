"""The suite's cluster is no more permissive than a real one: what passes it works elsewhere."""

from __future__ import annotations

import json

import aiohttp
import pytest

from bigfleet.conformance.fake_cluster import FakeCluster

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "", 403),
        ("GET", "/m-0", 403),
        ("DELETE", "/m-0", 403),
        ("PATCH", "/m-0", 200),
        ("POST", "", 409),
    ],
)
async def test_the_blobs_token_may_write_its_node_and_not_read_it(
    method: str, path: str, status: int
) -> None:
    """As bigfleet/api/manifests/bootstrap-policy.yaml has it."""
    cluster = FakeCluster()
    async with cluster.serving("127.0.0.1", 0):
        facts = json.loads(cluster.blob("m-0"))
        nodes = f"{facts['apiServer']}/api/v1/nodes"
        headers = {"Authorization": f"Bearer {facts['token']}", **MERGE}
        body = json.dumps({"metadata": {"name": "m-0"}})
        async with aiohttp.ClientSession(headers=headers) as http:
            (await http.post(nodes, data=body)).close()
            async with http.request(method, nodes + path, data=body) as answer:
                assert answer.status == status
                if status == 200:
                    assert (await answer.json())["status"]["conditions"]


async def test_whoever_has_the_kubeconfig_may_read_nodes() -> None:
    cluster = FakeCluster()
    async with cluster.serving("127.0.0.1", 0):
        config = json.loads(cluster.kubeconfig())
        url, user = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]
        headers = {"Authorization": f"Bearer {user['token']}"}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.get(f"{url}/api/v1/nodes") as answer,
        ):
            assert answer.status == 200
