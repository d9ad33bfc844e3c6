"""Nobody claims a priority without a pod, or the right to a PriorityClass, that has it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from bigfleet.api.install import GROUP_VERSION
from bigfleet.kube.client import APPLY_PATCH, ApiError, InlineAccess, KubeClient
from tests.support.clusters import admin, namespace
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_NUMBERS = itertools.count()
_ALLOWED, _FORBIDDEN, _INVALID = 201, 403, 422


class Tenant:
    """A user who may do everything with CapacityRequests of one namespace, and use the
    PriorityClass `granted`.
    """

    def __init__(self, client: KubeClient, where: str, granted: str) -> None:
        self.client, self.granted = client, granted
        self.requests = f"{GROUP_VERSION}/namespaces/{where}/capacityrequests"

    async def creates(self, **spec: Any) -> tuple[int, str]:
        """The answer's status and words."""
        name = f"cr-{next(_NUMBERS)}"
        return await _answer(self.client.create(self.requests, _request(name, **spec)))

    async def is_known(self) -> bool:
        """Whether the API server's own watches have told it of the new rights and class."""
        body = _request("dry", priority=1000, priorityClassName=self.granted)
        status, _ = await _answer(self.client.create(f"{self.requests}?dryRun=All", body))
        return status == _ALLOWED


async def _answer(call: Any) -> tuple[int, str]:
    try:
        await call
    except ApiError as error:
        return error.status, error.message
    return _ALLOWED, ""


def _request(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": "1"}, **spec},
    }


async def _token(client: KubeClient, where: str) -> str:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    path = f"/api/v1/namespaces/{where}/serviceaccounts/default/token"
    return str(msgspec.json.decode(await client.create(path, body))["status"]["token"])


async def _grant(
    client: KubeClient, name: str, where: str, kind: str, rules: list[dict[str, Any]]
) -> None:
    """Give the namespace's default account these rights, there (Role) or everywhere."""
    api = "rbac.authorization.k8s.io"
    base = f"{_RBAC}/namespaces/{where}" if kind == "Role" else _RBAC
    metadata = {"name": name}
    role = {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    await client.create(f"{base}/{kind.lower()}s", role)
    binding = {
        "apiVersion": f"{api}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": where}],
    }
    await client.create(f"{base}/{kind.lower()}bindings", binding)


@pytest_asyncio.fixture
async def tenant(kubeconfig: dict[str, Path]) -> AsyncIterator[Tenant]:
    """One who may use the class `granted-N` of priority 1000; `other-N` has 5000."""
    number = next(_NUMBERS)
    granted, other = f"granted-{number}", f"other-{number}"
    async with await admin(kubeconfig) as client, namespace(client, f"tenant-{number}") as where:
        for name, value in ((granted, 1000), (other, 5000)):
            head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            await client.create(_CLASSES, {**head, "metadata": {"name": name}, "value": value})
        everything = {"apiGroups": ["bigfleet.lucy.sh"], "resources": ["capacityrequests"]}
        verbs = ["get", "create", "patch", "update", "delete"]
        await _grant(client, where, where, "Role", [{**everything, "verbs": verbs}])
        use = {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"]}
        rule = {**use, "resourceNames": [granted], "verbs": ["use"]}
        await _grant(client, where, where, "ClusterRole", [rule])
        access = InlineAccess(client.server, client.ca_pem, await _token(client, where))
        async with KubeClient.with_access(access) as mine:
            made = Tenant(mine, where, granted)
            await eventually(made.is_known, "the tenant's rights to be in force")
            yield made
        for name in (granted, other):
            await client.delete(f"{_CLASSES}/{name}")
        for kind in ("clusterrolebindings", "clusterroles"):
            await client.delete(f"{_RBAC}/{kind}/{where}")


async def test_a_user_who_may_create_requests_claims_no_priority_by_that(tenant: Tenant) -> None:
    status, message = await tenant.creates(priority=2_000_000_000)
    assert status == _FORBIDDEN
    assert "spec.priority 2000000000" in message
    assert "spec.priorityClassName" in message
    for priority in (0, -10):
        assert await tenant.creates(priority=priority) == (_ALLOWED, "")


async def test_a_priority_is_that_of_the_named_class_which_the_user_may_use(
    tenant: Tenant,
) -> None:
    mine = {"priorityClassName": tenant.granted}
    assert await tenant.creates(priority=1000, **mine) == (_ALLOWED, "")
    status, message = await tenant.creates(priority=1001, **mine)
    assert status == _INVALID
    assert f"is not that of PriorityClass {tenant.granted}, which is 1000" in message


async def test_no_other_class_can_be_named_for_a_priority_not_even_one_that_is_not_there(
    tenant: Tenant,
) -> None:
    other = tenant.granted.replace("granted", "other")
    for name, priority in ((other, 5000), ("system-node-critical", 2_000_001_000), ("none", 7)):
        status, message = await tenant.creates(priority=priority, priorityClassName=name)
        assert (status, "verb use" in message) == (_FORBIDDEN, True)


async def test_a_priority_cannot_be_raised_afterwards_by_any_kind_of_write(
    tenant: Tenant, kubeconfig: dict[str, Path]
) -> None:
    """Neither by an update, nor a patch, nor server-side apply; also not that of somebody else's
    request, of which all but its priority may be changed.
    """
    async with await admin(kubeconfig) as client:
        await client.create(tenant.requests, _request("high", priority=900))
    path, mine = f"{tenant.requests}/high", tenant.client
    raised = {"spec": {"priority": 2_000_000_000}}
    assert (await _answer(mine.patch(path, raised)))[0] == _FORBIDDEN
    full = {**_request("high", priority=2_000_000_000)}
    query = {"fieldManager": "mine", "force": "true"}
    assert (await _answer(mine.patch(path, full, APPLY_PATCH, query)))[0] == _FORBIDDEN
    assert (await _answer(mine.patch(path, {"metadata": {"labels": {"a": "b"}}})))[0] == _ALLOWED
    assert (await _answer(mine.patch(path, {"spec": {"priority": -1}})))[0] == _ALLOWED


async def test_the_pod_controller_repeats_whatever_priority_a_pod_has(
    kubeconfig: dict[str, Path],
) -> None:
    """Kubernetes has bound it to a PriorityClass; the operator, who writes no requests, may not."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, f"pods-{next(_NUMBERS)}") as where,
        await KubeClient.from_kubeconfig(kubeconfig["bigfleet-pod-controller"]) as controller,
    ):
        path = f"{GROUP_VERSION}/namespaces/{where}/capacityrequests"
        body = _request("critical", priority=2_000_001_000)
        assert await _answer(controller.create(path, body)) == (_ALLOWED, "")
