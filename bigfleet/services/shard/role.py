"""The shard as a process: its parts put together, opened and closed in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc.aio
from aiohttp import web

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.store.epoch_file import EpochFile
from bigfleet.api import transport
from bigfleet.api.v1alpha1.shard_pb2_grpc import add_ShardServicer_to_server
from bigfleet.engine.decide import decide
from bigfleet.model.errors import Unavailable
from bigfleet.observe import health
from bigfleet.ports.clock import Clock
from bigfleet.ports.provider import CapacityProvider
from bigfleet.ports.store import EpochStore
from bigfleet.services.shard import updates
from bigfleet.services.shard.actuation import Actuation
from bigfleet.services.shard.cycle import Cycle
from bigfleet.services.shard.execution import Execution
from bigfleet.services.shard.fences import Fences
from bigfleet.services.shard.hints import Hints
from bigfleet.services.shard.interning import Interned
from bigfleet.services.shard.inventory import Inventory
from bigfleet.services.shard.journal import Journal
from bigfleet.services.shard.needs import NeedsTable
from bigfleet.services.shard.orders import Orders
from bigfleet.services.shard.reconciler import Reconciler
from bigfleet.services.shard.rollups import RollUps
from bigfleet.services.shard.servicer import SessionServicer
from bigfleet.services.shard.sessions import Sessions
from bigfleet.services.shard.settings import Settings

_log = logging.getLogger(__name__)
# Operators dial again by themselves; nothing is gained by waiting for them.
_STOP_GRACE_SECONDS = 1.0


@dataclass(frozen=True)
class Shard:
    """The parts of one shard, wired together but not running yet."""

    epoch: int
    sessions: Sessions
    inventory: Inventory
    cycle: Cycle
    actuation: Actuation


@dataclass(frozen=True)
class Serving:
    """A shard that takes sessions on `port`. `work` ends only when the shard cannot go on."""

    port: int
    shard: Shard
    work: asyncio.Task[None]


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then close cleanly; the next start continues from the provider.

    Raises BigFleetError for state or a journal that cannot be used, Unavailable when an address is
    taken.
    """
    provider = GrpcProvider(settings.provider_address)
    async with serving(settings, provider, SystemClock()) as serves:
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((stopped, serves.work), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if serves.work.done():
            serves.work.result()


@asynccontextmanager
async def serving(
    settings: Settings, provider: CapacityProvider, clock: Clock
) -> AsyncIterator[Serving]:
    """A shard that serves inside the `async with`; closes `provider` at the end."""
    async with AsyncExitStack() as closing:
        closing.push_async_callback(provider.close)
        journal = Journal(settings.journal, clock)
        closing.callback(journal.close)
        store: EpochStore = EpochFile(settings.state_directory)
        epoch = store.next_epoch()
        shard = assemble(settings, provider, clock, journal, epoch)
        observed = await _observe(settings, shard.cycle.not_ready)
        closing.push_async_callback(observed.cleanup)
        server = transport.server()
        add_ShardServicer_to_server(SessionServicer(shard.sessions), server)
        port = _listen(server, settings)
        work = asyncio.create_task(_work(shard))
        closing.push_async_callback(_end, work)
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        closing.callback(shard.sessions.close_all)
        _log.info("serving", extra={"shard": settings.shard_id, "epoch": epoch, "port": port})
        yield Serving(port, shard, work)


async def _work(shard: Shard) -> None:
    async with asyncio.TaskGroup() as parts:
        parts.create_task(shard.cycle.run())
        parts.create_task(shard.actuation.run())


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def assemble(
    settings: Settings, provider: CapacityProvider, clock: Clock, journal: Journal, epoch: int
) -> Shard:
    """All parts of a shard."""
    woken = asyncio.Event()
    clusters: Interned[str] = Interned()
    inventory, needs, orders, hints = Inventory(clusters), NeedsTable(clusters), Orders(), Hints()
    rollups = RollUps(needs, journal, clock, woken.set)
    sessions = _sessions(epoch, rollups, needs, hints, inventory)
    reconciler = Reconciler(provider, inventory, orders, sessions, journal, clock)
    execution = Execution(
        provider=provider,
        sessions=sessions,
        inventory=inventory,
        orders=orders,
        reconciler=reconciler,
        fences=Fences(settings.shard_id, epoch),
        journal=journal,
    )
    concurrency = settings.execute_concurrency
    actuation = Actuation(
        execution, orders, journal, clock, concurrency, done=woken.set, doubt=reconciler.doubt
    )
    cycle = Cycle(
        decide=decide,
        settings=settings,
        clock=clock,
        needs=needs,
        inventory=inventory,
        orders=orders,
        reconciler=reconciler,
        actuation=actuation,
        sessions=sessions,
        hints=hints,
        journal=journal,
        woken=woken,
    )
    return Shard(epoch, sessions, inventory, cycle, actuation)


def _sessions(
    epoch: int, rollups: RollUps, needs: NeedsTable, hints: Hints, inventory: Inventory
) -> Sessions:
    def over(cluster: str) -> None:
        needs.forget_held(cluster)
        hints.forget(cluster)

    return Sessions(
        epoch, rollups.take, lambda cluster: updates.of_cluster(inventory, cluster), over
    )


async def _observe(settings: Settings, not_ready: health.NotReady) -> web.AppRunner:
    try:
        return await health.serve(settings.observe_host, settings.observe_port, not_ready)
    except OSError as error:
        address = f"{settings.observe_host}:{settings.observe_port}"
        raise Unavailable(f"shard: cannot serve health on {address}: {error}") from None


def _listen(server: grpc.aio.Server, settings: Settings) -> int:
    address = f"{settings.listen_host}:{settings.listen_port}"
    try:
        return server.add_insecure_port(address)
    except RuntimeError:
        raise Unavailable(f"shard: cannot listen on {address}") from None
