"""One pod's state in its cluster: its Node and its CapacityRequest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.api.install import GANG_MEMBERS, GROUP_VERSION
from bigfleet.api.wellknown import CAPACITY_SHORT, POD_UID_LABEL
from bigfleet.controllers.operator.request_demand import RequestSpec, demand_of
from bigfleet.kube.access import connect
from bigfleet.kube.client import CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.model.errors import InvalidInput, Unavailable, UnknownObject
from bigfleet.model.group import group_text


class _Metadata(msgspec.Struct):
    uid: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Request(msgspec.Struct):
    metadata: _Metadata
    spec: RequestSpec
    status: _Status = msgspec.field(default_factory=_Status)


class _Requests(msgspec.Struct):
    items: list[_Request]


@dataclass(frozen=True)
class PodFacts:
    """`node` is "" until the pod is bound. `need` is its need's (profile fingerprint, group), None
    without a valid CapacityRequest; `problem` then says why. `acknowledged`: the shard has received
    the request. `gang_members` is the size of its gang, "" if unspecified. `short` is why machines
    are short for it, "" if they are not known to be. `additional` machines were requested because
    the pod could not be scheduled although none were short.
    """

    name: str
    phase: str
    node: str
    need: tuple[str, str] | None
    acknowledged: bool
    problem: str
    gang_members: str = ""
    short: str = ""
    additional: int = 0

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


async def read_pod(kubeconfig: Path | None, namespace: str, name: str) -> PodFacts:
    """The pod as its cluster shows it.

    UnknownObject if there is no such pod, Unavailable if the cluster rejects the request or does
    not respond, InvalidInput without access to it.
    """
    async with await connect(kubeconfig) as client:
        try:
            return await _read(client, namespace, name)
        except ApiError as error:
            if error.status == NOT_FOUND:
                raise UnknownObject(f"there is no pod {namespace}/{name}") from None
            raise Unavailable(str(error)) from None
        except CONNECTION_ERRORS as error:
            raise Unavailable(f"the pod's cluster does not answer: {error!r}") from None


async def _read(client: KubeClient, namespace: str, name: str) -> PodFacts:
    raw = await client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    pod = msgspec.json.decode(raw, type=_Pod)
    path = f"{GROUP_VERSION}/namespaces/{namespace}/capacityrequests"
    selector = {"labelSelector": f"{POD_UID_LABEL}={pod.metadata.uid}"}
    asked = msgspec.json.decode(await client.get(path, selector), type=_Requests).items
    found = [request for request in asked if not request.spec.additional]
    need, problem = _need(namespace, found)
    return PodFacts(
        name=f"{namespace}/{name}",
        phase=pod.status.phase,
        node=pod.spec.node_name,
        need=need,
        acknowledged=any(request.status.phase == "Acknowledged" for request in found),
        problem=problem,
        gang_members=found[0].metadata.annotations.get(GANG_MEMBERS, "") if found else "",
        short=next((_short(request) for request in found), ""),
        additional=len(asked) - len(found),
    )


def _short(request: _Request) -> str:
    short_conditions = (c for c in request.status.conditions or () if c.type == CAPACITY_SHORT)
    return next((f"{c.reason}: {c.message}" for c in short_conditions if c.status == "True"), "")


def _need(namespace: str, found: list[_Request]) -> tuple[tuple[str, str] | None, str]:
    if not found:
        return (
            None,
            "it has no CapacityRequest; check that the pod controller is running",
        )
    try:
        demand = demand_of(namespace, found[0].spec)
    except InvalidInput as error:
        return None, f"its CapacityRequest is invalid and ignored: {error}"
    return (demand.profile.fingerprint, group_text(demand.group)), ""
