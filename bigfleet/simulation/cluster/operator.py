"""A simulated operator: production's roll-ups, and reclaims on a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, cast

import msgspec

from bigfleet.api.overhead_codec import overheads_to_wire
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.controllers.operator.daemonsets import summed
from bigfleet.controllers.operator.node_health import Machines
from bigfleet.controllers.operator.node_types import NodeTaint
from bigfleet.controllers.operator.phase_effects import Removal, phase_effects
from bigfleet.controllers.operator.rollup import Pace, RollUpSender
from bigfleet.controllers.operator.shard_addresses import ShardAddressList
from bigfleet.controllers.operator.short_conditions import ShortConditions
from bigfleet.controllers.pod_controller.nodes import RawUpcomingNode
from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import Unavailable
from bigfleet.model.machine import MachineState
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.sessions.registry import Sessions
from bigfleet.services.shard.sessions.session import Session
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.disruption import Disruption
from bigfleet.simulation.cluster.node_limits import SimulatedNodeLimits
from bigfleet.simulation.cluster.scheduler import SimulatedNode
from bigfleet.simulation.runtime.faults import FaultInjector
from bigfleet.tasks import run_until_first_completes

PACE = Pace(10.0)
RECONNECT_SECONDS = 0.5
EVICTION_RETRY_SECONDS = 2.0
CONDITIONS_PER_SECOND = 50.0
_REQUESTS = ("bootstrap_request", "reclaim_instruction", "disruption_inquiry")


# Opens a session of a cluster with the shard at an address, or returns its redirect; Unavailable if
# the shard does not respond.
OpenSession = Callable[[str, str], Awaitable[Sessions | shard_pb2.Redirect]]


class SimulatedOperator:
    """Connects `cluster` to whichever of the shards at `addresses` serves it."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        injector: FaultInjector,
        clock: Clock,
        open_session: OpenSession,
        addresses: Sequence[str],
    ) -> None:
        self.online = True
        self._cluster, self._injector, self._clock, self._open_session = (
            cluster,
            injector,
            clock,
            open_session,
        )
        self._shard_addresses = ShardAddressList(addresses)
        self._disruption = Disruption(cluster)
        self._phases: dict[str, str] = {}
        self._described: dict[str, dict[str, Any]] = {}
        now = clock.unix_seconds
        self._limits = SimulatedNodeLimits(cluster, self._in_service, now)
        taken = summed(d.overhead for d in cluster.daemons if d.overhead is not None)
        self._rollups = RollUpSender(
            cluster.name,
            cluster.requests.request_cache,
            PACE,
            lambda *_: None,
            now,
            lambda: overheads_to_wire(taken),
            limits=self._limits.current,
        )
        writer = cast(KubeClient, cluster.requests)  # it implements patching of conditions
        request_cache = cluster.requests.request_cache
        self._short = ShortConditions(writer, request_cache, CONDITIONS_PER_SECOND, now)
        self._last_sent = capacity_pb2.ClusterCapacityNeeds()
        self._sessions: Sessions | None = None
        self._session: Session | None = None
        self._answers: dict[str, asyncio.Future[shard_pb2.Acknowledgement]] = {}
        self._deadlines: dict[SimulatedNode, float] = {}
        self._joining: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Connect and reconnect until cancelled."""
        await run_until_first_completes(self._dial(), self._short.run())

    async def _dial(self) -> None:
        while True:
            if self.online:
                await self._follow()
                self._shard_addresses.failed()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _follow(self) -> None:
        """One session, with the shard that another one names if it does not serve us itself; a
        second redirect in a row is a failure.
        """
        try:
            answer = await self._open_session(self._shard_addresses.address, self._cluster.name)
            if isinstance(answer, shard_pb2.Redirect):
                self._shard_addresses.redirected(answer.address)
                answer = await self._open_session(answer.address, self._cluster.name)
        except Unavailable:
            return
        if isinstance(answer, Sessions) and self.online:
            self._shard_addresses.served()
            await self._serve(answer)

    def disconnect(self) -> None:
        """Close the session, if there is one."""
        if self._session is not None:
            self._session.end()

    async def deliver(self, rollup: capacity_pb2.ClusterCapacityNeeds) -> shard_pb2.Acknowledgement:
        """Send a roll-up, possibly with an injected fault; return the shard's response."""
        if self._injector.occurs("rollup_stale") and self._last_sent.cluster_id:
            last, rollup = self._last_sent, _emptied(rollup)
            rollup.needs.extend(last.needs)
            rollup.node_limits.extend(last.node_limits)
        elif self._injector.occurs("rollup_empty"):
            rollup = _emptied(rollup)
        self._last_sent = rollup
        echo = str(rollup.timestamp_unix_nanos)
        answer: asyncio.Future[shard_pb2.Acknowledgement]
        answer = self._answers[echo] = asyncio.get_running_loop().create_future()
        self._send(rollup=rollup)
        return await answer

    def report_too_large(self, too_large: shard_pb2.RollUpTooLarge) -> None:
        """As in production's operator."""
        self._send(rollup_too_large=too_large)

    async def _serve(self, sessions: Sessions) -> None:
        hello = shard_pb2.Hello(cluster_id=self._cluster.name)
        self._sessions, session = sessions, sessions.open(hello)
        self._session = session
        ours = sorted({*self._cluster.nodes, *self._phases})
        now = self._clock.unix_seconds()
        drains = [
            shard_pb2.NodeDrain(machine_id=node.name, seconds_left=max(0, int(deadline - now)))
            for node, deadline in self._deadlines.items()
        ]
        self._send(inquiry=shard_pb2.NodeStateInquiry(machine_ids=ours, drains=drains))
        try:
            await run_until_first_completes(self._receive(session), self._rollups.send_over(self))
        finally:
            self._session = None
            self._answers.clear()
            sessions.close(session)

    async def _receive(self, session: Session) -> None:
        async for message in session.outbox.drain():
            await self._injector.delay("answer")
            silent = self._cluster.name == self._injector.broken.silent_operator
            if not (silent and message.WhichOneof("message") in _REQUESTS):
                self._handle(message)

    def _handle(self, message: shard_pb2.ShardMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "ack":
            waiting = self._answers.pop(message.ack.echo, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.ack)
        elif kind == "bootstrap_request":
            self._send(bootstrap_response=self._blob(message.bootstrap_request))
        elif kind == "reclaim_instruction":
            self._reclaim(message.reclaim_instruction)
        elif kind == "disruption_inquiry":
            self._cluster.surplus.name(message.disruption_inquiry.surplus_machine_ids)
            self._send(disruption_report=self._disruption.report(message.disruption_inquiry))
        elif kind == "demand_status":
            self._short.enqueue(message.demand_status)
        elif kind == "node_state_update":
            self._on_node_state(message.node_state_update)

    def _blob(self, request: shard_pb2.BootstrapRequest) -> shard_pb2.BootstrapBlobResponse:
        self._joining.add(request.machine_id)
        self._limits.forget(request.machine_id)
        leftover = self._cluster.nodes.get(request.machine_id)
        if leftover is not None and leftover.leaving:
            self._cluster.leave(leftover.name)
        if self._injector.occurs("bootstrap_refused"):
            return shard_pb2.BootstrapBlobResponse(
                request_id=request.request_id, error="no credential (injected fault)"
            )
        blob = f"join {request.cluster_id} as {request.machine_id}".encode()
        return shard_pb2.BootstrapBlobResponse(request_id=request.request_id, user_data=blob)

    def _reclaim(self, instruction: shard_pb2.ReclaimInstruction) -> None:
        """Cordon and start to drain, unless that costs too much; the response may be lost."""
        nodes = [self._cluster.nodes[n] for n in instruction.nodes if n in self._cluster.nodes]
        ack = shard_pb2.ReclaimAck(instruction_id=instruction.instruction_id)
        waiting = [n.name for n in nodes if not (n.leaving or self._limits.is_broken(n.name))]
        if instruction.gang and waiting and not self._disruption.runs(instruction.gang, waiting):
            ack.refused = f"no pod of {instruction.gang} runs there"
        elif instruction.HasField("max_cost"):
            ack.refused = self._disruption.rejection_reason(waiting, instruction.max_cost)
        if not ack.refused:
            ack.nodes_started = len(instruction.nodes)
            deadline = self._clock.unix_seconds() + instruction.grace_period_seconds
            for node in nodes:
                node.cordoned = node.leaving = True
                self._start_drain(node, deadline)
        if not self._injector.occurs("reclaim_unanswered"):
            self._send(reclaim_ack=ack)

    def _start_drain(self, node: SimulatedNode, deadline: float) -> None:
        under_way = node in self._deadlines
        self._deadlines[node] = deadline
        if not under_way:
            self._spawn(self._drain(node))

    async def _drain(self, node: SimulatedNode) -> None:
        """Drain until it is empty, its grace period is over, or it was deleted or replaced."""
        while self._clock.unix_seconds() < self._deadlines[node]:
            await self._injector.delay("eviction")
            if self._cluster.nodes.get(node.name) is not node:
                break
            for pod in self._cluster.pods_on(node.name):
                self._cluster.evict(pod)
            if not self._cluster.pods_on(node.name):
                self._cluster.leave(node.name)
                break
            await asyncio.sleep(EVICTION_RETRY_SECONDS)
        del self._deadlines[node]

    def _in_service(self) -> Machines:
        """The machines that the shard reports as serving this cluster, with their taints."""
        return {
            machine_id: self._taints_of(machine_id)
            for machine_id, phase in self._phases.items()
            if phase == "Ready"
        }

    def _taints_of(self, machine_id: str) -> Collection[NodeTaint] | None:
        described = self._described.get(machine_id)
        if described is None:
            return None
        return msgspec.convert(described["taints"], frozenset[NodeTaint])

    def _on_node_state(self, update: shard_pb2.NodeStateUpdate) -> None:
        """Keep or delete the machine's Node and UpcomingNode, by production's rules."""
        machine_id, state = update.machine_id, MachineState(update.state)
        if state is not MachineState.IDLE:
            self._joining.discard(machine_id)
        joining = machine_id in self._joining
        step = phase_effects(self._phases.pop(machine_id, None), state, joining=joining)
        if step.phase is not None:
            self._phases[machine_id] = step.phase
        self._expect(update, step.phase)
        node = self._cluster.nodes.get(machine_id)
        if node is None or step.removal is Removal.NONE:
            return
        if node.leaving or step.removal is Removal.ANY:
            self._cluster.leave(machine_id)

    def _expect(self, update: shard_pb2.NodeStateUpdate, phase: str | None) -> None:
        """Update the pod controller's UpcomingNodes."""
        described = {
            "resources": dict(update.resources.resources),
            "labels": dict(update.labels),
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in update.taints],
        }
        if described["resources"]:
            self._described[update.machine_id] = described
        upcoming = {
            "metadata": {"name": update.machine_id},
            "spec": self._described.get(update.machine_id, described),
            "status": {"phase": phase or ""},
        }
        coming = msgspec.convert(upcoming, RawUpcomingNode).read()
        self._cluster.controller.occupancy.set_upcoming(update.machine_id, coming)

    def _send(self, **message: Any) -> None:
        if self._session is not None and self._sessions is not None:
            self._sessions.receive(self._session, shard_pb2.OperatorMessage(**message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _emptied(rollup: capacity_pb2.ClusterCapacityNeeds) -> capacity_pb2.ClusterCapacityNeeds:
    return capacity_pb2.ClusterCapacityNeeds(
        cluster_id=rollup.cluster_id, timestamp_unix_nanos=rollup.timestamp_unix_nanos
    )
