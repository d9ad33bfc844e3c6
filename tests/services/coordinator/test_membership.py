"""Replicas that are let in; on the store in memory."""

from __future__ import annotations

import pytest

from bigfleet.adapters.coordination.memory import MemoryCluster
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.services.coordinator.membership import JoiningMember, Membership
from tests.services.coordinator.candidates import nodes


async def test_a_second_newcomer_waits_until_the_first_has_its_vote() -> None:
    """It is told so in an answer upon which it asks again; the store would refuse it for good."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        with pytest.raises(Unavailable, match=r"leave 127\.0\.0\.1:2` takes it out"):
            await membership.join(leader_term, JoiningMember("c", "127.0.0.1:3"))
        await a.store.promote(2)
        await membership.join(leader_term, JoiningMember("c", "127.0.0.1:3"))
        assert [member.learner for member in cluster.members] == [False, False, True]


async def test_a_newcomer_that_never_runs_is_taken_out_by_its_address() -> None:
    """It has no name that anybody could say; and until it is gone, nobody else is let in."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        await membership.leave(leader_term, "127.0.0.1:2")
        await membership.join(leader_term, JoiningMember("c", "127.0.0.1:3"))
        assert [member.peer_address for member in cluster.members] == ["a", "127.0.0.1:3"]


async def test_a_member_that_lost_its_state_must_leave_before_it_joins() -> None:
    """With its old vote and nothing of what it confirmed, it could elect a leader who lacks it."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        await a.store.promote(2)
        with pytest.raises(InvalidInput, match=r"would be lost.*leave 127\.0\.0\.1:2` comes"):
            await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))


async def test_a_newcomer_that_was_told_of_other_replicas_is_refused_before_it_is_let_in() -> None:
    """Its member could not begin, and would stand in everybody's way."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        with pytest.raises(InvalidInput, match=r"does not name all.*: 127\.0\.0\.1:2, a"):
            await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2", ["127.0.0.1:2"]))
        assert len(cluster.members) == 1
