"""Bootstrap blobs, with which machines join this cluster, and their credentials.

Each joining machine gets a ServiceAccount named like its Node. Its token can register only that
Node, and is revoked with the account once the machine has joined or is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from bigfleet.api.install import NODE_NAMESPACE, request_token
from bigfleet.api.node_labels import is_in_domain, is_label_value, may_be_set_by_kubelet
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.api.v1alpha1.shard_pb2 import BootstrapBlobResponse, BootstrapRequest
from bigfleet.api.wellknown import MACHINE_LABEL, OUR_DOMAIN
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.kube.client import CONFLICT, CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import Named, ObjectList
from bigfleet.model.machine import VALID_ID, is_valid_id

_LOG = logging.getLogger(__name__)
TOKEN_SECONDS = 600
_ACCOUNTS = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts"


def labels_of(requirements: Iterable[NodeSelectorRequirement]) -> Mapping[str, str]:
    """The labels that meet the requirements, where only one value does and the kubelet may set it;
    the others must come from the machine's provider or the cluster's cloud provider.
    """
    return {
        each.key: each.values[0]
        for each in requirements
        if each.operator == NodeSelectorRequirement.IN
        and len(each.values) == 1
        and may_be_set_by_kubelet(each.key)
        and not is_in_domain(each.key, OUR_DOMAIN)
        and is_label_value(each.values[0])
    }


class Credentials:
    """The ServiceAccounts of machines that are joining."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._revoked: set[str] = set()

    async def issue(self, machine_id: str) -> str:
        """A new token for `machine_id`; idempotent."""
        self._revoked.discard(machine_id)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": machine_id}}
        try:
            await self._client.create(_ACCOUNTS, account)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        return await request_token(self._client, machine_id, TOKEN_SECONDS)

    async def revoke(self, machine_id: str) -> None:
        """Revoke all tokens of `machine_id`."""
        if machine_id in self._revoked:
            return
        try:
            await self._client.delete(f"{_ACCOUNTS}/{machine_id}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        self._revoked.add(machine_id)

    async def sweep(self, now: float) -> None:
        """Revoke expired accounts, which a previous operator left behind."""
        accounts = msgspec.json.decode(await self._client.get(_ACCOUNTS), type=ObjectList[Named])
        for account in accounts.items:
            age_seconds = now - account.metadata.created
            if account.metadata.name != "default" and age_seconds > TOKEN_SECONDS:
                await self.revoke(account.metadata.name)


class Bootstrap:
    """Answers the shard's requests for bootstrap blobs.

    Machines reach the API server at `api_server` and trust `ca_pem`. `prepare_join` is awaited for
    each joining machine; it returns once earlier updates about the machine are done, such as
    revoking its previous credential.
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
        """The blob, or an error why the machine cannot join now."""
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
        """Why the Node's name is in use by another machine; "" when it is free.

        A Node that was being reclaimed is deleted: with it the machine would join cordoned.
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
    """Why this name is invalid for a Node; "" when it is valid."""
    if not machine_id:
        return "the request has no machine_id"
    if is_valid_id(machine_id):
        return ""
    return f"no credential for {machine_id!r}, which becomes a Node's name: it must be {VALID_ID}"
