"""The process of a shard: opens stores and servers, and closes them in order."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.coordinator.grpc import GrpcCoordinator
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.store.ceilings_file import CeilingsFile
from bigfleet.adapters.store.demand_file import DemandFile
from bigfleet.adapters.store.directory_lock import DirectoryLock
from bigfleet.adapters.store.epoch_file import EpochFile
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.adapters.store.inventory_file import InventoryFile
from bigfleet.adapters.store.ownership_file import OwnershipFile
from bigfleet.adapters.store.removal_file import RemovalFile
from bigfleet.api import transport
from bigfleet.api.v1alpha1.shard_pb2_grpc import add_ShardServicer_to_server
from bigfleet.api.v1alpha1.shardadmin_pb2_grpc import add_ShardAdminServicer_to_server
from bigfleet.api.v1alpha1.shardread_pb2_grpc import add_ShardReadServicer_to_server
from bigfleet.engine.precompile import precompile
from bigfleet.gc_pauses import bounded_gc_pauses
from bigfleet.model.ceiling import Ceilings
from bigfleet.observe import health
from bigfleet.ports.clock import Clock
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.provider import CapacityProvider
from bigfleet.ports.store import ShardStores
from bigfleet.services.shard.admin import ShardAdminServicer
from bigfleet.services.shard.assembly import Shard, assemble
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination.assembly import CoordinatorPorts
from bigfleet.services.shard.execute.fences import obtain_epoch
from bigfleet.services.shard.inspect.servicer import ShardReadServicer
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.sessions.servicer import SessionServicer
from bigfleet.tasks import cancel_and_wait, run_until_stopped

_LOG = logging.getLogger(__name__)
# Operators reconnect by themselves.
_STOP_GRACE_SECONDS = 1.0
# Each message of a session needs the interpreter several times, and a decision holds it: with
# Python's default switch interval of 5 ms, a thousand sessions would wait for seconds.
_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class Serving:
    """A shard that serves on `port`. `work` ends only on a fatal error."""

    port: int
    shard: Shard
    work: asyncio.Task[None]


class _Readiness:
    """Readiness of a shard, also before its parts exist."""

    def __init__(self) -> None:
        self._waiting_for = "starting"
        self.not_ready_of: Callable[[], str] | None = None

    def not_ready(self) -> str:
        return self.not_ready_of() if self.not_ready_of else self._waiting_for

    def wait_for(self, what: str) -> None:
        self._waiting_for = what


async def run(config: ShardConfig, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then close; the next start continues from the provider's state.

    BigFleetError for unusable state or journal, Unavailable when an address is in use.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    precompile()
    addresses, identity = config.provider_addresses, config.identity
    providers = {address: GrpcProvider(address, identity) for address in addresses}

    async def serve() -> None:
        async with serving(config, providers, SystemClock(), _coordinator(config)) as serves:
            await asyncio.shield(serves.work)

    with bounded_gc_pauses():
        await run_until_stopped(stop, serve())


@asynccontextmanager
async def serving(
    config: ShardConfig,
    providers: Mapping[str, CapacityProvider],
    clock: Clock,
    coordinator: Coordinator | None = None,
) -> AsyncIterator[Serving]:
    """A shard that serves inside the `async with`; closes `providers`, which are by address, and
    `coordinator` at the end.

    Without a `coordinator` it owns all machines and serves all clusters. With an empty state
    directory it starts once all providers, and the coordinator, have assigned it an epoch.
    """
    readiness = _Readiness()
    async with AsyncExitStack() as closing:
        for provider in providers.values():
            closing.push_async_callback(provider.close)
        holder = f"shard {config.shard_id}"
        closing.callback(DirectoryLock("--state", config.state_directory, holder).release)
        coordinator_ports = None
        if coordinator is not None:
            closing.push_async_callback(coordinator.close)
            coordinator_ports = CoordinatorPorts(coordinator, OwnershipFile(config.state_directory))
        journal = Journal(config.journal, clock, config.journal_limits)
        closing.callback(journal.close)
        host, observe_port = config.observe_host, config.observe_port
        observed = await health.serve(host, observe_port, readiness.not_ready)
        closing.push_async_callback(observed.cleanup)
        ceilings = _ceilings(config)
        store = EpochFile(config.state_directory)
        epoch = await obtain_epoch(
            store, config.shard_id, [*providers.values()], coordinator, readiness.wait_for
        )
        journal.begin(config.shard_id, epoch)
        shard = assemble(
            config, providers, clock, journal, epoch, _stores(config), coordinator_ports
        )
        shard.cycle.ceilings = ceilings
        readiness.not_ready_of = shard.cycle.not_ready
        server, port = _server(config, shard)
        work = asyncio.create_task(shard.run())
        closing.push_async_callback(cancel_and_wait, work)
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        closing.callback(shard.sessions.close_all)
        _LOG.info("serving", extra={"shard": config.shard_id, "epoch": epoch, "port": port})
        yield Serving(port, shard, work)


def _ceilings(config: ShardConfig) -> Callable[[], Ceilings]:
    return CeilingsFile(config.ceilings).current if config.ceilings else Ceilings


def _stores(config: ShardConfig) -> ShardStores:
    directory = config.state_directory
    return ShardStores(
        EvictionFile(directory),
        RemovalFile(directory),
        DemandFile(directory),
        InventoryFile(directory),
    )


def _server(config: ShardConfig, shard: Shard) -> tuple[grpc.aio.Server, int]:
    server = transport.server(config.identity)
    router = shard.coordination.router if shard.coordination else None
    sessions = SessionServicer(shard.sessions, router, shard.cycle.removals)
    add_ShardServicer_to_server(sessions, server)
    add_ShardAdminServicer_to_server(ShardAdminServicer(shard.remover()), server)
    add_ShardReadServicer_to_server(ShardReadServicer(shard.cycle, shard.machines), server)
    address = f"{config.listen_host}:{config.listen_port}"
    port = transport.listen(server, address, config.identity)
    if shard.coordination:
        reached_at = config.advertised or f"{config.listen_host}:{port}"
        shard.coordination.reporter.address = reached_at
    return server, port


def _coordinator(config: ShardConfig) -> Coordinator | None:
    addresses = config.coordinator_addresses
    return GrpcCoordinator(addresses, config.identity) if addresses else None
