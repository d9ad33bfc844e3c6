"""Production's coordinator replicas on a store in memory, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bigfleet.adapters.coordination.memory import MemoryCluster, MemoryStore
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.ports.coordination import Changes, LeadershipStatus, OutcomeUnknown
from bigfleet.services.coordinator.handlers import LeaderHandlers
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.registry import Registry
from bigfleet.simulation.runtime.faults import FaultInjector
from bigfleet.simulation.runtime.loop import VirtualClock
from bigfleet.tasks import cancel_and_wait, run_until_first_completes

_T = TypeVar("_T")
LeaderCall = Callable[[LeaderHandlers, LeaderTerm], Awaitable[_T]]
# As in production's replica.
_HOUSEKEEPING_INTERVAL_SECONDS = 1.0
# How long a partitioned member may believe that it still leads: an election timeout.
_STALE_LEADER_SECONDS = 0.3
# How long an election takes after a replica has died.
ELECTION_SECONDS = 0.5


class _Store(MemoryStore):
    """A member whose responses may be lost, and which may learn late that it no longer leads."""

    def __init__(self, cluster: MemoryCluster, name: str, injector: FaultInjector) -> None:
        super().__init__(cluster, cluster.named(name).id)
        self._injector = injector
        self._stale_status: LeadershipStatus | None = None

    async def leadership_status(self) -> LeadershipStatus:
        """See `ports.coordination.CoordinationStore`."""
        return self._stale_status or await super().leadership_status()

    async def commit(self, claim_revision: int, changes: Changes) -> None:
        """See `ports.coordination.CoordinationStore`."""
        if self._stale_status is not None:
            raise OutcomeUnknown("the member is partitioned from the others")
        lost = self._injector.occurs("commit_unanswered")
        if not lost or self._injector.uniform(0.0, 1.0) < 0.5:
            await super().commit(claim_revision, changes)
        if lost:
            raise OutcomeUnknown("no answer to a commit (injected fault)")

    async def keep_stale_status(self) -> None:
        """Return the current leadership status for a while longer."""
        self._stale_status = await super().leadership_status()
        await asyncio.sleep(self._injector.uniform(0.0, _STALE_LEADER_SECONDS))
        self._stale_status = None


class Coordinators:
    """The replicas named `names`, one of which leads or is about to.

    No domain is assigned before `expected_shards` have registered.
    """

    def __init__(self, names: Sequence[str], injector: FaultInjector, expected_shards: int) -> None:
        self.clock = VirtualClock()
        self._cluster, self._injector = MemoryCluster(names), injector
        self._handlers = LeaderHandlers(expected_shards)
        self._stores = {name: _Store(self._cluster, name, injector) for name in names}
        self._leaderships: dict[str, Leadership] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self.ended: Callable[[asyncio.Task[None]], None] = lambda _: None

    def start(self, name: str) -> None:
        """Start a replica; the first one leads."""
        if name in self._work:
            return
        leadership = self._leaderships[name] = Leadership(
            Replica(name, f"{name}:7790"),
            self._stores[name],
            lambda _: None,
            lambda *_: None,
            self.clock,
        )
        work = self._work[name] = asyncio.create_task(_replica(leadership, self._handlers))
        work.add_done_callback(self.ended)
        if self.leader not in self._work:
            self._cluster.elect(name)

    def start_all(self) -> None:
        """Start all replicas that are down."""
        for name in self._stores:
            self.start(name)

    async def kill(self, name: str) -> None:
        """Kill a replica with its member; the others elect a leader."""
        if name not in self._work:
            return
        self._leaderships.pop(name)
        led = self.leader == name
        await cancel_and_wait(self._work.pop(name))
        if led and self._work:
            await asyncio.sleep(ELECTION_SECONDS)
            self._elect_another(name)

    async def stop(self) -> None:
        """Stop all replicas."""
        for name in list(self._work):
            self._leaderships.pop(name)
            await cancel_and_wait(self._work.pop(name))

    async def depose(self) -> None:
        """Partition the leader from the others for a moment, who elect another."""
        leader = self.leader
        if leader in self._work and len(self._work) > 1:
            stale = asyncio.create_task(self._stores[leader].keep_stale_status())
            await asyncio.sleep(0)
            self._elect_another(leader)
            await stale

    @property
    def leader(self) -> str:
        """The replica that the store's members have elected; "" before the first election."""
        members = self._cluster.members
        return next((m.name for m in members if m.id == self._cluster.leader_id), "")

    @property
    def registry(self) -> Registry | None:
        """The leader's registry; None while none leads."""
        leader_terms = [each.leader_term for each in self._leaderships.values()]
        return next(
            (leader_term.registry for leader_term in leader_terms if leader_term is not None), None
        )

    async def call_leader(self, call: LeaderCall[_T]) -> _T:
        """The leader's response as production's clients would get it; Unavailable if none leads."""
        problem = "no coordinator leads"
        for leadership in list(self._leaderships.values()):
            if leadership.leader_term is not None:
                try:
                    return await call(self._handlers, leadership.leader_term)
                except NotLeader as error:
                    problem = str(error)
        raise Unavailable(problem)

    def _elect_another(self, than: str) -> None:
        others = [name for name in self._work if name != than]
        if others:
            self._cluster.elect(others[0])


