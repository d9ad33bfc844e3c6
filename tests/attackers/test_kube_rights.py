"""What each credential may do in a cluster: one table, held against the real API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bigfleet.kube.client import FORBIDDEN, ApiError, KubeClient
from tests.attackers.kube_rig import (
    ACCOUNTS,
    JOINING,
    TENANT,
    USERS,
    Right,
    all_of,
    credentials,
    rights_in,
    subjects,
)
from tests.support.clusters import admin, node, request

pytestmark = pytest.mark.cluster

_OURS = "bigfleet.lucy.sh"
_SPACES = ("kube-system", "bigfleet-system", "bigfleet-nodes", "bigfleet-fedhpa")
# What Kubernetes lets everybody do who has shown who they are.
_EVERYBODY = """
selfsubjectaccessreviews.authorization.k8s.io create
selfsubjectrulesreviews.authorization.k8s.io create
selfsubjectreviews.authentication.k8s.io create
"""
_OPERATOR = {
    "": f"""
capacityrequests.{_OURS} get list watch
capacityrequests/status.{_OURS} patch
availablecapacities.{_OURS} get list create patch delete
upcomingnodes.{_OURS} get list create patch delete
upcomingnodes/status.{_OURS} patch
disruptionreviews.{_OURS} get list watch create delete
poddisruptionbudgets.policy list
nodes get list watch patch delete
events create
pods list
pods/eviction create
daemonsets.apps list watch
""",
    "bigfleet-nodes": """
serviceaccounts list create delete
serviceaccounts/token create
""",
    "bigfleet-system": """
leases.coordination.k8s.io create
leases.coordination.k8s.io:bigfleet-operator get update
""",
}
_POD_CONTROLLER = {
    "": f"""
pods get list watch
pods/status patch
replicasets.apps get
statefulsets.apps get
jobs.batch get
nodes list watch
persistentvolumeclaims list watch
persistentvolumes list watch
storageclasses.storage.k8s.io list watch
events create patch
capacityrequests.{_OURS} list watch create patch delete claim-any-priority
capacityrequests/status.{_OURS} patch
upcomingnodes.{_OURS} list watch
disruptionreviews.{_OURS} list watch
disruptionreviews/status.{_OURS} patch
""",
    "bigfleet-system": """
leases.coordination.k8s.io create
leases.coordination.k8s.io:bigfleet-pod-controller get update
""",
}
_MEMBER = """
horizontalpodautoscalers.autoscaling get list watch create patch delete
deployments.apps get list watch create patch delete
replicasets.apps get list watch create patch delete
deployments/scale.apps patch
replicasets/scale.apps patch
pods list watch
"""
# Where the federation's own objects live; it runs in a pod there, or outside.
_FEDERATION = {
    "": f"""
federatedhorizontalpodautoscalers.{_OURS} get list watch patch
federateddeployments.{_OURS} get list watch patch
federatedreplicasets.{_OURS} get list watch patch
federatedhorizontalpodautoscalers/status.{_OURS} patch
federateddeployments/status.{_OURS} patch
federatedreplicasets/status.{_OURS} patch
federateddeployments/scale.{_OURS} patch
federatedreplicasets/scale.{_OURS} patch
events create
""",
    "bigfleet-fedhpa": """
