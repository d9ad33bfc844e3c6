"""A cluster's operator in the simulation: real roll-ups, and reclaims on a pretended cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.controllers.operator.passage import Removal, passage
from bigfleet.controllers.operator.rollup import Rollups
from bigfleet.model.machine import MachineState
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.session import Session
from bigfleet.services.shard.sessions import Sessions
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.faults import Fate
from bigfleet.simulation.scheduler import Node
from bigfleet.tasks import until_one_ends

ROLLUP_SECONDS, DEBOUNCE_SECONDS = 10.0, 0.1
RECONNECT_SECONDS = 0.5
EVICT_AGAIN_SECONDS = 2.0


class SimulatedOperator:
    """Speaks for `cluster` to whichever shard `connect` gives; None while there is none."""

    def __init__(
        self, cluster: Cluster, fate: Fate, clock: Clock, connect: Callable[[], Sessions | None]
    ) -> None:
        self.online = True
        self._cluster, self._fate, self._clock, self._connect = cluster, fate, clock, connect
        self._rollups = Rollups(
            cluster.name,
            cluster.ledger,
            ROLLUP_SECONDS,
            DEBOUNCE_SECONDS,
            lambda *_: None,
            clock.unix_seconds,
        )
        self._last_sent = capacity_pb2.ClusterCapacityNeeds()
        self._sessions: Sessions | None = None
        self._session: Session | None = None
        self._answers: dict[str, asyncio.Future[shard_pb2.Acknowledgement]] = {}
        self._deadlines: dict[Node, float] = {}
        self._phases: dict[str, str] = {}
        self._joining: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Dial again and again, until cancelled."""
        while True:
            sessions = self._connect() if self.online else None
            if sessions is not None:
                await self._serve(sessions)
            await asyncio.sleep(RECONNECT_SECONDS)

    def hang_up(self) -> None:
        """Lose the session, if there is one."""
        if self._session is not None:
            self._session.end()

    async def deliver(self, rollup: capacity_pb2.ClusterCapacityNeeds) -> shard_pb2.Acknowledgement:
        """Send a roll-up, as it is or as a sick operator sees its cluster; the shard's answer."""
        if self._fate.strikes("rollup_stale") and self._last_sent.cluster_id:
            needs, rollup = self._last_sent.needs, _emptied(rollup)
            rollup.needs.extend(needs)
        elif self._fate.strikes("rollup_empty"):
            rollup = _emptied(rollup)
        self._last_sent = rollup
        echo = str(rollup.timestamp_unix_nanos)
        answer: asyncio.Future[shard_pb2.Acknowledgement]
        answer = self._answers[echo] = asyncio.get_running_loop().create_future()
        self._say(rollup=rollup)
        return await answer

    def regret(self, told: shard_pb2.RollUpTooLarge) -> None:
        """As the real operator does."""
        self._say(rollup_too_large=told)

    async def _serve(self, sessions: Sessions) -> None:
        hello = shard_pb2.Hello(cluster_id=self._cluster.name)
        self._sessions, session = sessions, sessions.open(hello)
        self._session = session
        ours = sorted({*self._cluster.nodes, *self._phases})
        self._say(inquiry=shard_pb2.Inquiry(machine_ids=ours))
        try:
            await until_one_ends(self._hear(session), self._rollups.send_over(self))
        finally:
            self._session = None
            self._answers.clear()
            sessions.close(session)

    async def _hear(self, session: Session) -> None:
        async for message in session.outbox.drain():
            await self._fate.pause("answer")
            self._handle(message)

    def _handle(self, message: shard_pb2.ShardMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "ack":
            waiting = self._answers.pop(message.ack.echo, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.ack)
        elif kind == "bootstrap_request":
            self._say(bootstrap_response=self._blob(message.bootstrap_request))
        elif kind == "reclaim_instruction":
            self._reclaim(message.reclaim_instruction)
        elif kind == "disruption_inquiry":
            self._say(disruption_report=self._disruptions(message.disruption_inquiry))
        elif kind == "node_state_update":
            update = message.node_state_update
            self._hear_of(update.machine_id, MachineState(update.state))

    def _blob(self, request: shard_pb2.BootstrapRequest) -> shard_pb2.BootstrapBlobResponse:
        self._joining.add(request.machine_id)
        leftover = self._cluster.nodes.get(request.machine_id)
        if leftover is not None and leftover.cordoned:
            self._cluster.leave(leftover.name)
        if self._fate.strikes("bootstrap_refused"):
            return shard_pb2.BootstrapBlobResponse(
                request_id=request.request_id, error="no credential now, as the seed has it"
            )
        blob = f"join {request.cluster_id} as {request.machine_id}".encode()
        return shard_pb2.BootstrapBlobResponse(request_id=request.request_id, user_data=blob)

    def _reclaim(self, instruction: shard_pb2.ReclaimInstruction) -> None:
        """Cordon and begin to empty; the answer may get lost all the same."""
        deadline = self._clock.unix_seconds() + instruction.grace_period_seconds
        if instruction.HasField("most_cost"):
            disturbed = sum(len(self._cluster.pods_on(name)) for name in instruction.nodes)
            if disturbed > instruction.most_cost:
                refused = f"{disturbed} pods run there"
                ack = shard_pb2.ReclaimAck(
                    instruction_id=instruction.instruction_id, refused=refused
                )
                self._say(reclaim_ack=ack)
                return
        for name in instruction.nodes:
            node = self._cluster.nodes.get(name)
            if node is not None:
                node.cordoned = True
                self._begin_emptying(node, deadline)
        if not self._fate.strikes("reclaim_unanswered"):
            ack = shard_pb2.ReclaimAck(
                instruction_id=instruction.instruction_id, nodes_started=len(instruction.nodes)
            )
            self._say(reclaim_ack=ack)

    def _disruptions(self, inquiry: shard_pb2.DisruptionInquiry) -> shard_pb2.DisruptionReport:
        machines = []
        for name in self._cluster.releasable(inquiry.most):
            pods = len(self._cluster.pods_on(name))
            machines.append(
                shard_pb2.MachineDisruption(machine_id=name, pods=pods, cost=float(pods))
            )
        return shard_pb2.DisruptionReport(inquiry_id=inquiry.inquiry_id, machines=machines)

    def _begin_emptying(self, node: Node, deadline: float) -> None:
        under_way = node in self._deadlines
        self._deadlines[node] = deadline
        if not under_way:
            self._spawn(self._empty(node))

    async def _empty(self, node: Node) -> None:
        """Until it is empty, its grace is over, or it has gone; never one that took its name."""
        while self._clock.unix_seconds() < self._deadlines[node]:
            await self._fate.pause("eviction")
            if self._cluster.nodes.get(node.name) is not node:
                break
            for pod in self._cluster.pods_on(node.name):
                self._cluster.evict(pod)
            if not self._cluster.pods_on(node.name):
                self._cluster.leave(node.name)
                break
            await asyncio.sleep(EVICT_AGAIN_SECONDS)
        del self._deadlines[node]

    def _hear_of(self, machine_id: str, state: MachineState) -> None:
        """Keep or remove the machine's Node, by production's own rules."""
        if state is not MachineState.IDLE:
            self._joining.discard(machine_id)
        joining = machine_id in self._joining
        step = passage(self._phases.pop(machine_id, None), state, joining=joining)
        if step.phase is not None:
            self._phases[machine_id] = step.phase
        node = self._cluster.nodes.get(machine_id)
        if node is None or step.removal is Removal.NONE:
            return
        if node.cordoned or step.removal is Removal.ANY:
            self._cluster.leave(machine_id)

    def _say(self, **message: Any) -> None:
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
