"""Leadership: elections, leases and deposed leaders, with the in-memory store."""

from __future__ import annotations

import asyncio

import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.coordination.memory import MemoryCluster
from bigfleet.ports.coordination import LEADER_KEY
from bigfleet.services.coordinator.leader_term import LEASE_SECONDS, NotLeader
from bigfleet.services.coordinator.rows import Cluster, Leader, leader_decoder, put
from tests.services.coordinator.candidates import nodes
from tests.support.waiting import eventually


async def test_the_elected_leads_and_the_others_know_its_address() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a", "b") as [a, b]:
        leader_term = await a.leader_term()
        assert leader_term.term == 1
        await eventually(lambda: b.leadership.leader is not None)
        assert b.leadership.leader is not None
        assert b.leadership.leader.address == "a:1"
        assert b.leadership.leader_term is None


async def test_a_new_leader_has_all_that_the_old_one_wrote() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a", "b") as [a, b]:
        first = await a.leader_term()
        await first.write(lambda: put(Cluster("c", "s1")))
        cluster.elect("b")
        second = await b.leader_term()
        assert second.registry.clusters["c"].shard == "s1"
        assert second.term == 2
        await eventually(lambda: a.leadership.leader_term is None)
        with pytest.raises(NotLeader):
            await first.write(lambda: put(Cluster("d", "s1")))
        assert "cluster/d" not in cluster.rows


async def test_an_unaware_deposed_leader_cannot_write() -> None:
    """It was suspended while another took over: its claim in the store is superseded."""
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        leader_term = await a.leader_term()
        usurper = Leader("b", 2, 9, "b:1")
        cluster.write({LEADER_KEY: b'{"id":"b","member_id":2,"term":9,"address":"b:1"}'})
        with pytest.raises(NotLeader, match="another replica"):
            await leader_term.write(lambda: put(Cluster("c", "s1")))
        assert leader_term.ended
        assert leader_decoder.decode(cluster.rows[LEADER_KEY]) == usurper


async def test_a_leader_whose_member_is_silent_stops_answering() -> None:
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        leader_term = await a.leader_term()
        a.store.silent = True
        await eventually(lambda: a.leadership.leader_term is None)
        with pytest.raises(NotLeader):
            leader_term.require_leadership()
        keepalives = a.keepalives
        await eventually(lambda: a.keepalives > keepalives)  # it is at work all the same
        a.store.silent = False
        assert (await a.leader_term()).term == leader_term.term


async def test_a_leader_suspended_for_longer_than_its_lease_does_not_answer() -> None:
    """The lease is checked before it has polled its member again."""
    cluster, clock = MemoryCluster(["a"]), ManualClock()
    cluster.elect("a")
    async with nodes(cluster, "a", clock=clock) as [a]:
        leader_term = await a.leader_term()
        leader_term.renew_lease()
        clock.advance(LEASE_SECONDS - 0.01)
        leader_term.require_leadership()
        clock.advance(0.02)
        with pytest.raises(NotLeader):
            leader_term.require_leadership()


async def test_order_ids_and_sequence_numbers_never_repeat_in_a_term() -> None:
    """Also when one leader claims leadership twice in the same term."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        leader_term = await a.leader_term()
        first = {leader_term.new_instruction_id() for _ in range(5)}
        leader_term.end("a test says so")
        await eventually(lambda: a.leadership.leader_term not in (None, leader_term))
        again = await a.leader_term()
        assert again.term == leader_term.term
        assert first.isdisjoint({again.new_instruction_id() for _ in range(5)})


async def test_a_resignation_is_recorded_and_final() -> None:
    cluster = MemoryCluster(["a", "b"])
    cluster.elect("a")
    async with nodes(cluster, "a", "b") as [a, b]:
        await a.leader_term()
        await a.leadership.resign()
        cluster.elect("b")
        await b.leader_term()
        [predecessor] = b.predecessors
        assert predecessor is not None
        assert (predecessor.id, predecessor.resigned) == ("a", True)


async def test_a_cancelled_caller_does_not_undo_its_write() -> None:
    """Memory and store must not diverge because a client's deadline expired in between."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        leader_term = await a.leader_term()
        task = asyncio.create_task(leader_term.write(lambda: put(Cluster("c", "s1"))))
        await asyncio.sleep(0)
        task.cancel()
        await eventually(lambda: "cluster/c" in cluster.rows)
        await eventually(lambda: "c" in leader_term.registry.clusters)
