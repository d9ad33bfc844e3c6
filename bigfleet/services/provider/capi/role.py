"""The process of a provider of Cluster API's machines, opened and closed in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.api import transport
from bigfleet.api.v1alpha1.provider_pb2_grpc import add_CapacityProviderServicer_to_server
from bigfleet.kube.access import connect
from bigfleet.observe import health
from bigfleet.ports.provider import Fence
from bigfleet.services.provider.capi import catalog as offerings
from bigfleet.services.provider.capi.config import CapiConfig
from bigfleet.services.provider.capi.controller import MachineController
from bigfleet.services.provider.capi.management import ManagementCluster
from bigfleet.services.provider.capi.records import Records
from bigfleet.services.provider.lifecycle import Order, Record
from bigfleet.services.provider.role import RunningProvider
from bigfleet.services.provider.servicer import RecordServicer
from bigfleet.tasks import wait_stopped_or_failed

_LOG = logging.getLogger(__name__)
# Calls are answered in milliseconds; shards retry one that is not.
_STOP_GRACE_SECONDS = 1.0


class _Servicer(RecordServicer):
    """`CapacityProvider` over one MachineController."""

    def __init__(self, controller: MachineController, provider_name: str) -> None:
        super().__init__(controller.records, provider_name)
        self._controller = controller

    async def take(self, machine_id: str, fence: Fence, read_order: Callable[[], Order]) -> Record:
        return await self._controller.submit(machine_id, fence, read_order)

    async def claim(self, shard_id: str, at_least: int) -> int:
        return await self._controller.records.claim_epoch(shard_id, at_least)


async def run(config: CapiConfig, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then close; operations under way resume at the next start.

    InvalidInput for unusable configuration, offerings or records, and where the management cluster
    serves no Machines to this provider; Unavailable when it is silent or an address is in use.
    """
    async with serving(config) as provider:
        await wait_stopped_or_failed(stop, provider.failure)


@asynccontextmanager
async def serving(config: CapiConfig) -> AsyncIterator[RunningProvider]:
    """A provider that serves inside the `async with`."""
    catalog = offerings.read(config.offerings_file)
    phase = "reading the records of machines"
    controller: MachineController | None = None

    def not_ready() -> str:
        return phase or (controller.not_ready if controller else "")

    async with AsyncExitStack() as closing:
        observed = await health.serve(config.observe_host, config.observe_port, not_ready)
        closing.push_async_callback(observed.cleanup)
        client = await closing.enter_async_context(await connect(config.kubeconfig))
        cluster = ManagementCluster(client, config.namespace, config.provider_name)
        await cluster.check()
        records = Records(client, config.namespace, config.provider_name, catalog)
        await records.load()
        controller = MachineController(
            records, cluster, catalog, config.provider_name, config.repair_seconds, SystemClock()
        )
        closing.push_async_callback(controller.close)
        controller.start()
        server = transport.server(config.identity)
        servicer = _Servicer(controller, config.provider_name)
        add_CapacityProviderServicer_to_server(servicer, server)
        address = f"{config.listen_host}:{config.listen_port}"
        port = transport.listen(server, address, config.identity)
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        phase = ""
        _LOG.info("serving", extra={"port": port, "machines": len(records)})
        yield RunningProvider(port, controller.failure)
        phase = "stopping"
