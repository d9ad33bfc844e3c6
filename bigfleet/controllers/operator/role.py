"""The operator as a role."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bigfleet.api.identity import Identity
from bigfleet.api.install import RIGHTS, SYSTEM_NAMESPACE
from bigfleet.api.kube.client import NO_ANSWER, ApiError, KubeClient
from bigfleet.api.v1alpha1.shard_pb2 import (
    BootstrapRequest,
    DisruptionInquiry,
    OperatorMessage,
    ReclaimInstruction,
    ShardMessage,
)
from bigfleet.controllers.access import connect
from bigfleet.controllers.leading import Leadership, LeaseName, Term, replica_name
from bigfleet.controllers.operator.acknowledge import Acknowledger
from bigfleet.controllers.operator.bootstrap import Bootstrap, Credentials
from bigfleet.controllers.operator.daemonsets import DaemonSets
from bigfleet.controllers.operator.disruptions import Disruptions
from bigfleet.controllers.operator.hints import Hints
from bigfleet.controllers.operator.ledger import Ledger
from bigfleet.controllers.operator.node_limits import NodeLimits
from bigfleet.controllers.operator.nodes import NodeStates
from bigfleet.controllers.operator.reclaim import Reclaims
from bigfleet.controllers.operator.rollup import Rollups
from bigfleet.controllers.operator.session import Dialer, Session
from bigfleet.controllers.operator.short_conditions import ShortConditions
from bigfleet.observe import health
from bigfleet.tasks import run_until_stopped

_LOG = logging.getLogger(__name__)
_CONCURRENT_ORDERS = 32
_READ_AGAIN_SECONDS = 1.0
_LEASE = LeaseName(SYSTEM_NAMESPACE, "bigfleet-operator", RIGHTS)


@dataclass(frozen=True)
class Settings:
    """Without a `kubeconfig` the operator serves the cluster that its own pod runs in.

    `shard_addresses` are host:port each; one shard that answers is enough.
    `api_server_for_machines` and `ca_pem_for_machines` are what a joining machine is given; None
    means what the operator itself uses. A roll-up is sent `debounce_seconds` after a change and at
    the latest every `rollup_seconds`. At most `acknowledge_per_second` requests are told that they
    are known; 0 tells none. At most `short_conditions_per_second` are told that they are short, or
    are not any more. Without an `identity` it dials plaintext. Of several operators of one cluster
    the one that holds a Lease of `lease_seconds` works; `replica` tells them apart, by default the
    host's name with a random number. A Node that is not Ready for `node_hold_seconds` is broken.
    """

    cluster_id: str
    shard_addresses: Sequence[str]
    kubeconfig: Path | None
    observe_port: int
    observe_host: str = "127.0.0.1"
    api_server_for_machines: str | None = None
    ca_pem_for_machines: str | None = None
    rollup_seconds: float = 10.0
    debounce_seconds: float = 0.2
    acknowledge_per_second: float = 50.0
    short_conditions_per_second: float = 50.0
    identity: Identity | None = None
    lease_seconds: float = 12.0
    node_hold_seconds: float = 300.0
    replica: str = ""


class Operator:
    """All of the operator's parts, and which message goes to which of them."""

    def __init__(self, settings: Settings, client: KubeClient) -> None:
        self._client = client
        ledger = self._ledger = Ledger()
        pace = settings.acknowledge_per_second
        self._acknowledger = Acknowledger(client, ledger, pace, time.time)
        self._daemon_sets = DaemonSets(client, ledger.changed.set)
        pace = settings.short_conditions_per_second
        self._short = ShortConditions(client, ledger, pace, time.time)
        self._credentials = Credentials(client)
        self._nodes = NodeStates(client, self._credentials, time.time)
        hold_seconds = settings.node_hold_seconds
        self._limits = NodeLimits(client, self._nodes, hold_seconds, ledger.changed.set)
        self._rollups = Rollups(
            settings.cluster_id,
            ledger,
            settings.rollup_seconds,
            settings.debounce_seconds,
            self._acknowledger.accepted,
            time.monotonic,
            self._daemon_sets.overheads,
            self._short.refuse,
            self._limits.current,
            self._short.withhold,
        )
        self._bootstrap = Bootstrap(
            client,
            self._credentials,
            settings.api_server_for_machines or client.server,
            client.ca_pem if settings.ca_pem_for_machines is None else settings.ca_pem_for_machines,
            self._expect,
        )
        self._disruptions = Disruptions(client, time.time)
        self._reclaims = Reclaims(client, time.time, self._disruptions.of, self._limits.is_broken)
        self._hints = Hints(client)
        addresses, identity = settings.shard_addresses, settings.identity
        self._dialer = Dialer(
            addresses, settings.cluster_id, self, random.random, identity=identity
        )
        self._orders = asyncio.Semaphore(_CONCURRENT_ORDERS)
        self._tasks: set[asyncio.Task[None]] = set()

    def not_ready(self) -> str:
        """Why the cluster is not served yet; "" once it is."""
        return self._ledger.not_ready() or self._dialer.not_ready()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._ledger.follow(self._client))
                loops.create_task(self._daemon_sets.run())
                loops.create_task(self._limits.run())
                loops.create_task(self._acknowledger.run())
                loops.create_task(self._nodes.run())
                loops.create_task(self._hints.run())
                loops.create_task(self._short.run())
                loops.create_task(self._disruptions.run())
                loops.create_task(self._serve_shard())
        finally:
            for task in self._tasks:
                task.cancel()
            await self._reclaims.close()

    async def _serve_shard(self) -> None:
        """What an earlier operator left comes first: the shard's replay must meet it known."""
        await self._until_done("UpcomingNodes", self._nodes.load)
        await self._until_done("reclaims under way", self._reclaims.resume)
        await self._until_done("old credentials", lambda: self._credentials.sweep(time.time()))
        await self._daemon_sets.known()
        await self._limits.known()
        await self._dialer.run()

    async def _expect(self, machine_id: str) -> None:
        await self._nodes.expect(machine_id)
        self._limits.forget(machine_id)

    async def _until_done(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await step()
            except (ApiError, *NO_ANSWER) as error:
                _LOG.warning("cannot read %s yet: %s", what, str(error) or repr(error))
            await asyncio.sleep(_READ_AGAIN_SECONDS)

    async def send_rollups(self, session: Session) -> None:
        """Speak for the cluster while `session` is open."""
        inquiring = asyncio.create_task(self._until_done("our Nodes", partial(self._ask, session)))
        sweeping = asyncio.create_task(self._hints.sweep())
        try:
            await self._rollups.send_over(session)
        finally:
            inquiring.cancel()
            sweeping.cancel()

    async def _ask(self, session: Session) -> None:
        """What has become of our machines? While we were away nobody could tell us."""
        session.send(OperatorMessage(inquiry=await self._nodes.inquiry()))

    def handle(self, message: ShardMessage, session: Session) -> None:
        """Take on what the shard orders; answers go over `session`."""
        match message.WhichOneof("message"):
            case "bootstrap_request":
                self._spawn(self._answer_bootstrap(message.bootstrap_request, session))
            case "reclaim_instruction":
                self._spawn(self._answer_reclaim(message.reclaim_instruction, session))
            case "node_state_update":
                self._nodes.offer(message.node_state_update)
            case "available_capacity":
                self._hints.offer(message.available_capacity)
            case "demand_status":
                self._short.offer(message.demand_status)
            case "disruption_inquiry":
                self._spawn(self._answer_inquiry(message.disruption_inquiry, session))
            case unknown:
                _LOG.warning(
                    "the shard sent a message that this version does not know: %s", unknown
                )

    async def _answer_bootstrap(self, request: BootstrapRequest, session: Session) -> None:
        async with self._orders:
            response = await self._bootstrap.answer(request)
        session.send(OperatorMessage(bootstrap_response=response))

    async def _answer_reclaim(self, instruction: ReclaimInstruction, session: Session) -> None:
        async with self._orders:
            ack = await self._reclaims.begin(instruction)
        if ack is not None:
            session.send(OperatorMessage(reclaim_ack=ack))

    async def _answer_inquiry(self, inquiry: DisruptionInquiry, session: Session) -> None:
        try:
            async with self._orders:
                report = await self._disruptions.report(inquiry)
        except (ApiError, *NO_ANSWER) as error:
            _LOG.error("cannot say what a reclaim would disturb: %s", str(error) or repr(error))
        else:
            session.send(OperatorMessage(disruption_report=report))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _LOG.error("an order of the shard could not be carried out", exc_info=error)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. InvalidInput when there is no access to a cluster."""
    async with await connect(settings.kubeconfig) as client:
        leadership = Leadership(
            client,
            _LEASE,
            settings.replica or replica_name(),
            time.monotonic,
            settings.lease_seconds,
        )
        term = Term(leadership, lambda: Operator(settings, client))
        observer = await health.serve(settings.observe_host, settings.observe_port, term.not_ready)
        try:
            await run_until_stopped(stop, term.run())
        finally:
            await observer.cleanup()
