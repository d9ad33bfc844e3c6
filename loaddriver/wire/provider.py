"""A provider over gRPC whose operations complete at once, and its machines."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import msgspec

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import (
    CapacityProviderServicer,
    add_CapacityProviderServicer_to_server,
)
from loaddriver.plan.make import make_plan
from loaddriver.profile.loading import Profile
from loaddriver.sizing.demand import PlanDemand, demand
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory, supply_counts
from loaddriver.wire.settings import WireProfile

Context = grpc.aio.ServicerContext[Any, Any]
NAME = "wire"
_BACK_AFTER_SECONDS = 60.0
_LOSS_SECONDS = 5.0  # all machines are looked at each time


class InstantProvider(CapacityProviderServicer):
    """Each order completes when it is answered. `orders` are those that were executed."""

    def __init__(self, known: Iterable[wire.Machine]) -> None:
        self.machines = {machine.id: machine for machine in known}
        self.orders: list[tuple[str, str]] = []
        self._changed: dict[str, int] = {}
        self._revisions = itertools.count(2)
        self._revision = 1

    async def Configure(self, request: wire.ConfigureRequest, _: Context) -> wire.TransitionAck:
        """IDLE -> CONFIGURED."""
        machine = self.machines[request.machine_id]
        machine.state, machine.cluster = wire.CONFIGURED, request.cluster_id
        machine.shard_metadata.clear()
        machine.shard_metadata.update(request.shard_metadata)
        return self._done("configure", machine)

    async def Drain(self, request: wire.DrainRequest, _: Context) -> wire.TransitionAck:
        """CONFIGURED -> IDLE."""
        machine = self.machines[request.machine_id]
        machine.state, machine.cluster = wire.IDLE, ""
        machine.shard_metadata.clear()
        return self._done("drain", machine)

    async def Delete(self, request: wire.DeleteRequest, _: Context) -> wire.TransitionAck:
        """IDLE or FAILED -> SPECULATIVE."""
        machine = self.machines[request.machine_id]
        machine.state, machine.cluster = wire.SPECULATIVE, ""
        machine.host.ref = ""
        return self._done("delete", machine)

    async def Create(self, request: wire.CreateRequest, _: Context) -> wire.TransitionAck:
        """SPECULATIVE -> IDLE."""
        machine = self.machines[request.machine_id]
        machine.state = wire.IDLE
        machine.host.ref = f"host of {machine.id}"
        machine.shard_metadata.update(request.shard_metadata)
        return self._done("create", machine)

    async def ClaimEpoch(
        self, request: wire.ClaimEpochRequest, _: Context
    ) -> wire.ClaimEpochResponse:
        """It refuses no order, so any will do."""
        return wire.ClaimEpochResponse(shard_epoch=request.at_least)

    async def Get(self, request: wire.MachineRef, _: Context) -> wire.Machine:
        """One machine."""
        return self.machines[request.id]

    async def List(self, request: wire.ListFilter, _: Context) -> wire.MachineList:
        """Everything, or what changed since: in pages, whose token is the next machine's number and
        the revision of the first page.
        """
        if request.since_revision:
            return self._changed_since(int(request.since_revision))
        first, revision = (int(part) for part in (request.page_token or b"0:0").split(b":"))
        revision = revision or self._revision
        end = first + (request.max_results or len(self.machines))
        return wire.MachineList(
            machines=itertools.islice(self.machines.values(), first, end),
            revision=b"%d" % revision,
            next_page_token=b"%d:%d" % (end, revision) if end < len(self.machines) else b"",
        )

    def _changed_since(self, revision: int) -> wire.MachineList:
        changed: list[wire.Machine] = []
        for name, at in reversed(self._changed.items()):  # the newest are at the end
            if at <= revision:
                break
            changed.append(self.machines[name])
        return wire.MachineList(machines=reversed(changed), revision=str(self._revision).encode())

    def change(self, machine: wire.Machine) -> None:
        """Note that the machine has changed."""
        self._revision = next(self._revisions)
        self._changed.pop(machine.id, None)
        self._changed[machine.id] = self._revision

    def _done(self, order: str, machine: wire.Machine) -> wire.TransitionAck:
        self.change(machine)
        self.orders.append((order, machine.id))
        return wire.TransitionAck(operation_id=f"{order}-{self._revision}", machine=machine)


async def serve(
    provider: InstantProvider, address: str = "127.0.0.1:0", identity: Identity | None = None
) -> tuple[grpc.aio.Server, str]:
    """The server and its address; without an identity for anybody, in plaintext."""
    server = transport.server(identity)
    add_CapacityProviderServicer_to_server(provider, server)
    port = transport.listen(server, address, identity)
    await server.start()
    return server, f"{address.rpartition(':')[0]}:{port}"


def inventory(profile: WireProfile) -> tuple[InventoryMachine, ...]:
    """All machines of the fleet: enough for the demand of all clusters."""
    return fleet_inventory(_of_all_clusters(profile), _needed(profile))


def machine_count(profile: WireProfile) -> int:
    """How many machines the fleet has."""
    settings = _of_all_clusters(profile).settings
    return sum(sum(supply_counts(settings, size).values()) for size in _needed(profile).sizes)


def _of_all_clusters(profile: WireProfile) -> Profile:
    distinct = profile.distinct
    settings = msgspec.structs.replace(distinct.settings, clusters=profile.settings.clusters)
    return replace(distinct, settings=settings)


def _needed(profile: WireProfile) -> PlanDemand:
    """The demand of the distinct clusters, as often as clusters have it."""
    needed = demand(make_plan(profile.distinct), profile.distinct.catalog)
    return PlanDemand(
        tuple(
            replace(
                size,
                pods=size.pods * profile.copies,
                by_cluster=tuple(each for each in size.by_cluster for _ in range(profile.copies)),
            )
            for size in needed.sizes
        )
    )


def machine_of(original: InventoryMachine) -> wire.Machine:
    """The machine on the wire, not in service."""
    amounts = wire.Resources(resources=original.resources)
    is_idle = original.state == "IDLE"
    return wire.Machine(
        id=original.id,
        state=wire.IDLE if is_idle else wire.SPECULATIVE,
        host=wire.HostRef(provider=NAME, ref=f"host of {original.id}" if is_idle else ""),
        instance_type=original.instance_type,
        zone=original.zone,
        capacity_type=wire.CapacityType.Value(original.capacity_type),
        price_per_hour=original.price_per_hour,
        interruption_probability=original.interruption_probability,
        resources=amounts,
        allocatable=amounts,
        labels={**original.labels, "kubernetes.io/hostname": original.id},
    )


async def lose_machines(
    provider: InstantProvider, share_a_minute: float, seed: int, begin: asyncio.Event
) -> None:
    """From `begin` on let this share of the machines in service fail a minute, and come back a
    minute later, until cancelled.
    """
    await begin.wait()
    chance, choice = share_a_minute * _LOSS_SECONDS / 60, random.Random(seed)
    gone: deque[tuple[float, wire.Machine]] = deque()
    clock = asyncio.get_running_loop().time
    serving = wire.CONFIGURED
    while True:
        await asyncio.sleep(_LOSS_SECONDS)
        while gone and gone[0][0] <= clock():
            _, machine = gone.popleft()
            if machine.state == wire.FAILED:  # not deleted meanwhile
                machine.state, machine.cluster = wire.IDLE, ""
                machine.shard_metadata.clear()
                provider.change(machine)
        in_service = [each for each in provider.machines.values() if each.state == serving]
        expected = len(in_service) * chance
        for machine in choice.sample(in_service, int(expected + choice.random())):
            machine.state = wire.FAILED
            machine.last_error = "lost"
            provider.change(machine)
            gone.append((clock() + _BACK_AFTER_SECONDS, machine))
