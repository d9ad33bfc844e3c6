"""The operator role: configuration, wiring and leader election."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from bigfleet.api.auth.identity import Identity
from bigfleet.api.install import RBAC_MANIFEST, SYSTEM_NAMESPACE
from bigfleet.api.v1alpha1.shard_pb2 import (
    BootstrapRequest,
    DisruptionInquiry,
    OperatorMessage,
    ReclaimInstruction,
    ShardMessage,
)
from bigfleet.controllers.leader_election import (
    LeaderElectedRunner,
    LeaderElector,
    LeaseName,
    replica_name,
)
from bigfleet.controllers.operator.acknowledger import Acknowledger
from bigfleet.controllers.operator.available_capacity import AvailableCapacityPublisher
from bigfleet.controllers.operator.bootstrap import Bootstrap, Credentials
from bigfleet.controllers.operator.daemonsets import DaemonSets
from bigfleet.controllers.operator.disruptions import Disruptions
from bigfleet.controllers.operator.node_limits import NodeLimits
from bigfleet.controllers.operator.reclaim import Reclaimer
from bigfleet.controllers.operator.request_cache import RequestCache
from bigfleet.controllers.operator.rollup import Pace, RollUpSender
from bigfleet.controllers.operator.session import Dialer, Session
from bigfleet.controllers.operator.short_conditions import ShortConditions
from bigfleet.controllers.operator.surplus_nodes import SurplusNodes
from bigfleet.controllers.operator.upcoming_nodes import UpcomingNodeController
from bigfleet.flags import KUBECONFIG, LEASE, OBSERVE, REPLICA, Flag, parse_addresses
from bigfleet.kube.access import connect
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from bigfleet.observe import health
from bigfleet.tasks import run_until_stopped

_LOG = logging.getLogger(__name__)
_MAX_CONCURRENT_REQUESTS = 32
_RETRY_INTERVAL_SECONDS = 1.0
_SHORT_CONDITIONS_PER_SECOND = 50.0
_LEASE = LeaseName(SYSTEM_NAMESPACE, "bigfleet-operator", RBAC_MANIFEST)


@dataclass(frozen=True)
class OperatorConfig:
    """Without a `kubeconfig` the operator serves the cluster that its pod runs in.

    `shard_addresses` are host:port each; one reachable shard is enough. `api_server_for_machines`
    is given to joining machines, by default the one that the operator itself uses; they trust the
    operator's authorities. A roll-up is sent at least every `rollup_seconds`. At most
    `acknowledge_per_second` requests are acknowledged, none for 0. Without an `identity` it dials
    plaintext.
    Operators of one cluster elect a leader by a Lease of `lease_seconds`, in which they are named
    `replica`, by default the host's name with a random suffix. A Node that is not Ready for
    `node_ready_timeout_seconds` is broken.
    """

    cluster_id: Annotated[str, Flag("--cluster-id", "name of this cluster in the fleet", "ID")]
    shard_addresses: Annotated[
        Sequence[str],
        Flag(
            "--shard",
            "some shards; any of them names the one that serves this cluster",
            "HOST:PORT,...",
            parse_addresses,
        ),
    ]
    kubeconfig: Annotated[Path | None, KUBECONFIG]
    observe_port: Annotated[int, OBSERVE]
    observe_host: str = "127.0.0.1"
    api_server_for_machines: Annotated[
        str | None,
        Flag(
            "--api-server-for-machines",
            "API server that machines join (default: the operator's)",
            "URL",
        ),
    ] = None
    rollup_seconds: Annotated[
        float, Flag("--rollup-interval", "longest time between two roll-ups", "SECONDS")
    ] = 10.0
    acknowledge_per_second: Annotated[
        float,
        Flag(
            "--acknowledgement-qps",
            "status writes per second that acknowledge CapacityRequests; 0 for none, as they cost "
            "a write per pod",
            "N",
        ),
    ] = 0.0
    identity: Identity | None = None
    lease_seconds: Annotated[float, LEASE] = 12.0
    node_ready_timeout_seconds: Annotated[
        float,
        Flag(
            "--node-ready-timeout",
            "after which a Node that is missing or not Ready counts as broken",
            "SECONDS",
        ),
    ] = 300.0
    replica: Annotated[str, REPLICA] = ""


class Operator:
    """Wires the operator's components, and dispatches the shard's messages to them."""

    def __init__(self, config: OperatorConfig, client: KubeClient) -> None:
        self._client = client
        request_cache = self._request_cache = RequestCache()
        pace = config.acknowledge_per_second
        self._acknowledger = Acknowledger(client, request_cache, pace, time.time)
        self._daemon_sets = DaemonSets(client, request_cache.changed.set)
        self._short = ShortConditions(
            client, request_cache, _SHORT_CONDITIONS_PER_SECOND, time.time
        )
        self._credentials = Credentials(client)
        self._nodes = UpcomingNodeController(client, self._credentials, time.time)
        ready_timeout_seconds = config.node_ready_timeout_seconds
        self._limits = NodeLimits(
            client, self._nodes, ready_timeout_seconds, request_cache.changed.set
        )
        self._rollups = RollUpSender(
            config.cluster_id,
            request_cache,
            Pace(config.rollup_seconds),
            self._acknowledger.accepted,
            time.monotonic,
            self._daemon_sets.overheads,
            self._short.set_rejected,
            self._limits.current,
            self._short.set_withheld,
        )
        self._bootstrap = Bootstrap(
            client,
            self._credentials,
            config.api_server_for_machines or client.server,
            client.ca_pem,
            self._prepare_join,
        )
        self._disruptions = Disruptions(client, time.time)
        self._reclaimer = Reclaimer(
            client, time.time, self._disruptions.rejection_reason, self._limits.is_broken
        )
        self._surplus = SurplusNodes(client, time.monotonic)
        self._availability = AvailableCapacityPublisher(client)
        addresses, identity = config.shard_addresses, config.identity
        self._dialer = Dialer(addresses, config.cluster_id, self, random.random, identity=identity)
        self._request_slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()

    def not_ready(self) -> str:
        """Why the operator is not ready; "" once it is."""
        return self._request_cache.not_ready() or self._dialer.not_ready()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._request_cache.follow(self._client))
                loops.create_task(self._daemon_sets.run())
                loops.create_task(self._limits.run())
                loops.create_task(self._acknowledger.run())
                loops.create_task(self._nodes.run())
                loops.create_task(self._availability.run())
                loops.create_task(self._short.run())
                loops.create_task(self._disruptions.run())
                loops.create_task(self._surplus.run())
                loops.create_task(self._serve_shard())
        finally:
            for task in self._tasks:
                task.cancel()
            await self._reclaimer.close()

    async def _serve_shard(self) -> None:
        """Load the state of a previous operator first: the shard's replay depends on it."""
        await self._retry("UpcomingNodes", self._nodes.load)
        await self._retry("reclaims in progress", self._reclaimer.resume)
        await self._retry("taints of surplus machines", self._surplus.load)
        await self._retry("old credentials", lambda: self._credentials.sweep(time.time()))
        await self._daemon_sets.wait_listed()
        await self._limits.wait_listed()
        await self._dialer.run()

    async def _prepare_join(self, machine_id: str) -> None:
        await self._nodes.prepare_join(machine_id)
        self._limits.forget(machine_id)
        self._disruptions.forget(machine_id)

    async def _retry(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await step()
            except (ApiError, *CONNECTION_ERRORS) as error:
                _LOG.warning("cannot read %s yet: %s", what, str(error) or repr(error))
            await asyncio.sleep(_RETRY_INTERVAL_SECONDS)

    async def send_rollups(self, session: Session) -> None:
        """Send the cluster's roll-ups while `session` is open."""
        inquiring = asyncio.create_task(self._retry("Nodes", partial(self._send_inquiry, session)))
        sweeping = asyncio.create_task(self._availability.sweep())
        try:
            await self._rollups.send_over(session)
        finally:
            inquiring.cancel()
            sweeping.cancel()

    async def _send_inquiry(self, session: Session) -> None:
        """Ask for the states of this cluster's machines, which may have changed meanwhile."""
        session.send(OperatorMessage(inquiry=await self._nodes.inquiry()))

    def handle(self, message: ShardMessage, session: Session) -> None:
        """Handle a message of the shard; answers go over `session`."""
        match message.WhichOneof("message"):
            case "bootstrap_request":
                self._spawn(self._answer_bootstrap(message.bootstrap_request, session))
            case "reclaim_instruction":
                self._spawn(self._answer_reclaim(message.reclaim_instruction, session))
            case "node_state_update":
                self._nodes.enqueue(message.node_state_update)
            case "available_capacity":
                self._availability.enqueue(message.available_capacity)
            case "demand_status":
                self._short.enqueue(message.demand_status)
            case "disruption_inquiry":
                self._surplus.name(message.disruption_inquiry.surplus_machine_ids)
                self._spawn(self._answer_inquiry(message.disruption_inquiry, session))
            case unknown:
                _LOG.warning("the shard sent a message unknown to this version: %s", unknown)

    async def _answer_bootstrap(self, request: BootstrapRequest, session: Session) -> None:
        async with self._request_slots:
            response = await self._bootstrap.answer(request)
        session.send(OperatorMessage(bootstrap_response=response))

    async def _answer_reclaim(self, instruction: ReclaimInstruction, session: Session) -> None:
        async with self._request_slots:
            ack = await self._reclaimer.start(instruction)
        if ack is not None:
            session.send(OperatorMessage(reclaim_ack=ack))

    async def _answer_inquiry(self, inquiry: DisruptionInquiry, session: Session) -> None:
        try:
            async with self._request_slots:
                report = await self._disruptions.report(inquiry)
        except (ApiError, *CONNECTION_ERRORS) as error:
            _LOG.error("cannot assess disruption: %s", str(error) or repr(error))
        else:
            session.send(OperatorMessage(disruption_report=report))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _LOG.error("handling a message of the shard failed", exc_info=error)


async def run(config: OperatorConfig, stop: asyncio.Event) -> None:
    """Run until `stop` is set; InvalidInput without access to a cluster."""
    async with await connect(config.kubeconfig) as client:
        elector = LeaderElector(
            client,
            _LEASE,
            config.replica or replica_name(),
            time.monotonic,
            config.lease_seconds,
        )
        runner = LeaderElectedRunner(elector, lambda: Operator(config, client))
        observer = await health.serve(config.observe_host, config.observe_port, runner.not_ready)
        try:
            await run_until_stopped(stop, runner.run())
        finally:
            await observer.cleanup()
