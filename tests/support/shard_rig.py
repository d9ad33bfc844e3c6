"""A shard on loopback with an in-memory provider, and operators over real sessions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.api import need_codec, transport
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.group import group_of_text
from bigfleet.model.machine import HOSTLESS, CapacityType, Machine, MachineState
from bigfleet.model.need import Need, Operator, Requirement, profile, sizes_of_aggregate
from bigfleet.ports.clock import Clock
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.provider import CapacityProvider
from bigfleet.services.shard import role
from bigfleet.services.shard.config import ShardConfig
from tests.support.waiting import eventually

# Only a failing test waits this long; test machines may be slow.
DEADLINE_SECONDS = 60.0
CPU_PER_MACHINE = 4000
EAGER = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=0.0)


def machine(
    machine_id: str,
    state: MachineState = MachineState.IDLE,
    cluster: str = "",
    **fields: Any,
) -> Machine:
    """A small machine in zone a."""
    units = {"cpu": CPU_PER_MACHINE, "memory": 16 * 2**20}
    defaults: dict[str, Any] = {
        "instance_type": "m6i.xlarge",
        "zone": "a",
        "capacity_type": CapacityType.ON_DEMAND,
        "price_per_hour": 0.2,
        "interruption_probability": 0.0,
        "resources": units,
        "allocatable": units,
        "labels": {"topology.bigfleet/rack": "rack-1", "kubernetes.io/hostname": machine_id},
        "host": "" if state in HOSTLESS else f"slot-of-{machine_id}",
    }
    return Machine(id=machine_id, state=state, cluster=cluster, **defaults | fields)


def need(machines: float = 1, priority: int = 0, group: str = "", zone: str = "a") -> Need:
    """A need for this many machines' CPU, in one zone."""
    need_profile = profile(
        (Requirement("topology.kubernetes.io/zone", Operator.IN, (zone,)),), (), priority, 1, 1
    )
    cpu = int(machines * CPU_PER_MACHINE)
    sizes = sizes_of_aggregate({"cpu": cpu}, {"cpu": min(cpu, CPU_PER_MACHINE)})
    return Need(need_profile, sizes, group_of_text(group))


_timestamps = itertools.count(1)


def rollup(
    cluster: str, *needs: Need, limits: Sequence[capacity_pb2.NodeLimit] = ()
) -> capacity_pb2.ClusterCapacityNeeds:
    """A roll-up newer than all before."""
    return capacity_pb2.ClusterCapacityNeeds(
        cluster_id=cluster,
        timestamp_unix_nanos=next(_timestamps),
        needs=[need_codec.need_to_wire(n) for n in needs],
        node_limits=limits,
    )


class FakeOperator:
    """One session; `received` is everything the shard said. It answers questions if `helpful`, and
    says of all machines that they are empty if it `reports`. It gives no credentials where it says
    why it `refuses`.
    """

    def __init__(self, call: Any, cluster: str, *, helpful: bool) -> None:
        self.cluster = cluster
        self.received: list[shard_pb2.ShardMessage] = []
        self.helpful, self.reports = helpful, True
        self.refuses = ""
        self.status: grpc.StatusCode | None = None
        self.details = ""
        self._call, self._writing = call, asyncio.Lock()
        self._news = asyncio.Condition()
        self._receiving = asyncio.create_task(self._receive())

    async def say(self, **message: Any) -> None:
        """Send one OperatorMessage."""
        async with self._writing:  # a stream takes one write at a time
            await self._call.write(shard_pb2.OperatorMessage(**message))

    async def roll_up(
        self, *needs: Need, limits: Sequence[capacity_pb2.NodeLimit] = ()
    ) -> shard_pb2.Acknowledgement:
        """Send a roll-up and wait for what the shard says to it."""
        message = rollup(self.cluster, *needs, limits=limits)
        await self.say(rollup=message)
        echo = str(message.timestamp_unix_nanos)
        return (await self.receives(lambda m: m.ack.echo == echo)).ack

    async def receives(
        self, wanted: Callable[[shard_pb2.ShardMessage], bool]
    ) -> shard_pb2.ShardMessage:
        """The first message, past or to come, that is `wanted`."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._news:
            await self._news.wait_for(lambda: any(map(wanted, self.received)))
        return next(m for m in self.received if wanted(m))

    async def receives_state(
        self, machine_id: str, state: MachineState
    ) -> shard_pb2.NodeStateUpdate:
        """The first update that shows a machine in `state`."""
        wanted = (machine_id, int(state))
        found = await self.receives(
            lambda m: (m.node_state_update.machine_id, int(m.node_state_update.state)) == wanted
        )
        return found.node_state_update

    async def ends(self) -> tuple[grpc.StatusCode | None, str]:
        """Wait until the shard has ended the session; its status and reason."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.shield(self._receiving)
        return self.status, self.details

    async def leave(self) -> None:
        """Hang up."""
        self._call.cancel()
        _, hanging = await asyncio.wait([self._receiving], timeout=DEADLINE_SECONDS)
        assert not hanging, self._receiving.get_stack()

    async def _receive(self) -> None:
        try:
            async for message in self._call:
                async with self._news:
                    self.received.append(message)
                    self._news.notify_all()
                if message.disruption_inquiry.inquiry_id and self.reports:
                    await self._report_empty(message.disruption_inquiry)
                if self.refuses and message.bootstrap_request.request_id:
                    await self._refuse(message.bootstrap_request)
                elif self.helpful:
                    await self._answer(message)
        except grpc.aio.AioRpcError as error:
            self.status, self.details = error.code(), error.details() or ""
        else:
            self.status = grpc.StatusCode.OK

    async def _report_empty(self, inquiry: shard_pb2.DisruptionInquiry) -> None:
        """No pods run on any of the machines asked about."""
        machines = [shard_pb2.MachineDisruption(machine_id=each) for each in inquiry.machine_ids]
        report = shard_pb2.DisruptionReport(inquiry_id=inquiry.inquiry_id, machines=machines)
        await self.say(disruption_report=report)

    async def _refuse(self, request: shard_pb2.BootstrapRequest) -> None:
        answer = shard_pb2.BootstrapBlobResponse(request_id=request.request_id, error=self.refuses)
        await self.say(bootstrap_response=answer)

    async def _answer(self, message: shard_pb2.ShardMessage) -> None:
        request, reclaim = message.bootstrap_request, message.reclaim_instruction
        if request.request_id:
            blob = f"blob for {request.machine_id}".encode()
            answer = shard_pb2.BootstrapBlobResponse(request_id=request.request_id, user_data=blob)
            await self.say(bootstrap_response=answer)
        if reclaim.instruction_id:
            ack = shard_pb2.ReclaimAck(instruction_id=reclaim.instruction_id, nodes_started=1)
            await self.say(reclaim_ack=ack)


