"""Clients of the real API server with each credential that our manifests know, and others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.api.install import MANIFESTS
from bigfleet.api.install_fedhpa import KINDS, install_fedhpa, install_member
from bigfleet.kube.client import InlineAccess, KubeClient
from tests.support.clusters import admin

_REVIEWS = "/apis/authorization.k8s.io/v1"
# Users, each with a kubeconfig of its own, and ServiceAccounts as namespace/name.
USERS = ("bigfleet-operator", "bigfleet-pod-controller", "bigfleet-fedhpa", "fake-host")
# One whose Node is to join, and one that somebody in the cluster has made.
JOINING, TENANT = "bigfleet-nodes/m-attacker", "tenants/anybody"
ACCOUNTS = (
    "bigfleet-system/bigfleet-operator",
    "bigfleet-system/bigfleet-pod-controller",
    "bigfleet-fedhpa/bigfleet-fedhpa",
    JOINING,
    TENANT,
)


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource, such as `pods/eviction` or `leases.coordination.k8s.io`; `name` is
    the only object that it is for, "" where it is for all.
    """

    resource: str
    verb: str
    name: str = ""


def subjects() -> Iterator[str]:
    """Whom the manifests give any rights: users by name, accounts as namespace/name, groups."""
    for path in (*MANIFESTS.glob("*.yaml"), *(KINDS / "rbac").glob("*.yaml")):
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            for subject in document.get("subjects", ()):
                own = f"{subject['namespace']}/" if "namespace" in subject else ""
                yield f"{own}{subject['name']}"


@asynccontextmanager
async def credentials(kubeconfig: Mapping[str, Path]) -> AsyncIterator[Mapping[str, KubeClient]]:
    """A client for each, in a cluster that also has the federation's kinds and rights."""
    async with AsyncExitStack() as closing:
        root = await closing.enter_async_context(await admin(dict(kubeconfig)))
        await install_fedhpa(root)
        await install_member(root)
        await _make_account(root, closing, JOINING, namespace=False)
        await _make_account(root, closing, TENANT, namespace=True)
        found = {
            user: await closing.enter_async_context(
                await KubeClient.from_kubeconfig(kubeconfig[user])
            )
            for user in USERS
        }
        for account in ACCOUNTS:
            access = InlineAccess(root.server, root.ca_pem, await _token(root, account))
            client = KubeClient.with_access(access)
            found[account] = await closing.enter_async_context(client)
        yield found


async def _make_account(
    root: KubeClient, closing: AsyncExitStack, account: str, *, namespace: bool
) -> None:
    space, name = account.split("/")
    if namespace:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        await root.create("/api/v1/namespaces", body)
        closing.push_async_callback(root.delete, f"/api/v1/namespaces/{space}")
    path = f"/api/v1/namespaces/{space}/serviceaccounts"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await root.create(path, body)
    closing.push_async_callback(root.delete, f"{path}/{name}")


async def _token(root: KubeClient, account: str) -> str:
    space, name = account.split("/")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{space}/serviceaccounts/{name}/token"
    token: str = msgspec.json.decode(await root.create(path, request))["status"]["token"]
    return token


async def rights_in(client: KubeClient, namespace: str) -> set[Right]:
    """All that the API server lets the client do with objects in `namespace`, and with those that
    are in none.
    """
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = await client.create(f"{_REVIEWS}/selfsubjectrulesreviews", body)
    status: dict[str, Any] = msgspec.json.decode(answer)["status"]
    return {
        Right(f"{resource}.{group}" if group else resource, verb, name)
        for rule in status["resourceRules"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


async def may(client: KubeClient, namespace: str, right: Right) -> bool:
    """Whether the API server would let the client do it there."""
    whole, _, group = right.resource.partition(".")
    resource, _, subresource = whole.partition("/")
    asked = {
        "namespace": namespace,
        "verb": right.verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = await client.create(f"{_REVIEWS}/selfsubjectaccessreviews", body)
    return bool(msgspec.json.decode(answer)["status"]["allowed"])


async def all_of(client: KubeClient, namespace: str, rights: list[Right]) -> set[Right]:
    """Those of `rights` that it has there."""
    answers = await asyncio.gather(*(may(client, namespace, right) for right in rights))
    return {right for right, allowed in zip(rights, answers, strict=True) if allowed}
