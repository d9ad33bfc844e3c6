"""The production provider without a network: its store, its executor, and simulated hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.model.machine import Machine, MachineEvent
from bigfleet.ports.clock import Clock
from bigfleet.ports.host import Boot, HostFailure
from bigfleet.ports.provider import Fence, Listing, Operation, Unchanged, nothing_known
from bigfleet.services.provider import requests
from bigfleet.services.provider.config import Latencies, ProviderConfig
from bigfleet.services.provider.executor import OperationExecutor
from bigfleet.services.provider.lifecycle import Order, Record
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.runtime.disk import SimulatedStore
from bigfleet.simulation.runtime.faults import LATE_SECONDS, FaultInjector

NAME = "simulated"


class SimulatedHosts:
    """A `ports.host.Host`: machines boot into clusters, and leave dead Nodes at power-off."""

    def __init__(self, clusters: Mapping[str, SimulatedCluster], injector: FaultInjector) -> None:
        self._clusters, self._injector = clusters, injector

    async def acquire(self, machine: Machine) -> None:
        """Succeeds unless a stock-out is injected."""
        self._injector.fails("stock_out", machine)

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        """The Node is Ready after the boot delay."""
        del timeout_seconds
        await self._injector.delay("boot")
        self._injector.fails("boot_failure", boot.machine)
        cluster = self._clusters[boot.machine.cluster]
        if cluster.gone:
            raise HostFailure(f"{boot.machine.id} finds no API server of {cluster.name}")
        cluster.join(boot.machine)

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """Wait until the operator has deleted the Node."""
        await self._clusters[machine.cluster].left(machine.id)
        self._injector.fails("drain_failure", machine)

    async def power_off(self, machine: Machine) -> None:
        """The Node dies, and controllers replace its pods."""
        self._clusters[machine.cluster].die(machine.id)

    async def close(self) -> None:
        """Hosts keep running."""


class SimulatedProvider:
    """A `CapacityProvider`: calls have delays and faults and reach the production executor.

    It starts down; `start` and `stop` may alternate, as for a killed and restarted process. `shows`
    truncates its listings to so many machines. `crashed` is called when it crashes; the caller then
    stops it. `on_submitted` is called for each operation that starts, with the machine as before.
    """

    def __init__(
        self, directory: Path, hosts: SimulatedHosts, injector: FaultInjector, clock: Clock
    ) -> None:
        self._directory, self._hosts, self._injector, self._clock = (
            directory,
            hosts,
            injector,
            clock,
        )
        self.shows: int | None = None
        self.crashed: Callable[[], None] = lambda: None
        self.on_submitted: Callable[[Fence, Machine, MachineEvent], None] = lambda *_: None
        self._executor: OperationExecutor | None = None
        self._late: set[asyncio.Task[None]] = set()

    def start(
        self, machines: Sequence[Machine], latencies: Latencies, seed: int, spot_hours: float
    ) -> None:
        """Start it; `machines` are for an empty store only."""
        settings = ProviderConfig(
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
        store = SimulatedStore(self._directory, self._injector, self.crashed)
        if not len(store):
            store.seed(machines)
        self._executor = OperationExecutor(settings, store, self._hosts, self._clock)
        self._executor.resume()

    async def stop(self) -> None:
        """Kill it: only what is in the store survives."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await executor.close()
            executor.store.close()

    @property
    def running(self) -> bool:
        """Whether it is up."""
        return self._executor is not None

    def machines(self) -> dict[str, Machine]:
        """The provider's machines by id; Unavailable while it is down."""
        return {record.machine.id: record.machine for record in self._serving().store}

    async def lose(self, machine_id: str) -> None:
        """Interrupt a spot machine."""
        executor = self._serving()
        await executor.interrupt(executor.store.get(machine_id))

    async def create(
        self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
    ) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        order = Order(MachineEvent.CREATE, shard_metadata=dict(shard_metadata))
        return await self._submit(machine_id, fence, order)

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
        return await self._submit(machine_id, fence, order)

    async def drain(self, machine_id: str, grace_seconds: int, fence: Fence) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        order = replace(Order(MachineEvent.DRAIN), grace_seconds=grace_seconds)
        return await self._submit(machine_id, fence, order)

    async def delete(self, machine_id: str, fence: Fence) -> Operation:
        """See `ports.provider.CapacityProvider`."""
        return await self._submit(machine_id, fence, Order(MachineEvent.DELETE))

    async def claim_epoch(self, shard_id: str, at_least: int) -> int:
        """See `ports.provider.CapacityProvider`."""
        await self._travel()
        return self._serving().store.claim_epoch(shard_id, at_least)

    async def get(self, machine_id: str) -> Machine:
        """See `ports.provider.CapacityProvider`."""
        await self._travel()
        return self._serving().store.get(machine_id).machine

    async def list(
        self, since_revision: bytes = b"", unchanged: Unchanged = nothing_known
    ) -> AsyncGenerator[Listing, None]:
        """See `ports.provider.CapacityProvider`; everything is one page."""
        del unchanged
        await self._travel()
        request = wire.ListFilter(since_revision=since_revision)
        selection = requests.select(self._serving().store, request)
        machines = [record.machine for record in selection.records][: self.shows]
        await self._return()
        yield Listing(machines, {}, selection.revision, NAME)

    async def close(self) -> None:
        """Does nothing: the provider stays up."""

    async def _submit(self, machine_id: str, fence: Fence, order: Order) -> Operation:
        if self._injector.occurs("request_late"):
            self._arrive_late(machine_id, fence, order)
            raise Unavailable("no answer in time (injected fault)")
        await self._travel()
        record = self._accept(self._serving(), machine_id, fence, order)
        await self._return()
        return Operation(record.operation_id, record.machine)

    def _accept(
        self, executor: OperationExecutor, machine_id: str, fence: Fence, order: Order
    ) -> Record:
        before = executor.store.get(machine_id)
        record = executor.submit(machine_id, fence, lambda: order)
        if record.operation_id != before.operation_id:
            self.on_submitted(fence, before.machine, order.event)
        return record

    def _arrive_late(self, machine_id: str, fence: Fence, order: Order) -> None:
        async def arrive() -> None:
            await asyncio.sleep(LATE_SECONDS)
            if self._executor is not None:
                with contextlib.suppress(BigFleetError):
                    self._accept(self._executor, machine_id, fence, order)

        task = asyncio.create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _travel(self) -> None:
        await self._injector.delay("call")
        if self._injector.occurs("request_lost"):
            raise Unavailable("the request was lost (injected fault)")

    async def _return(self) -> None:
        await self._injector.delay("call")
        if self._injector.occurs("answer_lost") or self._executor is None:
            raise Unavailable("the answer was lost (injected fault)")

    def _serving(self) -> OperationExecutor:
        if self._executor is None:
            raise Unavailable("the provider is down")
        return self._executor
