"""Replicas that are let in; on the store in memory."""

from __future__ import annotations

import pytest
from test_leadership import nodes

from bigfleet.adapters.coordination.memory import MemoryCluster
from bigfleet.model.errors import Unavailable
from bigfleet.services.coordinator.membership import Membership


async def test_a_second_newcomer_waits_until_the_first_has_its_vote() -> None:
    """It is told so in an answer upon which it asks again; the store would refuse it for good."""
    cluster = MemoryCluster(["a"])
    cluster.elect("a")
    async with nodes(cluster, "a") as [a]:
        membership, reign = Membership(a.store, "a", "http"), await a.reign()
        await membership.join(reign, "b", "127.0.0.1:2")
        await membership.join(reign, "b", "127.0.0.1:2")
        with pytest.raises(Unavailable, match=":2 has no vote yet"):
            await membership.join(reign, "c", "127.0.0.1:3")
        await membership.promote_learners()
        await membership.join(reign, "c", "127.0.0.1:3")
        assert [member.learner for member in cluster.members] == [False, False, True]
