"""API Priority and Fairness: requests of BigFleet do not wait behind those of workloads."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml

from bigfleet.api.install import GROUP_VERSION, NODE_NAMESPACE, request_token
from bigfleet.kube.client import APPLY_PATCH, KubeClient
from tests.support.clusters import admin, get
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
# Set by the API server on each response.
_FLOW_SCHEMA = "X-Kubernetes-PF-FlowSchema-UID"
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/bigfleet-system/leases"


async def _flow_schema(client: KubeClient, token: str, path: str) -> str:
    """The name of the flow schema that the holder of `token` has for a GET of `path`."""
    context = ssl.create_default_context(cadata=client.ca_pem)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(client.server + path, headers=headers, ssl=context) as response,
    ):
        uid = response.headers[_FLOW_SCHEMA]
    listed = await get(client, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas")
    [name] = [x["metadata"]["name"] for x in listed["items"] if x["metadata"]["uid"] == uid]
    return str(name)


def _token(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])


@pytest.mark.parametrize("component", ["bigfleet-operator", "bigfleet-pod-controller"])
async def test_requests_of_a_component_are_in_the_level_of_the_controllers(
    kubeconfig: dict[str, Path], component: str
) -> None:
    """Its Lease is in the level of leader election."""
    token = _token(kubeconfig[component])
    requests = f"{GROUP_VERSION}/namespaces/default/capacityrequests"
    async with await admin(kubeconfig) as client:
        assert await _flow_schema(client, token, requests) == "bigfleet-controllers"
        lease = f"{_LEASE}/{component}"
        assert await _flow_schema(client, token, lease) == "bigfleet-leader-election"


async def test_a_joining_machine_is_in_the_level_of_kubelets(kubeconfig: dict[str, Path]) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "m-flow"}}
    accounts = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts"
    async with await admin(kubeconfig) as client:
        await client.patch(f"{accounts}/m-flow", account, APPLY_PATCH, {"fieldManager": "test"})
        try:
            token = await request_token(client, "m-flow")

            async def classified() -> bool:
                name = await _flow_schema(client, token, "/api/v1/nodes/m-flow")
                return name == "bigfleet-node-registration"

            await eventually(classified, "the machine's flow schema")
        finally:
            await client.delete(f"{accounts}/m-flow")


async def test_nobody_else_is_in_the_level_of_the_controllers(kubeconfig: dict[str, Path]) -> None:
    token = _token(kubeconfig["load-driver"])
    async with await admin(kubeconfig) as client:
        assert await _flow_schema(client, token, "/api/v1/pods") == "global-default"
