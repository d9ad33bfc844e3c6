"""A coordinator replica as a process: its etcd member, its part in leading, its calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.coordination.etcd_store import EtcdStore
from bigfleet.adapters.store.directory_lock import DirectoryLock
from bigfleet.api import transport
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import add_CoordinatorServicer_to_server
from bigfleet.gc_pauses import bounded_gc_pauses
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.observe import health
from bigfleet.services.coordinator.admission import ask_for_admission
from bigfleet.services.coordinator.desk import Desk, drop_orphans
from bigfleet.services.coordinator.keeper import Keeper
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.membership import Membership
from bigfleet.services.coordinator.servicer import CoordinatorService
from bigfleet.services.coordinator.settings import Settings
from bigfleet.services.coordinator.succession import Succession
from bigfleet.tasks import cancel_and_wait, run_until_first_completes, wait_stopped_or_failed

_LOG = logging.getLogger(__name__)
# Whoever calls, calls another replica next.
_STOP_GRACE_SECONDS = 0.2
_CHORES_SECONDS = 1.0
# As much as cluster software commonly takes; real-time needs no less than a machine of its own.
_NICENESS = -10
_SESSION_NICENESS = Path("/proc/self/autogroup")


@dataclass(frozen=True)
class Serving:
    """A replica that answers on `port`. `work` ends only when it cannot go on."""

    port: int
    leadership: Leadership
    work: asyncio.Task[None]


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then hand over and close.

    Raises InvalidInput for settings that cannot work, Unavailable when etcd cannot run here or an
    address is taken, BigFleetError when the stored state cannot be read.
    """
    _go_first()
    with bounded_gc_pauses():  # a long one would pass for a stall, and cost leadership
        async with serving(settings) as serves:
            await wait_stopped_or_failed(stop, serves.work)
            await serves.leadership.resign()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Serving]:
    """A replica that serves inside the `async with`."""
    async with AsyncExitStack() as closing:
        holder = f"coordinator {settings.node_id}"
        closing.callback(DirectoryLock("--state", settings.state_directory, holder).release)
        store = EtcdStore(settings.member().socket)
        closing.push_async_callback(store.close)
        keeper = Keeper(settings.member())
        server = transport.server(settings.identity)
        address = f"{settings.listen_host}:{settings.listen_port}"
        port = transport.listen(server, address, settings.identity)
        replica = Replica(settings.node_id, settings.advertised or f"{settings.listen_host}:{port}")
        succession = Succession(settings.identity)
        leadership = Leadership(replica, store, keeper.pulse, succession, SystemClock())
        scheme = "https" if settings.identity else "http"
        membership = Membership(store, settings.node_id, scheme)
        service = CoordinatorService(
            leadership, Desk(settings.expected_shards), membership, lambda: keeper.health
        )
        add_CoordinatorServicer_to_server(service, server)
        observed = await health.serve(
            settings.observe_host, settings.observe_port, leadership.not_ready
        )
        closing.push_async_callback(observed.cleanup)
        if settings.join:
            await ask_for_admission(settings)
        closing.push_async_callback(keeper.stop)
        work = asyncio.create_task(_work(keeper, leadership, membership))
        closing.push_async_callback(cancel_and_wait, work)
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        _log_start(settings, port)
        yield Serving(port, leadership, work)


def _go_first() -> None:
    """Ask for the CPU before others, also for etcd and the tether, which inherit it.

    The three need little, but a leader that is kept from the CPU for half a second loses its term.
    Without the right to ask, they are scheduled like everybody else.

    Where Linux groups processes by session, niceness counts within a session only, and the session
    has one of its own; it is changed when it was begun for this replica alone.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            _SESSION_NICENESS.write_text(str(_NICENESS))
    _LOG.info("scheduled", extra={"niceness": os.getpriority(os.PRIO_PROCESS, 0)})


async def _work(keeper: Keeper, leadership: Leadership, membership: Membership) -> None:
    """All that goes on by itself; the first part to fail ends the replica."""
    chores = _chores(keeper, leadership, membership)
    await run_until_first_completes(keeper.run(), leadership.run(), chores)


async def _chores(keeper: Keeper, leadership: Leadership, membership: Membership) -> None:
    """What is seen to in passing, most of it by the leader alone."""
    while True:
        await asyncio.sleep(_CHORES_SECONDS)
        await keeper.shorten_log()
        reign = leadership.reign
        if reign is not None:
            try:
                await membership.promote_learners()
                await drop_orphans(reign)
            except Unavailable as error:
                _LOG.debug("chores wait: %s", error)
            except BigFleetError as error:
                _LOG.warning("chores wait: %s", error)


def _log_start(settings: Settings, port: int) -> None:
    replicas: Sequence[str] = sorted(settings.peers)
    fields = {"replica": settings.node_id, "port": port, "replicas": replicas}
    _LOG.info("serving", extra=fields)
