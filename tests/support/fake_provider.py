"""A provider of many machines over gRPC whose operations complete at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import (
    CapacityProviderServicer,
    add_CapacityProviderServicer_to_server,
)

Context = grpc.aio.ServicerContext[Any, Any]
TYPES = 8
MACHINES_PER_RACK = 48


def cluster_of(number: int, clusters: int) -> str:
    """The cluster of a machine."""
    return f"cluster-{number % clusters:04d}"


def machines(
    count: int, clusters: int, metadata: dict[int, dict[str, str]]
) -> Iterator[wire.Machine]:
    """`count` machines, those with metadata at work, the others idle."""
    for number in range(count):
        kind = number % TYPES
        amounts = {"cpu": str(2 ** (kind % 4 + 1)), "memory": f"{2 ** (kind % 4 + 3)}Gi"}
        resources = wire.Resources(resources={**amounts, "pods": "110"})
        known = metadata.get(number)
        yield wire.Machine(
            id=f"m-{number:06d}",
            state=wire.CONFIGURED if known else wire.IDLE,
            host=wire.HostRef(provider="stand-in", ref=f"h-{number}"),
            instance_type=f"t{kind}.large",
            zone=f"zone-{number // 20000}",
            capacity_type=wire.ON_DEMAND,
            price_per_hour=0.1 * (kind + 1),
            resources=resources,
            allocatable=resources,
            labels={
                "topology.bigfleet/rack": f"rack-{number // MACHINES_PER_RACK}",
                "kubernetes.io/hostname": f"m-{number:06d}",
            },
            cluster=cluster_of(number, clusters) if known else "",
            shard_metadata=known,
        )


class FakeProvider(CapacityProviderServicer):
    """Each order completes when it is answered. `orders` are those that were executed."""

    def __init__(self, known: Iterator[wire.Machine]) -> None:
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
        """IDLE -> SPECULATIVE."""
        machine = self.machines[request.machine_id]
        machine.state = wire.SPECULATIVE
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
            since = int(request.since_revision)
            changed = [self.machines[i] for i, at in self._changed.items() if at > since]
            return wire.MachineList(machines=changed, revision=str(self._revision).encode())
        first, revision = (int(part) for part in (request.page_token or b"0:0").split(b":"))
        revision = revision or self._revision
        end = first + (request.max_results or len(self.machines))
        return wire.MachineList(
            machines=itertools.islice(self.machines.values(), first, end),
            revision=b"%d" % revision,
            next_page_token=b"%d:%d" % (end, revision) if end < len(self.machines) else b"",
        )

    def change(self, machine: wire.Machine) -> None:
        """Note that the machine has changed."""
        self._revision = next(self._revisions)
        self._changed[machine.id] = self._revision

    def _done(self, order: str, machine: wire.Machine) -> wire.TransitionAck:
        self.change(machine)
        self.orders.append((order, machine.id))
        return wire.TransitionAck(operation_id=f"{order}-{self._revision}", machine=machine)


async def serve(fake_provider: FakeProvider, port: int = 0) -> tuple[grpc.aio.Server, str]:
    """The server and its address."""
    server = transport.server()
    add_CapacityProviderServicer_to_server(fake_provider, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, f"127.0.0.1:{bound}"
