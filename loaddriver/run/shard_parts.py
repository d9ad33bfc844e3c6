"""How evenly a fleet is divided among its shards, and their removal, by the coordinator."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from loaddriver.run.bigfleet_roles import LISTEN
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.base import Endpoint, SubstrateError

# A replica that does not lead answers at once.
_RPC_TIMEOUT_SECONDS = 5.0
_LISTING_SECONDS = 0.5


async def unevenness(
    coordinators: Sequence[Endpoint], machines: Iterable[InventoryMachine]
) -> float | None:
    """How far the part of any shard that stays is from an even one, of any kind of machine, as a
    share of that; None if no coordinator answers.
    """
    readonly = next((each.readonly_identity for each in coordinators), None)
    identity = Identity(readonly) if readonly else None
    assigned = await _ask(
        coordinators, identity, "ListDomainAssignments", wire.ListDomainAssignmentsRequest()
    )
    found = await _ask(coordinators, identity, "ListShards", wire.ListShardsRequest())
    if assigned is None or found is None:
        return None
    owners = {each.topology_value: each.shard_id for each in assigned.assignments}
    staying = {each.shard_id for each in found.shards if not each.leaving}
    return most_uneven(machines, owners, staying)


def most_uneven(
    machines: Iterable[InventoryMachine], owners: Mapping[str, str], shards: Collection[str]
) -> float:
    """The same for racks with these `owners`. A rack is of the kind of most of its machines."""
    racks: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for machine in machines:
        racks[machine.rack][machine.instance_type] += 1
    parts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for rack, types in racks.items():
        kind = min(types, key=lambda name: (-types[name], name))
        parts[kind][owners.get(rack, "")] += types.total()
    worst = 0.0
    for part in parts.values():
        even = part.total() / len(shards)
        worst = max(worst, *(abs(part[shard] - even) / even for shard in shards))
    return worst


async def remove_shard(coordinators: Sequence[Endpoint], identity: Identity, shard: str) -> None:
    """Have the coordinator remove a live shard, and wait until it has released everything. Raises
    SubstrateError if none answers or it is refused.
    """
    request = wire.RemoveShardRequest(shard_id=shard)
    if await _ask(coordinators, identity, "RemoveShard", request) is None:
        raise SubstrateError(f"{shard} cannot be removed: no coordinator does it")
    while True:
        found = await _ask(coordinators, identity, "ListShards", wire.ListShardsRequest())
        if found is not None and shard not in {each.shard_id for each in found.shards}:
            return
        await asyncio.sleep(_LISTING_SECONDS)


async def _ask(
    coordinators: Sequence[Endpoint], identity: Identity | None, method: str, request: Any
) -> Any:
    """The answer of the first replica that gives one: of the leader; None if there is none."""
    for coordinator in coordinators:
        address = coordinator.addresses[LISTEN]
        with suppress(grpc.aio.AioRpcError):
            async with transport.channel(address, identity, "coordinator") as channel:
                stub = CoordinatorStub(channel)
                return await getattr(stub, method)(request, timeout=_RPC_TIMEOUT_SECONDS)
    return None
