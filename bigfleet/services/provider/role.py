"""The process of a provider: store, hosts, gRPC and health, opened and closed in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.host.kwok import KwokHost
from bigfleet.adapters.store.directory_lock import DirectoryLock
from bigfleet.api import transport
from bigfleet.api.v1alpha1.provider_pb2_grpc import add_CapacityProviderServicer_to_server
from bigfleet.observe import health
from bigfleet.ports.host import Host
from bigfleet.services.provider import inventory
from bigfleet.services.provider.config import ProviderConfig
from bigfleet.services.provider.executor import OperationExecutor
from bigfleet.services.provider.servicer import ProviderServicer
from bigfleet.services.provider.store import Store
from bigfleet.tasks import wait_stopped_or_failed

_LOG = logging.getLogger(__name__)
# Calls are answered in milliseconds; shards retry one that is not.
_STOP_GRACE_SECONDS = 1.0


@dataclass
class RunningProvider:
    """A provider that serves on `port`; `failure` gets an exception on a fatal error."""

    port: int
    failure: asyncio.Future[None]


async def run(config: ProviderConfig, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then close; operations under way resume at the next start.

    InvalidInput for unusable configuration, inventory or state, Unavailable when an address is in
    use or the disk rejects writes.
    """
    async with serving(config, host_for(config)) as provider:
        await wait_stopped_or_failed(stop, provider.failure)


def host_for(config: ProviderConfig) -> Host:
    """Hosts simulated by kwok if clusters are given, else hosts that boot instantly."""
    if config.host_kubeconfigs is None:
        return InstantHost()
    return KwokHost(config.host_kubeconfigs, config.provider_name)


@asynccontextmanager
async def serving(config: ProviderConfig, host: Host) -> AsyncIterator[RunningProvider]:
    """A provider that serves inside the `async with`; closes `host` at the end."""
    not_ready = "opening the store"
    async with AsyncExitStack() as closing:
        closing.push_async_callback(host.close)
        observed = await health.serve(config.observe_host, config.observe_port, lambda: not_ready)
        closing.push_async_callback(observed.cleanup)
        holder = f"provider {config.provider_name}"
        closing.callback(DirectoryLock("--state", config.state_directory, holder).release)
        store = _open_store(config)
        closing.callback(store.close)
        executor = OperationExecutor(config, store, host, SystemClock())
        closing.push_async_callback(executor.close)
        server = transport.server(config.identity)
        servicer = ProviderServicer(executor, config.provider_name)
        add_CapacityProviderServicer_to_server(servicer, server)
        address = f"{config.listen_host}:{config.listen_port}"
        port = transport.listen(server, address, config.identity)
        executor.resume()
        await executor.follow_market()
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        not_ready = ""
        _LOG.info("serving", extra={"port": port, "machines": len(store)})
        yield RunningProvider(port, executor.failure)
        not_ready = "stopping"


def _open_store(config: ProviderConfig) -> Store:
    store = Store(config.state_directory)
    if len(store) > 0:
        _LOG.info("machines kept from the last run; inventory file not read")
        return store
    try:
        store.seed(inventory.read(config.inventory_file))
    except BaseException:
        store.close()
        raise
    return store