class CoordinatorLink:
    """One shard's `ports.coordinator.Coordinator`; every call fails while not `connected`."""

    def __init__(self, coordinators: Coordinators, injector: FaultInjector) -> None:
        self.connected = True
        self._coordinators, self._injector = coordinators, injector

    async def report(self, report: wire.ShardReport) -> wire.ReportAck:
        """See `ports.coordinator.Coordinator`."""
        sent = wire.ShardReport.FromString(report.SerializeToString())
        return await self._ask(lambda handlers, leader_term: handlers.report(leader_term, sent))

    async def claim_epoch(self, shard_id: str) -> int:
        """See `ports.coordinator.Coordinator`."""
        return await self._ask(
            lambda handlers, leader_term: handlers.claim_epoch(leader_term, shard_id)
        )

    async def resolve(
        self, cluster: str, shard_id: str, *, assigned_only: bool = False
    ) -> wire.ResolveClusterResponse:
        """See `ports.coordinator.Coordinator`."""
        asking = "" if assigned_only else shard_id

        async def resolve(
            handlers: LeaderHandlers, leader_term: LeaderTerm
        ) -> wire.ResolveClusterResponse:
            row, address = await handlers.resolve(leader_term, cluster, asking)
            return wire.ResolveClusterResponse(
                shard_id=row.shard, shard_address=address, coordinator_term=leader_term.term
            )

        return await self._ask(resolve)

    async def close(self) -> None:
        """See `ports.coordinator.Coordinator`."""

    async def _ask(self, call: LeaderCall[_T]) -> _T:
        await self._injector.delay("call")
        if not self.connected or self._injector.occurs("request_lost"):
            raise Unavailable("the request to the coordinator was lost")
        answer = await self._coordinators.call_leader(call)
        await self._injector.delay("call")
        if not self.connected or self._injector.occurs("answer_lost"):
            raise Unavailable("the coordinator's answer was lost")
        return answer


async def _replica(leadership: Leadership, handlers: LeaderHandlers) -> None:
    await run_until_first_completes(leadership.run(), _housekeeping(leadership, handlers))


async def _housekeeping(leadership: Leadership, handlers: LeaderHandlers) -> None:
    while True:
        await asyncio.sleep(_HOUSEKEEPING_INTERVAL_SECONDS)
        leader_term = leadership.leader_term
        if leader_term is not None:
            try:
                await handlers.release_orphans(leader_term)
                await handlers.rebalance(leader_term)
            except BigFleetError:
                continue  # retried next time
