"""The process of a coordinator replica: etcd member, leadership, gRPC server."""

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
from bigfleet.services.coordinator.handlers import LeaderHandlers
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.membership import Membership
from bigfleet.services.coordinator.servicer import CoordinatorService
from bigfleet.tasks import cancel_and_wait, run_until_first_completes, wait_stopped_or_failed

_JOIN_TIMEOUT_SECONDS = 30.0


async def join_cluster(config: CoordinatorConfig) -> None:
    """Return once the leader has added this replica; at once if it has etcd data already.

    Unavailable when none of `config.join` leads, BigFleetError when the leader rejects it.
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
# Clients retry on another replica.
_STOP_GRACE_SECONDS = 0.2
_HOUSEKEEPING_INTERVAL_SECONDS = 1.0
# A common value for cluster software; real-time scheduling would need a dedicated machine.
_NICENESS = -10
_AUTOGROUP_NICENESS = Path("/proc/self/autogroup")


@dataclass(frozen=True)
class RunningReplica:
    """A replica that serves on `port`. `work` ends only on a fatal error."""

    port: int
    leadership: Leadership
    work: asyncio.Task[None]


async def run(config: CoordinatorConfig, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then hand over and close.

    InvalidInput for an unusable configuration, Unavailable when etcd cannot run here or an address
    is in use, BigFleetError when the stored state cannot be read.
    """
    _raise_priority()
    with bounded_gc_pauses():  # a long pause would cost leadership
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
        handlers = LeaderHandlers(config.expected_shards)
        service = CoordinatorService(
            leadership,
            handlers,
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
        work = asyncio.create_task(_work(etcd_supervisor, leadership, membership, handlers))
        closing.push_async_callback(cancel_and_wait, work)
        await server.start()
        closing.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        _log_start(config, port)
        yield RunningReplica(port, leadership, work)


def _raise_priority() -> None:
    """Raise the scheduling priority, also of etcd and the watchdog, which inherit it.

    They need little CPU, but a leader without CPU for half a second loses its term. Without the
    permission, the priority stays normal.

    With Linux autogroups, niceness applies within a session only, and the session has its own; it
    is changed when this process leads the session.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            _AUTOGROUP_NICENESS.write_text(str(_NICENESS))
    _LOG.info("scheduling priority", extra={"niceness": os.getpriority(os.PRIO_PROCESS, 0)})


async def _work(
    etcd_supervisor: EtcdSupervisor,
    leadership: Leadership,
    membership: Membership,
    handlers: LeaderHandlers,
) -> None:
    """Run the background tasks; the first to fail ends the replica."""
    housekeeping = _housekeeping(etcd_supervisor, leadership, membership, handlers)
    await run_until_first_completes(etcd_supervisor.run(), leadership.run(), housekeeping)


async def _housekeeping(
    etcd_supervisor: EtcdSupervisor,
    leadership: Leadership,
    membership: Membership,
    handlers: LeaderHandlers,
) -> None:
    """Rotate etcd's log; on the leader, promote learners, free orphaned rows and move domains."""
    while True:
        await asyncio.sleep(_HOUSEKEEPING_INTERVAL_SECONDS)
        await etcd_supervisor.rotate_log()
        leader_term = leadership.leader_term
        if leader_term is not None:
            try:
                await membership.promote_learners()
                await handlers.release_orphans(leader_term)
                await handlers.rebalance(leader_term)
            except Unavailable as error:
                _LOG.debug("housekeeping deferred: %s", error)
            except BigFleetError as error:
                _LOG.warning("housekeeping failed: %s", error)


def _log_start(config: CoordinatorConfig, port: int) -> None:
    replicas: Sequence[str] = sorted(config.peers)
    fields = {"replica": config.node_id, "port": port, "replicas": replicas}
    _LOG.info("serving", extra=fields)
