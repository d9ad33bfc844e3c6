"""Reads BigFleet's objects in a cluster, and its Nodes and Pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from bigfleet.api.install import GROUP_VERSION, gang_members
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.audit.observations import ClusterView, SeenNode, SeenRequest
from bigfleet.controllers.operator.request_demand import RequestSpec, demand_of
from bigfleet.kube.access import connect
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from bigfleet.kube.types import Named, ObjectMeta
from bigfleet.kube.watch import ListMeta
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.model.group import group_text

_PAGE = "2000"
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"

_Object = TypeVar("_Object")


class _Page(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Request(msgspec.Struct):
    metadata: ObjectMeta
    spec: msgspec.Raw


async def read_cluster(name: str, kubeconfig: Path) -> ClusterView:
    """What the cluster has. InvalidInput if the kubeconfig cannot be used, Unavailable if the API
    server does not answer or rejects a request.
    """
    async with await connect(kubeconfig) as client:
        try:
            return await _read(client)
        except ApiError as error:
            raise Unavailable(f"cluster {name}: {error}") from None
        except CONNECTION_ERRORS as error:
            reason = str(error) or repr(error)
            raise Unavailable(f"cluster {name} does not answer: {reason}") from None
        except msgspec.MsgspecError as error:
            raise Unavailable(f"cluster {name} gives an answer that is no list: {error}") from None


async def _read(client: KubeClient) -> ClusterView:
    """Pods are read after requests: a request that was made since has no Pod in an older list."""
    nodes = await _list(client, "/api/v1/nodes", Named, {"labelSelector": MACHINE_LABEL})
    requests = await _list(client, f"{GROUP_VERSION}/capacityrequests", _Request)
    pods = await _list(client, "/api/v1/pods", Named, {"fieldSelector": _UNFINISHED})
    upcoming = await _list(client, f"{GROUP_VERSION}/upcomingnodes", Named)
    available = await _list(client, f"{GROUP_VERSION}/availablecapacities", Named)
    return ClusterView(
        nodes=[_node(each.metadata) for each in nodes],
        requests=list(_seen_requests(requests)),
        pods={each.metadata.uid for each in pods},
        upcoming={each.metadata.name: each.metadata.created for each in upcoming},
        available={each.metadata.name: each.metadata.created for each in available},
    )


async def _list(
    client: KubeClient, path: str, kind: type[_Object], query: Mapping[str, str] | None = None
) -> Sequence[_Object]:
    decoder, found = msgspec.json.Decoder(kind), list[_Object]()
    asked = {**(query or {}), "limit": _PAGE}
    while True:
        page = msgspec.json.decode(await client.get(path, asked), type=_Page)
        found += map(decoder.decode, page.items or ())
        if not page.metadata.continue_:
            return found
        asked["continue"] = page.metadata.continue_


def _node(metadata: ObjectMeta) -> SeenNode:
    machine = (metadata.labels or {}).get(MACHINE_LABEL, "")
    return SeenNode(metadata.name, machine, metadata.created)


def _seen_requests(requests: Sequence[_Request]) -> Iterator[SeenRequest]:
    """Equal specs of a namespace are parsed once."""
    needs: dict[tuple[str, bytes], tuple[str, str] | None] = {}
    for request in requests:
        metadata = request.metadata
        content = metadata.namespace, bytes(request.spec)
        if content not in needs:
            needs[content] = _need(*content)
        owners = metadata.owner_references or ()
        yield SeenRequest(
            name=f"{metadata.namespace}/{metadata.name}",
            need=None if metadata.deletion_timestamp else needs[content],
            pod=next((owner.uid for owner in owners if owner.kind == "Pod"), ""),
            members=gang_members(metadata.annotations) or 0,
            created=metadata.created,
        )


def _need(namespace: str, spec: bytes) -> tuple[str, str] | None:
    """The need that the operator counts it in; None if it is invalid, and counted in none."""
    try:
        demand = demand_of(namespace, msgspec.json.decode(spec, type=RequestSpec))
    except (InvalidInput, msgspec.ValidationError):
        return None
    return demand.profile.fingerprint, group_text(demand.group)
