"""Questions to a live shard, and its answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.identity import Identity
from bigfleet.api.refusals import explained
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.api.v1alpha1.shardread_pb2_grpc import ShardReadStub
from bigfleet.commands import ceiling_words, words
from bigfleet.commands.data import as_data
from bigfleet.commands.pod import PodFacts, read_pod
from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject

CALL_SECONDS = 30.0
_ROLE = "shard"

T = TypeVar("T")


@dataclass(frozen=True)
class Said:
    """One answer, for people and for programs."""

    lines: Sequence[str]
    data: Mapping[str, Any]

    def as_text(self) -> str:
        """Sentences, one a line."""
        return "\n".join(self.lines)

    def as_json(self) -> str:
        """All that was said, in the wire's names."""
        return json.dumps(self.data, indent=2)


class Shard:
    """The shard at `address`; every failure becomes a sentence."""

    def __init__(self, address: str, stub: Any, identity: Identity | None) -> None:
        self.address, self._stub, self._identity = address, stub, identity

    async def needs(self, cluster: str, profile: str, group: str) -> list[wire.NeedView]:
        """The needs that meet all restrictions; "" restricts nothing."""

        async def read() -> list[wire.NeedView]:
            request = wire.InspectNeedsRequest(
                cluster_id=cluster, profile_fingerprint=profile, group=group
            )
            stream = self._stub.InspectNeeds(request, timeout=CALL_SECONDS)
            return [each.need async for each in stream if each.HasField("need")]

        return await self._answer(read)

    async def machine(self, machine_id: str) -> wire.MachineView:
        """One machine; UnknownObject when the shard does not have it."""

        async def read() -> wire.MachineView:
            request = wire.InspectMachineRequest(machine_id=machine_id)
            view: wire.MachineView = await self._stub.InspectMachine(request, timeout=CALL_SECONDS)
            return view

        return await self._answer(read)

    async def ceilings(self, cluster: str) -> list[wire.CeilingView]:
        """The ceilings of one cluster, of all for ""."""

        async def read() -> list[wire.CeilingView]:
            request = wire.InspectCeilingsRequest(cluster_id=cluster)
            stream = self._stub.InspectCeilings(request, timeout=CALL_SECONDS)
            return [each async for each in stream]

        return await self._answer(read)

    async def _answer(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise UnknownObject(error.details() or "the shard does not know it") from None
            said = await explained(error, self.address, self._identity, _ROLE)
            raise Unavailable(f"shard at {self.address}: {said}") from None


Question = Callable[[Shard], Awaitable[Said]]


async def ask(address: str, question: Question, identity: Identity | None = None) -> Said:
    """The answer of the shard at `address`, asked as `identity`.

    Unavailable when it gives none, UnknownObject when it does not know what is asked about.
    """
    async with transport.channel(address, identity, _ROLE) as channel:
        return await question(Shard(address, ShardReadStub(channel), identity))


def about_machine(machine_id: str) -> Question:
    """What a machine is for, and what happened to it."""

    async def asking(shard: Shard) -> Said:
        view = await shard.machine(machine_id)
        return Said(words.machine(view), {"machine": as_data(view)})

    return asking


def about_ceilings(cluster: str) -> Question:
    """What ceilings hold back from `cluster`, or from any for ""."""

    async def asking(shard: Shard) -> Said:
        views = await shard.ceilings(cluster)
        if cluster and not views:
            why = "has no ceiling there, or has never said what it needs"
            raise UnknownObject(f"the shard at {shard.address}: cluster {cluster} {why}")
        lines = ceiling_words.ceilings(views, cluster)
        return Said(lines, {"ceilings": [as_data(view) for view in views]})

    return asking


def about_need(name: str) -> Question:
    """What the needs called CLUSTER[/PROFILE[/GROUP]] got and lack."""
    cluster, _, rest = name.partition("/")
    profile, _, group = rest.partition("/")

    async def asking(shard: Shard) -> Said:
        views = await shard.needs(cluster, profile, group)
        if not views:
            raise UnknownObject(f"the shard at {shard.address} knows no need {name}")
        lines = [line for view in views for line in (*words.need(view), "")]
        return Said(lines[:-1], {"needs": [as_data(view) for view in views]})

    return asking


def about_pod(name: str, kubeconfig: Path | None, cluster: str) -> Question:
    """Where the pod NAMESPACE/NAME is, and what became of what it asks for."""
    namespace, slash, short_name = name.partition("/")
    if not (namespace and slash and short_name):
        raise InvalidInput("--pod", name, "is not NAMESPACE/NAME")

    async def asking(shard: Shard) -> Said:
        facts = await read_pod(kubeconfig, namespace, short_name)
        more = await behind(facts, cluster)(shard)
        data = {"pod": facts.plain(), **more.data}
        return Said([*words.pod(facts), *more.lines], data)

    return asking


def behind(facts: PodFacts, cluster: str) -> Question:
    """The machine that a pod runs on, or what became of the need that it belongs to."""

    async def asking(shard: Shard) -> Said:
        if facts.node:
            return await _bound_to(shard, facts.node)
        if facts.need is None:
            return Said([], {})
        home = cluster or await _home(shard, *facts.need)
        return await about_need("/".join((home, *facts.need)))(shard)

    return asking


async def _bound_to(shard: Shard, node: str) -> Said:
    try:
        return await about_machine(node)(shard)
    except UnknownObject:
        return Said([f"Its node {node} is no machine of this shard."], {})


async def _home(shard: Shard, profile: str, group: str) -> str:
    """The one cluster with such a need, "" when there is none."""
    views = await shard.needs("", profile, group)
    clusters = sorted({view.cluster_id for view in views})
    if len(clusters) > 1:
        raise BigFleetError(f"{', '.join(clusters)} all have such a need; say which with --cluster")
    return "".join(clusters)
