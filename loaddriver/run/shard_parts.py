"""How evenly a fleet's machines are divided among its shards, from the coordinator's table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from loaddriver.run.bigfleet_roles import LISTEN
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.base import Endpoint

# A replica that does not lead answers at once.
_RPC_TIMEOUT_SECONDS = 5.0


async def unevenness(
    coordinators: Sequence[Endpoint],
    machines: Iterable[InventoryMachine],
    shards: Collection[str],
) -> float | None:
    """How far any shard's part of any kind of machine is from an even one, as a share of that; None
    if no coordinator answers.
    """
    for coordinator in coordinators:
        owners = await _owners(coordinator)
        if owners is not None:
            return most_uneven(machines, owners, shards)
    return None


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


async def _owners(coordinator: Endpoint) -> Mapping[str, str] | None:
    identity = Identity(coordinator.readonly_identity) if coordinator.readonly_identity else None
    address = coordinator.addresses[LISTEN]
    try:
        async with transport.channel(address, identity, "coordinator") as channel:
            stub: Any = CoordinatorStub(channel)
            request = wire.ListDomainAssignmentsRequest()
            answer = await stub.ListDomainAssignments(request, timeout=_RPC_TIMEOUT_SECONDS)
    except grpc.aio.AioRpcError:
        return None
    return {each.topology_value: each.shard_id for each in answer.assignments}
