"""Queries to a live shard."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.auth.tls_diagnosis import explain_failure
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.api.v1alpha1.shardread_pb2_grpc import ShardReadStub
from bigfleet.commands import shard_text
from bigfleet.commands.json_output import to_json_dict
from bigfleet.commands.pod import PodFacts, read_pod
from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject

CALL_TIMEOUT_SECONDS = 30.0
CHECKPOINT_TIMEOUT_SECONDS = 300.0
_ROLE = "shard"

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """A response as text and as JSON."""

    lines: Sequence[str]
    data: Mapping[str, Any]

    def as_text(self) -> str:
        """The lines."""
        return "\n".join(self.lines)

    def as_json(self) -> str:
        """The complete response under its wire names."""
        return json.dumps(self.data, indent=2)


class ShardReadClient:
    """A client of the shard at `address`; failures become BigFleetErrors with a message."""

    def __init__(self, address: str, stub: Any, identity: Identity | None) -> None:
        self.address, self._stub, self._identity = address, stub, identity

    async def needs(
        self, cluster: str, profile: str, group: str
    ) -> tuple[list[wire.NeedView], Mapping[str, int]]:
        """The needs that match all arguments, where "" matches all; and by cluster, the number of
        needs left out.
        """

        async def read() -> tuple[list[wire.NeedView], Mapping[str, int]]:
            request = wire.InspectNeedsRequest(
                cluster_id=cluster, profile_fingerprint=profile, group=group
            )
            stream = self._stub.InspectNeeds(request, timeout=CALL_TIMEOUT_SECONDS)
            views: list[wire.NeedView] = []
            left_out: dict[str, int] = {}
            async for each in stream:
                if each.HasField("need"):
                    views.append(each.need)
                else:
                    left_out.update(each.header.left_out)
            return views, left_out

        return await self._answer(read)

    async def machine(self, machine_id: str) -> wire.MachineView:
        """One machine; UnknownObject if the shard does not have it."""

        async def read() -> wire.MachineView:
            request = wire.InspectMachineRequest(machine_id=machine_id)
            view: wire.MachineView = await self._stub.InspectMachine(
                request, timeout=CALL_TIMEOUT_SECONDS
            )
            return view

        return await self._answer(read)

    async def ceilings(self, cluster: str) -> list[wire.CeilingView]:
        """The ceilings of one cluster, or of all for ""."""

        async def read() -> list[wire.CeilingView]:
            request = wire.InspectCeilingsRequest(cluster_id=cluster)
            stream = self._stub.InspectCeilings(request, timeout=CALL_TIMEOUT_SECONDS)
            return [each async for each in stream]

        return await self._answer(read)

    async def checkpoint(self) -> bytes:
        """Everything that the last decision was made from."""

        async def read() -> bytes:
            stream = self._stub.Checkpoint(
                wire.CheckpointRequest(), timeout=CHECKPOINT_TIMEOUT_SECONDS
            )
            return b"".join([each.content async for each in stream])

        return await self._answer(read)

    async def _answer(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise UnknownObject(error.details() or "the shard does not know it") from None
            reason = await explain_failure(error, self.address, self._identity, _ROLE)
            raise Unavailable(f"shard at {self.address}: {reason}") from None


Query = Callable[[ShardReadClient], Awaitable[Answer]]


async def ask(
    address: str, query: Callable[[ShardReadClient], Awaitable[T]], identity: Identity | None = None
) -> T:
    """The response of the shard at `address` to `query`.

    Unavailable if it does not respond, UnknownObject if it does not know the object.
    """
    async with transport.channel(address, identity, _ROLE) as channel:
        return await query(ShardReadClient(address, ShardReadStub(channel), identity))


def machine_query(machine_id: str) -> Query:
    """A machine's purpose and history."""

    async def run(shard: ShardReadClient) -> Answer:
        view = await shard.machine(machine_id)
        return Answer(shard_text.machine(view), {"machine": to_json_dict(view)})

    return run


def ceilings_query(cluster: str) -> Query:
    """What ceilings withhold from `cluster`, or from any for ""."""

    async def run(shard: ShardReadClient) -> Answer:
        views = await shard.ceilings(cluster)
        if cluster and not views:
            why = "has no ceiling there or has never reported demand"
            raise UnknownObject(f"the shard at {shard.address}: cluster {cluster} {why}")
        lines = shard_text.ceilings(views, cluster)
        return Answer(lines, {"ceilings": [to_json_dict(view) for view in views]})

    return run


def need_query(name: str) -> Query:
    """What the needs CLUSTER[/PROFILE[/GROUP]] have and lack."""
    cluster, _, rest = name.partition("/")
    profile, _, group = rest.partition("/")

    async def run(shard: ShardReadClient) -> Answer:
        views, left_out = await shard.needs(cluster, profile, group)
        more = shard_text.left_out(cluster, left_out.get(cluster, 0))
        if not views:
            text = f"the shard at {shard.address} has no need {name}"
            raise UnknownObject(". ".join((text, *more)))
        lines = [line for view in views for line in (*shard_text.need(view), "")]
        shown = [to_json_dict(view) for view in views]
        data = {"needs": shown, "left_out": left_out.get(cluster, 0)}
        return Answer([*lines[:-1], *more], data)

    return run


def pod_query(name: str, kubeconfig: Path | None, cluster: str) -> Query:
    """The state of the pod NAMESPACE/NAME and of its need."""
    namespace, slash, short_name = name.partition("/")
    if not (namespace and slash and short_name):
        raise InvalidInput("--pod", name, "is not NAMESPACE/NAME")

    async def run(shard: ShardReadClient) -> Answer:
        facts = await read_pod(kubeconfig, namespace, short_name)
        more = await query_behind_pod(facts, cluster)(shard)
        data = {"pod": facts.as_dict(), **more.data}
        return Answer([*shard_text.pod(facts), *more.lines], data)

    return run


def query_behind_pod(facts: PodFacts, cluster: str) -> Query:
    """The machine that a pod runs on, or its need."""

    async def run(shard: ShardReadClient) -> Answer:
        if facts.node:
            return await _machine_of_pod(shard, facts.node)
        if facts.need is None:
            return Answer([], {})
        cluster_id = cluster or await _cluster_with_need(shard, *facts.need)
        return await need_query("/".join((cluster_id, *facts.need)))(shard)

    return run


async def _machine_of_pod(shard: ShardReadClient, node: str) -> Answer:
    try:
        return await machine_query(node)(shard)
    except UnknownObject:
        return Answer([f"Its Node {node} is not a machine of this shard."], {})


async def _cluster_with_need(shard: ShardReadClient, profile: str, group: str) -> str:
    """The one cluster with such a need, "" if there is none."""
    views, _ = await shard.needs("", profile, group)
    clusters = sorted({view.cluster_id for view in views})
    if len(clusters) > 1:
        raise BigFleetError(
            f"{', '.join(clusters)} all have such a need; choose one with --cluster"
        )
    return "".join(clusters)
