"""Who leads, and what becomes of one who no longer does; on the store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.coordination.memory import MemoryCluster, MemoryStore
from bigfleet.ports.clock import Clock
from bigfleet.ports.coordination import LEADER_KEY
from bigfleet.services.coordinator.leadership import Leadership, Replica
from bigfleet.services.coordinator.reign import LEASE_SECONDS, NotLeading, Reign
from bigfleet.services.coordinator.rows import Cluster, Leader, leader_decoder, put

_DEADLINE_SECONDS = 60.0


class Node:
    """One replica's part in leading."""

    def __init__(self, cluster: MemoryCluster, name: str, clock: Clock) -> None:
        self.store: MemoryStore = cluster.store(name)
        self.pulses = 0
        self.predecessors: list[Leader | None] = []
        replica = Replica(name, f"{name}:1")
        self.leadership = Leadership(replica, self.store, self._pulse, self._succeeded, clock)

    def _pulse(self, _: bool) -> None:
        self.pulses += 1

    def _succeeded(self, before: Leader | None, _: Leader) -> None:
        self.predecessors.append(before)

    async def reign(self) -> Reign:
        await until(lambda: self.leadership.reign is not None)
        assert self.leadership.reign is not None
        return self.leadership.reign


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - others set no event for it
            await asyncio.sleep(0.01)


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


async def test_the_elected_leads_and_the_others_know_its_address() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a", "b") as [a, b]:
        reign = await a.reign()
        assert reign.term == 1
        await until(lambda: b.leadership.leader is not None)
        assert b.leadership.leader is not None
        assert b.leadership.leader.address == "a:1"
        assert b.leadership.reign is None


async def test_a_new_leader_has_all_that_the_old_one_wrote() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a", "b") as [a, b]:
        first = await a.reign()
        await first.write(lambda: put(Cluster("c", "s1")))
        cluster.elect("b")
        second = await b.reign()
        assert second.registry.clusters["c"].shard == "s1"
        assert second.term == 2
        await until(lambda: a.leadership.reign is None)
        with pytest.raises(NotLeading):
            await first.write(lambda: put(Cluster("d", "s1")))
        assert "cluster/d" not in cluster.rows


async def test_a_deposed_leader_that_noticed_nothing_cannot_write() -> None:
    """It was stopped while another took over: the claim in the store refuses it."""
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        reign = await a.reign()
        usurper = Leader("b", 2, 9, "b:1")
        cluster.write({LEADER_KEY: b'{"id":"b","member_id":2,"term":9,"address":"b:1"}'})
        with pytest.raises(NotLeading, match="another replica"):
            await reign.write(lambda: put(Cluster("c", "s1")))
        assert reign.over
        assert leader_decoder.decode(cluster.rows[LEADER_KEY]) == usurper


async def test_a_leader_whose_member_is_silent_stops_answering() -> None:
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        reign = await a.reign()
        a.store.silent = True
        await until(lambda: a.leadership.reign is None)
        with pytest.raises(NotLeading):
            reign.require()
        pulses = a.pulses
        await until(lambda: a.pulses > pulses)  # it is at work all the same
        a.store.silent = False
        assert (await a.reign()).term == reign.term


async def test_a_leader_that_was_stopped_for_longer_than_its_lease_answers_nothing() -> None:
    """Its next word is checked before it has had time to look at its member again."""
    cluster, clock = MemoryCluster(["a"]), ManualClock()
    cluster.elect("a")
    async with nodes(cluster, "a", clock=clock) as [a]:
        reign = await a.reign()
        reign.confirm()
        clock.advance(LEASE_SECONDS - 0.01)
        reign.require()
        clock.advance(0.02)
        with pytest.raises(NotLeading):
            reign.require()


async def test_order_ids_and_sequence_numbers_never_repeat_in_a_term() -> None:
    """Also when one leader begins twice in the same term."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        reign = await a.reign()
        first = {reign.new_order() for _ in range(5)}
        reign.end("a test says so")
        await until(lambda: a.leadership.reign not in (None, reign))
        again = await a.reign()
        assert again.term == reign.term
        assert first.isdisjoint({again.new_order() for _ in range(5)})


async def test_one_who_resigns_says_so_and_does_not_lead_again() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a", "b") as [a, b]:
        await a.reign()
        await a.leadership.resign()
        cluster.elect("b")
        await b.reign()
        [before] = b.predecessors
        assert before is not None
        assert (before.id, before.resigned) == ("a", True)


async def test_a_caller_that_goes_away_does_not_undo_its_write() -> None:
    """Memory and store must not part because a client's deadline passed in between."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        reign = await a.reign()
        task = asyncio.create_task(reign.write(lambda: put(Cluster("c", "s1"))))
        await asyncio.sleep(0)
        task.cancel()
        await until(lambda: "cluster/c" in cluster.rows)
        await until(lambda: "c" in reign.registry.clusters)
