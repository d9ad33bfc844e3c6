"""What a machine needs to join this cluster, and for how long it may.

Each joining machine gets a ServiceAccount named like its Node. Its token can register just that
Node, and dies with the account as soon as the machine has joined or is gone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from bigfleet.api.install import NODE_NAMESPACE, request_token
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.api.v1alpha1.shard_pb2 import BootstrapBlobResponse, BootstrapRequest
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.kube.client import CONFLICT, CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# Kubernetes' admission lets a kubelet give its own Node these, and no others of Kubernetes'.
_KUBELETS = frozenset(
    {
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELETS_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
# What we mark Nodes with ourselves.
_OUR_DOMAIN = "bigfleet.lucy.sh"


def labels_of(requirements: Iterable[NodeSelectorRequirement]) -> Mapping[str, str]:
    """Those with which the requirements hold, where that leaves one value and a kubelet may say it;
    of the others the machine's provider, or the cluster's, has to take care.
    """
    return {
        each.key: each.values[0]
        for each in requirements
        if each.operator == NodeSelectorRequirement.IN
        and len(each.values) == 1
        and _is_to_be_given(each.key)
        and (not each.values[0] or _NAME.fullmatch(each.values[0]))
    }


def _is_to_be_given(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (prefix and not _PREFIX.fullmatch(prefix)):
        return False
    if key in _KUBELETS or _is_in(prefix, _KUBELETS_DOMAINS):
        return True
    return not _is_in(prefix, (*_KUBERNETES_DOMAINS, _OUR_DOMAIN))


def _is_in(prefix: str, domains: Iterable[str]) -> bool:
    return any(prefix == domain or prefix.endswith(f".{domain}") for domain in domains)


_LOG = logging.getLogger(__name__)
TOKEN_SECONDS = 600
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# That of a label's value.
_MAX_NAME_LENGTH = 63
_ACCOUNTS = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts"


class _AccountMetadata(msgspec.Struct, rename="camel"):
    name: str
    creation_timestamp: datetime


class _Account(msgspec.Struct):
    metadata: _AccountMetadata


class _Accounts(msgspec.Struct):
    items: list[_Account]


class Credentials:
    """The ServiceAccounts of machines that are joining."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._revoked: set[str] = set()

    async def issue(self, machine_id: str) -> str:
        """A fresh token for `machine_id`; repeating it is harmless."""
        self._revoked.discard(machine_id)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": machine_id}}
        try:
            await self._client.create(_ACCOUNTS, account)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        return await request_token(self._client, machine_id, TOKEN_SECONDS)

    async def revoke(self, machine_id: str) -> None:
        """Make every token of `machine_id` worthless."""
        if machine_id in self._revoked:
            return
        try:
            await self._client.delete(f"{_ACCOUNTS}/{machine_id}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        self._revoked.add(machine_id)

    async def sweep(self, now: float) -> None:
        """Revoke what an earlier operator left behind: accounts that outlived their tokens."""
        accounts = msgspec.json.decode(await self._client.get(_ACCOUNTS), type=_Accounts)
        for account in accounts.items:
            age_seconds = now - account.metadata.creation_timestamp.timestamp()
            if account.metadata.name != "default" and age_seconds > TOKEN_SECONDS:
                await self.revoke(account.metadata.name)


class Bootstrap:
    """Answers the shard's requests for blobs.

    Machines find the API server at `api_server` and trust `ca_pem`. `prepare_join` is told of a
    machine that is about to join, and returns once what the shard said of it before has been
    carried out here, such as removing its last credential.
    """

    def __init__(
        self,
        client: KubeClient,
        credentials: Credentials,
        api_server: str,
        ca_pem: str,
        prepare_join: Callable[[str], Awaitable[None]],
    ) -> None:
        self._client, self._credentials = client, credentials
        self._api_server, self._ca_pem, self._prepare_join = api_server, ca_pem, prepare_join

    async def answer(self, request: BootstrapRequest) -> BootstrapBlobResponse:
        """The blob, or a sentence why this cluster cannot take the machine now."""
        response = BootstrapBlobResponse(request_id=request.request_id)
        if why := _invalid_node_name(request.machine_id):
            response.error = why
            return response
        try:
            await self._prepare_join(request.machine_id)
            if why := await self._clear_node_name(request.machine_id):
                response.error = why
                _LOG.error("%s", why)
                return response
            labels = labels_of(request.requirements)
            response.user_data = await self._blob(request.machine_id, labels)
            response.ttl_seconds = TOKEN_SECONDS
        except (ApiError, *CONNECTION_ERRORS) as error:
            response.error = f"no credential for {request.machine_id}: {str(error) or repr(error)}"
            _LOG.error("%s", response.error)
        return response

    async def _clear_node_name(self, machine_id: str) -> str:
        """Why the name is taken; "" when it is not.

        A Node that was being reclaimed from here would make the machine join cordoned: it goes. One
        that is not the machine's is somebody else's, who would lose it to the machine.
        """
        try:
            node = msgspec.json.decode(await self._client.get(node_path(machine_id)), type=Node)
            if node.not_owned_reason:
                return f"no credential for {machine_id}: {node.not_owned_reason}"
            if node.reclaim_deadline is not None:
                await self._client.delete(node_path(machine_id))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        return ""

    async def _blob(self, machine_id: str, labels: Mapping[str, str]) -> bytes:
        return msgspec.json.encode(
            {
                "apiServer": self._api_server,
                "caPem": self._ca_pem,
                "token": await self._credentials.issue(machine_id),
                "nodeName": machine_id,
                "labels": {**labels, MACHINE_LABEL: machine_id},
                "taints": [],
                "kubelet": {},
            }
        )


def _invalid_node_name(machine_id: str) -> str:
    """Why no Node can have this name; "" when one can."""
    if not machine_id:
        return "the request names no machine, so no credential can be bound to it"
    if len(machine_id) <= _MAX_NAME_LENGTH and _DNS_NAME.fullmatch(machine_id):
        return ""
    return (
        f"no credential for {machine_id!r}: it becomes a Node's name and label, so it must be a "
        f"DNS-1123 name of at most {_MAX_NAME_LENGTH} characters (a-z, 0-9, '-', '.')"
    )
