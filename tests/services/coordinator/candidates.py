"""Coordinator replicas in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.coordination.memory import MemoryCluster, MemoryStore
from bigfleet.ports.clock import Clock
from bigfleet.services.coordinator.leader_term import LeaderTerm
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.rows import Leader
from tests.support.waiting import eventually


class Node:
    """The leadership of one replica."""

    def __init__(self, cluster: MemoryCluster, name: str, clock: Clock) -> None:
        self.store: MemoryStore = cluster.store(name)
        self.keepalives = 0
        self.predecessors: list[Leader | None] = []
        replica = Replica(name, f"{name}:1")
        self.leadership = Leadership(replica, self.store, self._keepalive, self._succeeded, clock)

    def _keepalive(self, _: bool) -> None:
        self.keepalives += 1

    def _succeeded(self, before: Leader | None, _: Leader) -> None:
        self.predecessors.append(before)

    async def leader_term(self) -> LeaderTerm:
        await eventually(lambda: self.leadership.leader_term is not None)
        assert self.leadership.leader_term is not None
        return self.leadership.leader_term


@asynccontextmanager
async def nodes(
    cluster: MemoryCluster, *names: str, clock: Clock | None = None
) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as closing:
        found = [Node(cluster, name, clock or SystemClock()) for name in names]
        for node in found:
            task = asyncio.create_task(node.leadership.run())
            closing.push_async_callback(asyncio.wait, [task])
            closing.callback(task.cancel)
        yield found
