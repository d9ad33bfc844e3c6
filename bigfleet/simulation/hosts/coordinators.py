"""Replicas of production's coordinator, on a store that agrees in memory, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bigfleet.adapters.coordination.memory import MemoryCluster, MemoryStore
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.ports.coordination import Changes, LeadershipStatus, OutcomeUnknown
from bigfleet.services.coordinator.handlers import LeaderHandlers, release_orphans
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.registry import Registry
from bigfleet.simulation.runtime.faults import FaultInjector
from bigfleet.simulation.runtime.loop import VirtualClock
from bigfleet.tasks import cancel_and_wait, run_until_first_completes

_T = TypeVar("_T")
LeaderCall = Callable[[LeaderHandlers, LeaderTerm], Awaitable[_T]]
# As production's replica does what is seen to in passing.
_HOUSEKEEPING_INTERVAL_SECONDS = 1.0
# How long a member that was cut off may go on believing that it leads: an election timeout.
_STALE_LEADER_SECONDS = 0.3
# How soon the others elect one after a replica has died.
ELECTION_SECONDS = 0.5


class _Store(MemoryStore):
    """A member whose answers may be lost, and which may hear late that it leads no more."""

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
            raise OutcomeUnknown("the member is cut off from the others")
        lost = self._injector.occurs("commit_unanswered")
        if not lost or self._injector.uniform(0.0, 1.0) < 0.5:
            await super().commit(claim_revision, changes)
        if lost:
            raise OutcomeUnknown("no answer to a commit, as the seed has it")

    async def keep_stale_status(self) -> None:
        """For a while it believes what it has believed until now."""
        self._stale_status = await super().leadership_status()
        await asyncio.sleep(self._injector.uniform(0.0, _STALE_LEADER_SECONDS))
        self._stale_status = None


class Coordinators:
    """The replicas named `names`. Of those that are up one leads, or is about to.

    No domain is given away before `expected_shards` have registered.
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
        """A replica comes up; the first one leads."""
        if name in self._work:
            return
        leadership = self._leaderships[name] = Leadership(
            Replica(name, f"{name}:7790"),
            self._stores[name],
            lambda _: None,
            lambda *_: None,
            self.clock,
        )
        work = self._work[name] = asyncio.create_task(_replica(leadership))
        work.add_done_callback(self.ended)
        if self._leader() not in self._work:
            self._cluster.elect(name)

    def start_all(self) -> None:
        """All that are down come up."""
        for name in self._stores:
            self.start(name)

    async def kill(self, name: str) -> None:
        """A replica dies, and its member with it; the others elect a leader."""
        if name not in self._work:
            return
        self._leaderships.pop(name)
        led = self._leader() == name
        await cancel_and_wait(self._work.pop(name))
        if led and self._work:
            await asyncio.sleep(ELECTION_SECONDS)
            self._elect_another(name)

    async def stop(self) -> None:
        """All of them end."""
        for name in list(self._work):
            self._leaderships.pop(name)
            await cancel_and_wait(self._work.pop(name))

    async def depose(self) -> None:
        """The leader is cut off from the others for a moment, who elect one of them."""
        leader = self._leader()
        if leader in self._work and len(self._work) > 1:
            stale = asyncio.create_task(self._stores[leader].keep_stale_status())
            await asyncio.sleep(0)
            self._elect_another(leader)
            await stale

    @property
    def leading(self) -> str:
        """The replica that the store's members have elected."""
        return self._leader()

    @property
    def registry(self) -> Registry | None:
        """What the leader has committed; None while none leads."""
        leader_terms = [each.leader_term for each in self._leaderships.values()]
        return next(
            (leader_term.registry for leader_term in leader_terms if leader_term is not None), None
        )

    async def call_leader(self, call: LeaderCall[_T]) -> _T:
        """The leader's answer, as production's servicers and clients would get it: Unavailable
        where none leads.
        """
        problem = "no coordinator leads"
        for leadership in list(self._leaderships.values()):
            if leadership.leader_term is not None:
                try:
                    return await call(self._handlers, leadership.leader_term)
                except NotLeader as error:
                    problem = str(error)
        raise Unavailable(problem)

    def _leader(self) -> str:
        members = self._cluster.members
        return next((m.name for m in members if m.id == self._cluster.leader_id), "")

    def _elect_another(self, than: str) -> None:
        others = [name for name in self._work if name != than]
        if others:
            self._cluster.elect(others[0])


class CoordinatorLink:
    """One shard's connection to the coordinator; a `ports.coordinator.Coordinator`.

    While it is not `connected` nothing gets through.
    """

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

    async def resolve(self, cluster: str, shard_id: str) -> wire.ResolveClusterResponse:
        """See `ports.coordinator.Coordinator`."""

        async def resolve(
            handlers: LeaderHandlers, leader_term: LeaderTerm
        ) -> wire.ResolveClusterResponse:
            row, address = await handlers.resolve(leader_term, cluster, shard_id)
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


async def _replica(leadership: Leadership) -> None:
    await run_until_first_completes(leadership.run(), _housekeeping(leadership))


async def _housekeeping(leadership: Leadership) -> None:
    while True:
        await asyncio.sleep(_HOUSEKEEPING_INTERVAL_SECONDS)
        if leadership.leader_term is not None:
            try:
                await release_orphans(leadership.leader_term)
            except BigFleetError:
                continue  # at the next time
