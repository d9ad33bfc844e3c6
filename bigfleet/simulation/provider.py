"""The production provider without a network: its store, its machinery, and hosts that pretend."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.model.machine import Machine, MachineEvent
from bigfleet.ports.clock import Clock
from bigfleet.ports.host import Boot
from bigfleet.ports.provider import Fence, Listing, Operation
from bigfleet.services.provider import handlers
from bigfleet.services.provider.lifecycle import Order, Record
from bigfleet.services.provider.machinery import Machinery
from bigfleet.services.provider.settings import Latencies, Settings
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.disk import SimulatedStore
from bigfleet.simulation.faults import LATE_SECONDS, Fate

NAME = "simulated"


class SimulatedHosts:
    """A `ports.host.Host`: machines boot into Clusters, and leave dead Nodes when they must go."""

    def __init__(self, clusters: Mapping[str, Cluster], fate: Fate) -> None:
        self._clusters, self._fate = clusters, fate

    async def acquire(self, machine: Machine) -> None:
        """Hardware, unless the seller is out of stock."""
        self._fate.fails("stock_out", machine)

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        """After the boot delay the Node is ready."""
        del timeout_seconds
        await self._fate.pause("boot")
        self._fate.fails("boot_failure", boot.machine)
        self._clusters[boot.machine.cluster].join(boot.machine)

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """When the operator has removed the Node."""
        await self._clusters[machine.cluster].left(machine.id)
        self._fate.fails("drain_failure", machine)

    async def power_off(self, machine: Machine) -> None:
        """The Node is dead, and controllers replace what ran on it."""
        self._clusters[machine.cluster].die(machine.id)

    async def close(self) -> None:
        """Hosts keep running."""


class SimulatedProvider:
    """A `CapacityProvider`: every call has its delay and its faults, and hits the real machinery.

    It begins down; `start` and `stop` may alternate, as a process is killed and started again.
    `shows` cuts its listings off after so many machines, as if it had lost sight of the others.
    `crashed` is called when it dies by itself; it is to be stopped then. `obeyed` is told of each
    order that begins something, with the machine as it was before.
    """

    def __init__(self, directory: Path, hosts: SimulatedHosts, fate: Fate, clock: Clock) -> None:
        self._directory, self._hosts, self._fate, self._clock = directory, hosts, fate, clock
        self.shows: int | None = None
        self.crashed: Callable[[], None] = lambda: None
        self.obeyed: Callable[[Fence, Machine, MachineEvent], None] = lambda *_: None
        self._machinery: Machinery | None = None
        self._late: set[asyncio.Task[None]] = set()

    def start(
        self, machines: Sequence[Machine], latencies: Latencies, seed: int, spot_hours: float
    ) -> None:
        """Serve; `machines` are only for a store that is still empty."""
        settings = Settings(
            listen_port=0,
            observe_port=0,
            state_directory=self._directory,
            inventory_file=self._directory,
            host_kubeconfigs=None,
            latencies=latencies,
            seed=seed,
            spot_market_hours_per_second=spot_hours,
            provider_name=NAME,
        )
        store = SimulatedStore(self._directory, self._fate, self.crashed)
        if not len(store):
            store.seed(machines)
        self._machinery = Machinery(settings, store, self._hosts, self._clock)
        self._machinery.resume()

    async def stop(self) -> None:
        """Be killed: what was accepted is in the store, and nothing else survives."""
        machinery, self._machinery = self._machinery, None
        if machinery is not None:
            await machinery.close()
            machinery.store.close()

    @property
    def running(self) -> bool:
        """Whether it answers at all."""
        return self._machinery is not None

    def machines(self) -> dict[str, Machine]:
        """The truth, by id; Unavailable while it is down."""
        return {record.machine.id: record.machine for record in self._serving().store}

    async def lose(self, machine_id: str) -> None:
        """The market takes a machine back that is at work."""
        machinery = self._serving()
        await machinery.take_back(machinery.store.get(machine_id))

    async def create(
        self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
    ) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        order = Order(MachineEvent.CREATE, shard_metadata=dict(shard_metadata))
        return await self._obey(machine_id, fence, order)

    async def configure(
        self,
        machine_id: str,
        cluster: str,
        bootstrap_blob: bytes,
        shard_metadata: Mapping[str, str],
        fence: Fence,
    ) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        order = Order(MachineEvent.CONFIGURE, cluster, bootstrap_blob, dict(shard_metadata))
        return await self._obey(machine_id, fence, order)

    async def drain(self, machine_id: str, grace_seconds: int, fence: Fence) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        order = replace(Order(MachineEvent.DRAIN), grace_seconds=grace_seconds)
        return await self._obey(machine_id, fence, order)

    async def delete(self, machine_id: str, fence: Fence) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        return await self._obey(machine_id, fence, Order(MachineEvent.DELETE))

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """See `ports.provider.CapacityProvider`."""
        await self._travel()
        return self._serving().store.claim_epoch(shard_id, at_least)

    async def get(self, machine_id: str) -> Machine:
        """See `ports.provider.CapacityProvider`."""
        await self._travel()
        return self._serving().store.get(machine_id).machine

    async def list(self, since_revision: bytes = b"") -> Listing:
        """See `ports.provider.CapacityProvider`."""
        await self._travel()
        request = wire.ListFilter(since_revision=since_revision)
        selection = handlers.select(self._serving().store, request)
        machines = [record.machine for record in selection.records][: self.shows]
        await self._return()
        return Listing(machines, {}, selection.revision, NAME)

    async def close(self) -> None:
        """The shard hangs up; the provider stays."""

    async def _obey(self, machine_id: str, fence: Fence, order: Order) -> Operation:
        if self._fate.strikes("request_late"):
            self._arrive_late(machine_id, fence, order)
            raise Unavailable("no answer in time, as the seed has it")
        await self._travel()
        record = self._take_on(self._serving(), machine_id, fence, order)
        await self._return()
        return Operation(record.operation_id, record.machine)

    def _take_on(self, machinery: Machinery, machine_id: str, fence: Fence, order: Order) -> Record:
        before = machinery.store.get(machine_id)
        record = machinery.obey(machine_id, fence, lambda: order)
        if record.operation_id != before.operation_id:
            self.obeyed(fence, before.machine, order.event)
        return record

    def _arrive_late(self, machine_id: str, fence: Fence, order: Order) -> None:
        async def arrive() -> None:
            await asyncio.sleep(LATE_SECONDS)
            if self._machinery is not None:
                with contextlib.suppress(BigFleetError):
                    self._take_on(self._machinery, machine_id, fence, order)

        task = asyncio.create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _travel(self) -> None:
        await self._fate.pause("call")
        if self._fate.strikes("request_lost"):
            raise Unavailable("the request was lost, as the seed has it")

    async def _return(self) -> None:
        await self._fate.pause("call")
        if self._fate.strikes("answer_lost") or self._machinery is None:
            raise Unavailable("the answer was lost, as the seed has it")

    def _serving(self) -> Machinery:
        if self._machinery is None:
            raise Unavailable("the provider is down")
        return self._machinery
