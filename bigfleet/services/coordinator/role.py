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
from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.adapters.store.directory_lock import DirectoryLock
from bigfleet.api import transport
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import add_CoordinatorServicer_to_server
from bigfleet.gc_pauses import bounded_gc_pauses
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.observe import health
from bigfleet.services.coordinator.config import CoordinatorConfig
from bigfleet.services.coordinator.etcd_supervisor import EtcdSupervisor
from bigfleet.services.coordinator.failover_causes import FailoverCauses
from bigfleet.services.coordinator.handlers import LeaderHandlers, release_orphans
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.membership import Membership
from bigfleet.services.coordinator.servicer import CoordinatorService
from bigfleet.tasks import cancel_and_wait, run_until_first_completes, wait_stopped_or_failed

_JOIN_TIMEOUT_SECONDS = 30.0


async def join_cluster(config: CoordinatorConfig) -> None:
    """Returns once the leader has this replica among its members; at once if it ever was.

    Unavailable when none of `config.join` leads, BigFleetError when the leader refuses.
    """
    if config.member().data.exists():
        return
    request = wire.JoinRaftClusterRequest(
        node_id=config.node_id,
        raft_address=config.peers[config.node_id],
        raft_addresses=config.peers.values(),
    )
    async with LeaderClient(config.join, config.identity) as client:
        await client.call("JoinRaftCluster", request, _JOIN_TIMEOUT_SECONDS)


_LOG = logging.getLogger(__name__)
# Whoever calls, calls another replica next.
_STOP_GRACE_SECONDS = 0.2
_HOUSEKEEPING_INTERVAL_SECONDS = 1.0
# As much as cluster software commonly takes; real-time needs no less than a machine of its own.
_NICENESS = -10
_AUTOGROUP_NICENESS = Path("/proc/self/autogroup")


@dataclass(frozen=True)
class RunningReplica:
    """A replica that answers on `port`. `work` ends only when it cannot go on."""

    port: int
    leadership: Leadership
    work: asyncio.Task[None]


async def run(config: CoordinatorConfig, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then hand over and close.

    Raises InvalidInput for settings that cannot work, Unavailable when etcd cannot run here or an
    address is taken, BigFleetError when the stored state cannot be read.
    """
    _raise_priority()
    with bounded_gc_pauses():  # a long one would pass for a stall, and cost leadership
        async with serving(config) as serves:
            await wait_stopped_or_failed(stop, serves.work)
            await serves.leadership.resign()


@asynccontextmanager
async def serving(config: CoordinatorConfig) -> AsyncIterator[RunningReplica]:
    """A replica that serves inside the `async with`."""
    async with AsyncExitStack() as closing:
        holder = f"coordinator {config.node_id}"
        closing.callback(DirectoryLock("--state", config.state_directory, holder).release)
        store = EtcdStore(config.member().socket)
        closing.push_async_callback(store.close)
        etcd_supervisor = EtcdSupervisor(config.member())
        server = transport.server(config.identity)
        address = f"{config.listen_host}:{config.listen_port}"
        port = transport.listen(server, address, config.identity)
        replica = Replica(config.node_id, config.advertised or f"{config.listen_host}:{port}")
        failover_causes = FailoverCauses(config.identity)
        leadership = Leadership(
            replica, store, etcd_supervisor.keepalive, failover_causes, SystemClock()
        )
        scheme = "https" if config.identity else "http"
        membership = Membership(store, config.node_id, scheme)
        service = CoordinatorService(
            leadership,
            LeaderHandlers(config.expected_shards),
            membership,
            lambda: etcd_supervisor.health,
        )
        add_CoordinatorServicer_to_server(service, server)
        observed = await health.serve(
            config.observe_host, config.observe_port, leadership.not_ready
        )
        closing.push_async_callback(observed.cleanup)
        if config.join:
            await join_cluster(config)
        closing.push_async_callback(etcd_supervisor.stop)
        work = asyncio.create_task(_work(etcd_supervisor, leadership, membership))
        closing.push_async_callback(cancel_and_wait, work)
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        _log_start(config, port)
        yield RunningReplica(port, leadership, work)


def _raise_priority() -> None:
    """Ask for the CPU before others, also for etcd and the watchdog, which inherit it.

    The three need little, but a leader that is kept from the CPU for half a second loses its term.
    Without the right to ask, they are scheduled like everybody else.

    Where Linux groups processes by session, niceness counts within a session only, and the session
    has one of its own; it is changed when it was begun for this replica alone.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            _AUTOGROUP_NICENESS.write_text(str(_NICENESS))
    _LOG.info("scheduled", extra={"niceness": os.getpriority(os.PRIO_PROCESS, 0)})


async def _work(
    etcd_supervisor: EtcdSupervisor, leadership: Leadership, membership: Membership
) -> None:
    """All that goes on by itself; the first part to fail ends the replica."""
    housekeeping = _housekeeping(etcd_supervisor, leadership, membership)
    await run_until_first_completes(etcd_supervisor.run(), leadership.run(), housekeeping)


async def _housekeeping(
    etcd_supervisor: EtcdSupervisor, leadership: Leadership, membership: Membership
) -> None:
    """What is seen to in passing, most of it by the leader alone."""
    while True:
        await asyncio.sleep(_HOUSEKEEPING_INTERVAL_SECONDS)
        await etcd_supervisor.rotate_log()
        leader_term = leadership.leader_term
        if leader_term is not None:
            try:
                await membership.promote_learners()
                await release_orphans(leader_term)
            except Unavailable as error:
                _LOG.debug("chores wait: %s", error)
            except BigFleetError as error:
                _LOG.warning("chores wait: %s", error)


def _log_start(config: CoordinatorConfig, port: int) -> None:
    replicas: Sequence[str] = sorted(config.peers)
    fields = {"replica": config.node_id, "port": port, "replicas": replicas}
    _LOG.info("serving", extra=fields)
