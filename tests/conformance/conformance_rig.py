"""Runs the example provider in this process, with or without a fault."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import (
    CapacityProviderStub,
    add_CapacityProviderServicer_to_server,
)
from bigfleet.conformance.fake_cluster import FakeCluster
from bigfleet.conformance.subject import Bounds, Subject
from tests.conformance.faults import ProviderParts

# Several providers and suites share this process, and the machine may be busy.
RELAXED_BOUNDS = Bounds(answer=3.0, state=60.0, drain=60.0)


@asynccontextmanager
async def subject(
    folder: Path, parts: ProviderParts, machines: int = 3, bounds: Bounds = RELAXED_BOUNDS
) -> AsyncIterator[Subject]:
    """The example provider in this process, with or without a fault."""
    cluster, server = FakeCluster(), transport.server()
    store = parts.store(folder / "machines.db")
    for number in range(machines):
        store.save(offer(number), "", b"", 0)
    servicer = parts.provider(store, parts.shop())
    add_CapacityProviderServicer_to_server(servicer, server)
    port = transport.listen(server, "127.0.0.1:0", None)
    await server.start()
    try:
        async with (
            cluster.serving("127.0.0.1", 0),
            transport.channel(f"127.0.0.1:{port}") as channel,
        ):
            yield Subject(CapacityProviderStub(channel), cluster, bounds)
    finally:
        await server.stop(None)
        for task in servicer.tasks:
            task.cancel()
        store.db.close()


def offer(number: int) -> wire.Machine:
    """A SPECULATIVE machine; the one with the highest number is the cheapest."""
    machine = wire.Machine(id=f"m-{number}", instance_type="large", zone="zone-a")
    machine.state, machine.capacity_type = wire.SPECULATIVE, wire.ON_DEMAND
    machine.resources.resources["cpu"], machine.price_per_hour = "4", 1.0 / (1 + number)
    if number == 1:
        machine.taints.add(key="example.com/slow", value="yes", effect="NoSchedule")
    return machine
