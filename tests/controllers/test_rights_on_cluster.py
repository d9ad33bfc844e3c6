"""RBAC: a joining machine only registers itself; only the pod controller watches Pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.api.install import NODE_NAMESPACE
from bigfleet.api.v1alpha1.shard_pb2 import BootstrapRequest
from bigfleet.controllers.operator.bootstrap import Bootstrap, Credentials
from bigfleet.kube.client import APPLY_PATCH, ApiError, InlineAccess, KubeClient
from tests.support.clusters import admin, get, node
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


async def _expected(_: str) -> None:
    return


async def _join(client: KubeClient, machine_id: str) -> tuple[KubeClient, dict[str, Any]]:
    """The machine's own client, made of nothing but its blob, and the blob."""
    bootstrap = Bootstrap(client, Credentials(client), client.server, client.ca_pem, _expected)
    request = BootstrapRequest(request_id="r", cluster_id="c", machine_id=machine_id)
    response = await bootstrap.answer(request)
    assert response.error == ""
    blob: dict[str, Any] = msgspec.json.decode(response.user_data)
    access = InlineAccess(blob["apiServer"], blob["caPem"], blob["token"])
    return KubeClient.with_access(access), blob


async def _send(client: KubeClient, method: str, path: str, body: Any) -> bytes:
    match method:
        case "POST":
            return await client.create(path, body)
        case "PATCH":
            return await client.patch(path, body)
        case "DELETE":
            return await client.delete(path)
    return await client.get(path)


async def _refused(client: KubeClient, method: str, path: str, body: Any = None) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await _send(client, method, path, body)
    return refused.value


async def test_a_blob_lets_a_machine_register_its_own_node_and_nothing_else(
    kubeconfig: dict[str, Path],
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as operator:
        machine, blob = await _join(operator, "m-own")
        async with machine, await admin(kubeconfig) as administrator:
            await machine.create("/api/v1/nodes", node("m-own", labels=blob["labels"]))
            await machine.patch(
                "/api/v1/nodes/m-own/status", {"status": {"nodeInfo": {"architecture": "x"}}}
            )
            await administrator.create("/api/v1/nodes", node("m-other"))
            for method, path, body in (
                ("POST", "/api/v1/nodes", node("m-new")),
                ("PATCH", "/api/v1/nodes/m-other", {"metadata": {"labels": {"a": "b"}}}),
                ("PATCH", "/api/v1/nodes/m-other/status", {"status": {"phase": "x"}}),
            ):
                refusal = await _refused(machine, method, path, body)
                assert refusal.status == 403
                assert "only the Node of its own name" in refusal.message
            for method, path in (
                ("GET", "/api/v1/nodes"),
                ("GET", "/api/v1/nodes/m-own"),
                ("DELETE", "/api/v1/nodes/m-own"),
                ("GET", "/api/v1/pods"),
                ("GET", "/api/v1/secrets"),
                ("GET", f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts"),
            ):
                assert (await _refused(machine, method, path)).status == 403
            await administrator.delete("/api/v1/nodes/m-own")
            await administrator.delete("/api/v1/nodes/m-other")


async def test_a_revoked_credential_is_worthless(kubeconfig: dict[str, Path]) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as operator:
        machine, _ = await _join(operator, "m-late")
        await Credentials(operator).revoke("m-late")

        async def refused() -> bool:
            error = None
            try:
                query = {"fieldManager": "t", "dryRun": "All"}
                await machine.patch("/api/v1/nodes/m-late", node("m-late"), APPLY_PATCH, query)
            except ApiError as failure:
                error = failure
            return error is not None and error.status == 401

        async with machine:
            await eventually(refused, "the token to die with its account")


async def test_a_node_that_was_being_emptied_is_removed_before_its_machine_joins_again(
    kubeconfig: dict[str, Path],
) -> None:
    leftover = node(
        "m-left-over",
        labels={"bigfleet.lucy.sh/machine": "m-left-over"},
        annotations={"bigfleet.lucy.sh/reclaim-deadline": "1.0"},
    )
    async with (
        await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as operator,
        await admin(kubeconfig) as administrator,
    ):
        await administrator.create("/api/v1/nodes", leftover)
        machine, _ = await _join(operator, "m-left-over")
        await machine.close()
        assert await get(administrator, "/api/v1/nodes/m-left-over") is None


async def test_a_request_without_a_machine_is_answered_with_a_reason(
    kubeconfig: dict[str, Path],
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as operator:
        bootstrap = Bootstrap(operator, Credentials(operator), "", "", _expected)
        response = await bootstrap.answer(BootstrapRequest(request_id="r"))
        assert "has no machine_id" in response.error
        response = await bootstrap.answer(BootstrapRequest(request_id="r", machine_id="Not/Legal"))
        assert "no credential for 'Not/Legal'" in response.error


@pytest.mark.parametrize(
    "name", ["UPPER", "a_b", "-a", "a..b", "x" * 64, "default/evil", "a b", ".", "ä"]
)
async def test_only_what_can_be_a_nodes_name_is_given_a_credential(
    kubeconfig: dict[str, Path], name: str
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as operator:
        bootstrap = Bootstrap(operator, Credentials(operator), "", "", _expected)
        response = await bootstrap.answer(BootstrapRequest(request_id="r", machine_id=name))
        assert "it must be 1 to 36 of a-z" in response.error
        assert response.user_data == b""


@pytest.mark.parametrize("labels", [{"a": "b"}, {"bigfleet.lucy.sh/machine": "another"}])
async def test_a_machine_gets_no_credential_for_a_foreign_node(
    kubeconfig: dict[str, Path], labels: dict[str, str]
) -> None:
    """It would take over that Node; the error names its owner."""
    async with (
        await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as operator,
        await admin(kubeconfig) as administrator,
    ):
        await administrator.create("/api/v1/nodes", node("m-theirs", labels=labels))
        bootstrap = Bootstrap(operator, Credentials(operator), "", "", _expected)
        response = await bootstrap.answer(BootstrapRequest(request_id="r", machine_id="m-theirs"))
        assert "no credential for m-theirs: node m-theirs " in response.error
        path = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts/m-theirs"
        assert await get(administrator, path) is None
        await administrator.delete("/api/v1/nodes/m-theirs")


@pytest.mark.parametrize("identity", ["bigfleet-operator", "fake-host"])
async def test_only_the_pod_controller_may_watch_pods(
    kubeconfig: dict[str, Path], identity: str
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig[identity]) as client:
        query = {"watch": "1", "timeoutSeconds": "1"}
        with pytest.raises(ApiError) as refused:
            await client.open("/api/v1/pods", query, 5)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("identity", "path"),
    [
        ("bigfleet-operator", "/api/v1/secrets"),
        ("bigfleet-pod-controller", "/api/v1/configmaps"),
        ("bigfleet-pod-controller", "/api/v1/secrets"),
        ("fake-host", "/api/v1/pods"),
    ],
)
async def test_no_role_may_read_what_it_does_not_need(
    kubeconfig: dict[str, Path], identity: str, path: str
) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig[identity]) as client:
        assert (await _refused(client, "GET", path)).status == 403


async def test_the_operator_makes_credentials_in_one_namespace_only(
    kubeconfig: dict[str, Path],
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}
    async with await KubeClient.from_kubeconfig(kubeconfig["bigfleet-operator"]) as client:
        path = "/api/v1/namespaces/kube-system/serviceaccounts"
        assert (await _refused(client, "POST", path, account)).status == 403