secrets get list watch
leases.coordination.k8s.io get create update
""",
}
# By credential, then by namespace ("" for objects anywhere): resources, and verbs on them.
RBAC_MANIFEST: Mapping[str, Mapping[str, str]] = {
    "bigfleet-operator": _OPERATOR,
    "bigfleet-system/bigfleet-operator": _OPERATOR,
    "bigfleet-pod-controller": _POD_CONTROLLER,
    "bigfleet-system/bigfleet-pod-controller": _POD_CONTROLLER,
    # Bound to the rights in a member, too.
    "bigfleet-fedhpa": _FEDERATION | {"": _FEDERATION[""].rstrip() + _MEMBER},
    "bigfleet-fedhpa/bigfleet-fedhpa": _FEDERATION,
    "fake-host": {"": "nodes get list watch patch\nnodes/status patch"},
    JOINING: {"": "nodes create patch update\nnodes/status patch update"},
    TENANT: {},
}
# What an attacker would want; with it each verb there is.
_SENSITIVE = (
    *("nodes", "nodes/status", "nodes/proxy", "secrets", "configmaps", "namespaces"),
    *("pods", "pods/eviction", "pods/exec", "pods/binding", "pods/status", "bindings"),
    *("serviceaccounts", "serviceaccounts/token", "leases.coordination.k8s.io"),
    *("certificatesigningrequests.certificates.k8s.io", "deployments.apps"),
    "certificatesigningrequests/approval.certificates.k8s.io",
    *(f"{kind}.{_OURS}" for kind in ("capacityrequests", "capacityrequests/status")),
    *(f"{kind}.{_OURS}" for kind in ("availablecapacities", "upcomingnodes")),
    *(f"{kind}.{_OURS}" for kind in ("disruptionreviews", "disruptionreviews/status")),
    *(f"{kind}.rbac.authorization.k8s.io" for kind in ("clusterroles", "clusterrolebindings")),
    *(f"{kind}.rbac.authorization.k8s.io" for kind in ("roles", "rolebindings")),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
)
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_SENSITIVE_RIGHTS = [
    *(Right(resource, verb) for resource in _SENSITIVE for verb in _VERBS),
    *(Right(who, "impersonate") for who in ("users", "groups", "serviceaccounts")),
    *(
        Right("clusterroles.rbac.authorization.k8s.io", verb, "cluster-admin")
        for verb in ("bind", "escalate")
    ),
    *(
        Right("signers.certificates.k8s.io", verb, "kubernetes.io/kube-apiserver-client-kubelet")
        for verb in ("approve", "sign")
    ),
]


def _rows(text: str) -> Iterator[Right]:
    for line in text.strip().splitlines():
        resource, *verbs = line.split()
        resource, _, name = resource.partition(":")
        yield from (Right(resource, verb, name) for verb in verbs)


def expected(credential: str, namespace: str) -> set[Right]:
    """What the table gives a credential in a namespace."""
    rows = RBAC_MANIFEST[credential]
    return {*_rows(_EVERYBODY), *_rows(rows.get("", "")), *_rows(rows.get(namespace, ""))}


def test_everybody_whom_the_manifests_know_has_rows() -> None:
    """A new account, user or group is a new credential here."""
    known = {JOINING.partition("/")[0]: "system:serviceaccounts:bigfleet-nodes"}
    named = {known.get(c.partition("/")[0], c) for c in (*USERS, *ACCOUNTS) if c != TENANT}
    assert {*subjects()} == named
    assert {*RBAC_MANIFEST} == {*USERS, *ACCOUNTS}


async def test_each_credential_has_the_rights_of_the_table_and_no_others(
    kubeconfig: dict[str, Path],
) -> None:
    """As the API server lists them, in our namespaces and in another; a new rule is a new row."""
    async with credentials(kubeconfig) as clients:
        for credential, client in clients.items():
            for namespace in _SPACES:
                found = await rights_in(client, namespace)
                assert found == expected(credential, namespace), (credential, namespace)
            found = await all_of(client, _SPACES[0], _SENSITIVE_RIGHTS)
            assert found == expected(credential, _SPACES[0]) & {*_SENSITIVE_RIGHTS}, credential
        await _attack(kubeconfig, clients)


def _attacks() -> Iterator[tuple[str, str, str, Any, set[str]]]:
    """Name, method, path, body, and who may: what would hurt the most, tried for real."""
    operators = {"bigfleet-operator", "bigfleet-system/bigfleet-operator"}
    controllers = {"bigfleet-pod-controller", "bigfleet-system/bigfleet-pod-controller"}
    pods, nodes = "/api/v1/namespaces/tenants/pods", "/api/v1/nodes"
    ours = f"/apis/{_OURS}/v1alpha1"
    dry = "?dryRun=All"
    yield "read all secrets", "GET", "/api/v1/secrets", None, set()
    yield "list all pods", "GET", "/api/v1/pods?limit=1", None, {
        *operators, *controllers, "bigfleet-fedhpa"
    }  # fmt: skip
    yield "another's Node", "POST", nodes + dry, node("m-another"), set()
    yield "one's own Node", "POST", nodes + dry, node("m-attacker"), {JOINING}
    yield "take a Node over", "PATCH", f"{nodes}/m-victim{dry}", _labelled("x"), {
        *operators, "fake-host"
    }  # fmt: skip
    yield "remove a Node", "DELETE", f"{nodes}/m-victim{dry}", None, operators
    review = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    yield "evict", "POST", f"{pods}/p/eviction{dry}", review, operators
    yield "run a pod", "POST", pods + dry, _pod(), set()
    yield "ask for machines", "POST", f"{ours}/namespaces/tenants/capacityrequests{dry}", request(
        "greedy"
    ), controllers  # fmt: skip
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = "/api/v1/namespaces/bigfleet-system/serviceaccounts/bigfleet-operator"
    yield "be the operator", "POST", f"{account}/token", token, set()
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "mine"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    yield "rule", "POST", bindings + dry, binding, set()
    yield "lead", "PUT", (
        f"/apis/coordination.k8s.io/v1/namespaces/bigfleet-system/leases/bigfleet-operator{dry}"
    ), {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "bigfleet-operator", "namespace": "bigfleet-system"},
    }, operators  # fmt: skip


def _labelled(value: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"a": value}}}


def _pod() -> dict[str, Any]:
    containers = [{"name": "c", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine"},
        "spec": {"containers": containers},
    }


async def _attack(kubeconfig: dict[str, Path], clients: Mapping[str, KubeClient]) -> None:
    """The same with deeds, which admission sees, too: a joining machine writes its own Node."""
    async with await admin(kubeconfig) as root:
        await root.create("/api/v1/nodes", node("m-victim"))
        try:
            for name, method, path, body, allowed in _attacks():
                passed = {
                    credential
                    for credential, client in clients.items()
                    if await _passes(client, method, path, body)
                }
                assert passed == allowed, name
        finally:
            await root.delete("/api/v1/nodes/m-victim")


async def _passes(client: KubeClient, method: str, path: str, body: Any) -> bool:
    """Whether it is not forbidden; that an object is not there is found out later."""
    try:
        match method:
            case "POST":
                await client.create(path, body)
            case "PATCH":
                await client.patch(path, body)
            case "PUT":
                await client.replace(path, body)
            case "DELETE":
                await client.delete(path)
            case _:
                await client.get(path)
    except ApiError as error:
        return error.status != FORBIDDEN
    return True
