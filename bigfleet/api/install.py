"""Installs BigFleet's CRDs, RBAC, flow schemas and admission policies in a cluster.

The same YAML files work with `kubectl apply`. Here they are applied server-side, and waited for: a
CRD, a role or a policy takes effect some time after it was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.kube.client import APPLY_PATCH, ApiError, InlineAccess, KubeClient, is_transient
from bigfleet.model.errors import Unavailable

CRDS = Path(__file__).with_name("crds")
MANIFESTS = Path(__file__).with_name("manifests")
GROUP_VERSION = "/apis/bigfleet.lucy.sh/v1alpha1"
NODE_NAMESPACE = "bigfleet-nodes"
SYSTEM_NAMESPACE = "bigfleet-system"
RBAC_MANIFEST = "bigfleet/api/manifests/rbac.yaml"
# On a CapacityRequest with a co-location group, and on a Pod for its request: the size of the
# group. It is held back until that many requests exist, or half a minute after the last one.
GANG_MEMBERS = "bigfleet.lucy.sh/gang-members"
_MAX_DIGITS = 9

_DEADLINE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_APPLY = {"fieldManager": "bigfleet-install", "force": "true"}
_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    ),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}


async def install(client: KubeClient, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
    """Apply all manifests and wait until they are in effect; `client` must be a cluster admin.

    Idempotent. Unavailable at the deadline, ApiError when the API server rejects a manifest.
    """
    waiting_for = "BigFleet's manifests to be accepted"
    try:
        async with asyncio.timeout(deadline_seconds):
            for manifest in _documents():
                await apply(client, manifest)
            waiting_for = "BigFleet's custom resources to be served"
            for path in sorted(CRDS.glob("*.yaml")):
                await retry_until(lambda kind=path.stem: is_served(client, kind))  # type: ignore[misc]
            waiting_for = "the admission policy for joining machines to take effect"
            await _wait_for_policy(client)
            waiting_for = "the admission policy for priorities to take effect"
            await retry_until(lambda: _false_priority_denied(client))
    except TimeoutError:
        raise Unavailable(
            f"{client.server}: timed out after {deadline_seconds:g} s waiting for {waiting_for}; "
            "check the kube-apiserver log"
        ) from None


def _documents() -> Iterator[dict[str, Any]]:
    for path in (*sorted(CRDS.glob("*.yaml")), *sorted(MANIFESTS.glob("*.yaml"), reverse=True)):
        yield from yaml.load_all(path.read_text(), yaml.CSafeLoader)


async def apply(client: KubeClient, manifest: dict[str, Any]) -> None:
    """Apply one object server-side, retrying transient errors."""
    metadata = manifest["metadata"]
    collection = _COLLECTIONS[manifest["kind"]].format(namespace=metadata.get("namespace"))
    path = f"{collection}/{metadata['name']}"

    async def attempt() -> bool:
        await client.patch(path, manifest, APPLY_PATCH, _APPLY)
        return True

    await retry_until(attempt)


async def retry_until(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Repeat `attempt` until it returns True; transient errors are retried, others raised."""
    while True:
        try:
            if await attempt():
                return
        except Exception as error:
            if not is_transient(error):
                raise
        await asyncio.sleep(_POLL_SECONDS)


async def is_served(client: KubeClient, plural: str) -> bool:
    """Whether the API server serves the resource `plural`."""
    try:
        await client.get(f"{GROUP_VERSION}/{plural}", {"limit": "1"})
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


async def _wait_for_policy(client: KubeClient) -> None:
    """Probe by dry runs what a joining machine may and may not do."""
    name = "install-probe"
    accounts = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await client.patch(f"{accounts}/{name}", account, APPLY_PATCH, _APPLY)
    try:
        access = InlineAccess(client.server, client.ca_pem, await request_token(client, name))
        async with KubeClient.with_access(access) as machine:
            await retry_until(lambda: _allowed(machine, name))
            await retry_until(lambda: _denied(machine, f"not-{name}"))
    finally:
        await client.delete(f"{accounts}/{name}")


async def request_token(
    client: KubeClient,
    account: str,
    lifetime_seconds: int = 600,
    namespace: str = NODE_NAMESPACE,
) -> str:
    """A token of a ServiceAccount, by default a joining machine's; the API's minimum lifetime is
    600 s.
    """
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": lifetime_seconds},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return msgspec.json.decode(await client.create(path, body), type=_TokenRequest).status.token


async def _try_node(machine: KubeClient, name: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    query = {**_APPLY, "dryRun": "All"}
    await machine.patch(f"/api/v1/nodes/{name}", node, APPLY_PATCH, query)


async def _allowed(machine: KubeClient, name: str) -> bool:
    try:
        await _try_node(machine, name)
    except ApiError as error:
        if error.status in (401, 403):
            return False
        raise
    return True


async def _denied(machine: KubeClient, name: str) -> bool:
    try:
        await _try_node(machine, name)
    except ApiError as error:
        if error.status == 403 and "ValidatingAdmissionPolicy" in error.message:
            return True
        raise
    return False


async def _false_priority_denied(client: KubeClient) -> bool:
    """Probe by a dry run that a priority other than its PriorityClass's is denied."""
    false = {"resources": {"pods": 1}, "priority": 1, "priorityClassName": "system-node-critical"}
    request = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": "install-probe"},
        "spec": false,
    }
    path = f"{GROUP_VERSION}/namespaces/{SYSTEM_NAMESPACE}/capacityrequests/install-probe"
    try:
        await client.patch(path, request, APPLY_PATCH, {**_APPLY, "dryRun": "All"})
    except ApiError as error:
        if "bigfleet-request-priority" in error.message:
            return "is not that of PriorityClass" in error.message
        raise
    return False


def gang_members(annotations: Mapping[str, str] | None) -> int | None:
    """The gang's size by these annotations; None when absent or invalid."""
    value = (annotations or {}).get(GANG_MEMBERS, "")
    valid = value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS
    return int(value) if valid else None