class Rig:
    """A running shard."""

    def __init__(self, serving: role.Serving, channel: grpc.aio.Channel, journal: Path) -> None:
        self.shard = serving.shard
        self.address = f"127.0.0.1:{serving.port}"
        self.channel = channel
        self._journal = journal
        self._operators: list[FakeOperator] = []

    async def operator(self, cluster: str = "east", *, helpful: bool = True) -> FakeOperator:
        """An operator whose Hello has been acknowledged."""
        operator = self.stranger(cluster, helpful=helpful)
        await operator.say(hello=shard_pb2.Hello(cluster_id=cluster))
        await operator.receives(lambda m: m.ack.echo == cluster)
        return operator

    def stranger(self, cluster: str = "east", *, helpful: bool = True) -> FakeOperator:
        """An operator that has sent no Hello yet."""
        operator = FakeOperator(ShardStub(self.channel).Session(None), cluster, helpful=helpful)
        self._operators.append(operator)
        return operator

    def journal(self, machine_id: str) -> list[dict[str, Any]]:
        """The lines about one machine, in order."""
        lines = msgspec.json.Decoder().decode_lines(self._journal.read_bytes())
        return [line for line in lines if line.get("machine") == machine_id]

    async def leave(self) -> None:
        """All operators hang up."""
        for operator in self._operators:
            await operator.leave()


@asynccontextmanager
async def shard(
    provider: CapacityProvider | Mapping[str, CapacityProvider],
    directory: Path,
    clock: Clock | None = None,
    coordinator: Coordinator | None = None,
    **overrides: Any,
) -> AsyncIterator[Rig]:
    """A shard with fast cycles whose state is in `directory`; on its own without `coordinator`.
    Several providers are given by their addresses.
    """
    providers = provider if isinstance(provider, Mapping) else {"in memory": provider}
    journal = directory / "journal.jsonl"
    values: dict[str, Any] = {
        "shard_id": "shard-0",
        "listen_port": 0,
        "observe_port": 0,
        "provider_addresses": tuple(providers),
        "state_directory": directory,
        "cycle_seconds": 0.05,
        "journal": journal,
        "engine": EAGER,
        "report_seconds": 0.05,
    }
    config = ShardConfig(**values | overrides)
    async with AsyncExitStack() as closing:
        serves = role.serving(config, providers, clock or SystemClock(), coordinator)
        serving = await closing.enter_async_context(serves)
        channel = transport.channel(f"127.0.0.1:{serving.port}")
        rig = Rig(serving, await closing.enter_async_context(channel), journal)
        closing.push_async_callback(rig.leave)
        yield rig


async def cycles(rig: Rig, number: int) -> None:
    """Return once so many have begun and ended from now on, however many there were before."""
    before = rig.shard.cycle.count
    await eventually(lambda: rig.shard.cycle.count > before + number)


def short(rig: Rig) -> bool:
    """Whether the last decision left any need short."""
    latest = rig.shard.cycle.latest
    return latest is not None and bool(latest.decision.shortfalls)


def states(provider_orders: Sequence[tuple[str, str, Any]]) -> list[tuple[str, str]]:
    """Orders without their fences."""
    return [(call, machine_id) for call, machine_id, _ in provider_orders]
