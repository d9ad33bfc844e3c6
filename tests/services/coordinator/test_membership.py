"""Joining and removing replicas, with the in-memory store."""

from __future__ import annotations

import pytest

from bigfleet.adapters.coordination.memory import MemoryCluster
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.services.coordinator.membership import JoiningMember, Membership
from tests.services.coordinator.candidates import nodes


async def test_a_second_joining_replica_waits_until_the_first_is_promoted() -> None:
    """It gets UNAVAILABLE and retries; etcd's own error would be final."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        with pytest.raises(Unavailable, match=r"remove-replica 127\.0\.0\.1:2`"):
            await membership.join(leader_term, JoiningMember("c", "127.0.0.1:3"))
        await a.store.promote(2)
        await membership.join(leader_term, JoiningMember("c", "127.0.0.1:3"))
        assert [member.learner for member in cluster.members] == [False, False, True]


async def test_a_replica_that_never_started_is_removed_by_its_address() -> None:
    """It has no name yet, and no other replica can join until it is gone."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        await membership.leave(leader_term, "127.0.0.1:2")
        await membership.join(leader_term, JoiningMember("c", "127.0.0.1:3"))
        assert [member.peer_address for member in cluster.members] == ["a", "127.0.0.1:3"]


async def test_a_member_that_lost_its_state_must_leave_before_it_joins() -> None:
    """With its old vote but without its log, it could elect a leader that lacks writes."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))
        await a.store.promote(2)
        with pytest.raises(InvalidInput, match=r"would be lost.*remove-replica 127\.0\.0\.1:2`"):
            await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2"))


async def test_a_joining_replica_with_other_peers_is_rejected_before_it_is_added() -> None:
    """Its member could not start, and would block other replicas."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, leader_term = Membership(a.store, "a", "http"), await a.leader_term()
        with pytest.raises(InvalidInput, match=r"differ from the peers.*: 127\.0\.0\.1:2, a"):
            await membership.join(leader_term, JoiningMember("b", "127.0.0.1:2", ["127.0.0.1:2"]))
        assert len(cluster.members) == 1
