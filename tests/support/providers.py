"""A provider on loopback with a small inventory, in this process or in one of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from bigfleet.adapters.host.instant import InstantHost
from bigfleet.api import transport
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.conformance.cluster import ExternalCluster
from bigfleet.conformance.subject import Bounds, Subject
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.ports.host import Boot, Host, HostFailure
from bigfleet.services.provider.config import Latencies, ProviderConfig
from bigfleet.services.provider.role import serving

LINE: dict[str, Any] = {
    "id": "m-0",
    "state": "SPECULATIVE",
    "instance_type": "m6i.large",
    "zone": "zone-a",
    "rack": "zone-a-r1",
    "capacity_type": "ON_DEMAND",
    "price_per_hour": 0.25,
    "interruption_probability": 0.0,
    "resources": {"cpu": "40", "memory": "50Gi", "pods": "110"},
    "labels": {"example.com/team": "blue"},
}


@dataclass
class SlowHost:
    """A host whose Nodes become ready, and go, when a test says so."""

    ready: asyncio.Event = field(default_factory=asyncio.Event)
    node_gone: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: str = ""
    sold_out: bool = False
    powered_off: list[str] = field(default_factory=list)
    booted: list[tuple[str, bytes]] = field(default_factory=list)

    async def acquire(self, machine: Machine) -> None:
        """At once, unless it is `sold_out`."""
        if self.sold_out:
            raise HostFailure(f"no {machine.instance_type} left")

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        """Ready on `ready`; fails with `trouble`, or when that takes too long."""
        self.booted.append((boot.operation_id, boot.blob))
        if self.trouble:
            raise HostFailure(self.trouble)
        try:
            await asyncio.wait_for(self.ready.wait(), timeout_seconds)
        except TimeoutError:
            raise HostFailure(f"not Ready within {timeout_seconds:g} s") from None

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """On `node_gone`."""
        if self.trouble:
            raise HostFailure(f"{machine.id}: {self.trouble}")
        await self.node_gone.wait()

    async def power_off(self, machine: Machine) -> None:
        """Noted."""
        self.powered_off.append(machine.id)

    async def close(self) -> None:
        """Nothing is open."""


def machine(name: str, **changes: Any) -> Machine:
    """A machine as an inventory could hold it."""
    facts: dict[str, Any] = {
        "id": name,
        "state": MachineState.SPECULATIVE,
        "instance_type": "m6i.large",
        "zone": "zone-a",
        "capacity_type": CapacityType.ON_DEMAND,
        "price_per_hour": 0.25,
        "interruption_probability": 0.0,
        "resources": {"cpu": 40_000},
        "allocatable": {"cpu": 40_000},
        "labels": {"example.com/team": "blue"},
    }
    return Machine(**facts | changes)


def write_inventory(path: Path, *changes: dict[str, Any]) -> Path:
    """A JSON-lines file with LINE, changed so, once per argument."""
    path.write_text("".join(json.dumps(LINE | change) + "\n" for change in changes))
    return path


def settings(folder: Path, **changes: Any) -> ProviderConfig:
    """Settings for a provider in `folder` with four machines, all transitions at once."""
    inventory = folder / "inventory.jsonl"
    if not inventory.exists():
        slow = [{"key": "example.com/slow", "effect": "NoSchedule"}]
        speculative = [{"id": f"m-{n}"} for n in range(2)]
        write_inventory(
            inventory,
            *speculative,
            {"id": "m-2", "taints": slow},
            {"id": "b-0", "capacity_type": "BARE_METAL", "state": "IDLE"},
        )
    values: dict[str, Any] = {
        "listen_port": 0,
        "observe_port": 0,
        "state_directory": folder / "state",
        "inventory_file": inventory,
        "host_kubeconfigs": None,
        "latencies": Latencies(),
    }
    return ProviderConfig(**values | changes)


@asynccontextmanager
async def provider(
    given: ProviderConfig, host: Host | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a provider that serves from here."""
    async with (
        serving(given, host or InstantHost()) as role,
        transport.channel(f"127.0.0.1:{role.port}") as channel,
    ):
        yield channel


def subject_of(channel: grpc.aio.Channel) -> Subject:
    """The provider behind `channel`; its machines' hosts take any blob."""
    cluster = ExternalCluster("conformance", b"{machine}")
    patient = Bounds(answer=30.0, state=60.0, drain=60.0)
    return Subject(CapacityProviderStub(channel), cluster, patient)


_RUNNER = """
import asyncio, pathlib, sys
from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig
from bigfleet.services.provider.role import run
folder, port, slow = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
latency = Latency(slow, slow)
asyncio.run(run(ProviderConfig(
    listen_port=port, observe_port=0, state_directory=folder / "state",
    inventory_file=folder / "inventory.jsonl", host_kubeconfigs=None,
    latencies=Latencies(latency, latency, latency, latency),
), asyncio.Event()))
"""


async def start_process(
    folder: Path, port: int, latency_seconds: float
) -> asyncio.subprocess.Process:
    """A provider in a process of its own; every transition takes `latency_seconds`."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _RUNNER, str(folder), str(port), str(latency_seconds)
    )
