"""A shard as a separate process, a healthy cluster that measures it, and misbehaving ones."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from bigfleet.api import transport
from bigfleet.api.machine_codec import machine_to_wire
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from loaddriver.wire.provider import InstantProvider, serve
from tests.support.shard_process import ShardProcess, decides, shard_process
from tests.support.shard_rig import FakeOperator, machine, need

_BAD_OPERATOR = Path(__file__).with_name("bad_operator.py")
_MACHINES_OF_A_ZONE = 200
# A busy machine may hold anybody up for so long.
_HICCUP_SECONDS = 0.5


@dataclass
class Healthy:
    """A cluster with a correct operator, which grows by one machine at a time."""

    operator: FakeOperator
    needs: list[Need] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def grows(self) -> float:
        """Seconds from its roll-up until it hears that one machine more is CONFIGURED."""
        self.needs.append(need(group=f"h{next(self.numbers)}"))
        began = time.monotonic()
        await self.operator.roll_up(*self.needs)
        received = await self.operator.receives(
            lambda m: (
                m.node_state_update.state == int(MachineState.CONFIGURED)
                and m.node_state_update.machine_id not in self.joined
            )
        )
        self.joined.append(received.node_state_update.machine_id)
        return time.monotonic() - began

    async def typical_seconds(self, times: int = 9) -> float:
        """The median of so many."""
        return statistics.median([await self.grows() for _ in range(times)])


@dataclass(frozen=True)
class Neighbourhood:
    """Everything that runs. Machines in zone a are those that the healthy cluster asks for."""

    shard: ShardProcess
    provider: InstantProvider
    healthy: Healthy
    channel: grpc.aio.Channel

    async def operator(self, cluster: str, *, helpful: bool = True) -> FakeOperator:
        """An operator whose Hello has been acknowledged."""
        operator = FakeOperator(ShardStub(self.channel).Session(None), cluster, helpful=helpful)
        await operator.say(hello=shard_pb2.Hello(cluster_id=cluster))
        await operator.receives(lambda m: m.ack.echo == cluster)
        return operator

    def at_work(self, cluster: str) -> set[str]:
        """The machines that the provider has for a cluster."""
        return {m.id for m in self.provider.machines.values() if m.cluster == cluster}


@asynccontextmanager
async def neighbourhood(state: Path) -> AsyncIterator[Neighbourhood]:
    """A shard that serves a healthy cluster; 200 idle machines in each of two zones."""
    machines = [
        machine_to_wire(machine(f"{zone}-{number:03}", zone=zone), "stand-in")
        for zone in "ab"
        for number in range(_MACHINES_OF_A_ZONE)
    ]
    provider = InstantProvider(iter(machines))
    server, address = await serve(provider)
    async with (
        shard_process(address, state, "--cycle", "0.2", "--reclaim-hold", "0.5") as shard,
        transport.channel(shard.address) as channel,
    ):
        await decides(shard)
        operator = FakeOperator(ShardStub(channel).Session(None), "healthy", helpful=True)
        await operator.say(hello=shard_pb2.Hello(cluster_id="healthy"))
        await operator.receives(lambda m: m.ack.echo == "healthy")
        yield Neighbourhood(shard, provider, Healthy(operator), channel)
        await operator.leave()
    await server.stop(None)


@asynccontextmanager
async def beside(manner: str, shard: ShardProcess) -> AsyncIterator[None]:
    """A bad operator of that manner is at it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_BAD_OPERATOR), manner, shard.address, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"begun\n", "the bad operator did not begin"
        yield
        assert process.returncode is None, "the bad operator has given up"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def bound_seconds(usual_seconds: float, ratio: float) -> float:
    """The longest wait allowed for a healthy cluster beside a misbehaving one."""
    return ratio * usual_seconds + _HICCUP_SECONDS
