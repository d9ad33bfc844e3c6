"""The coordinator's client finds the leader, and finds it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.adapters.coordinator.client import LeaderConnection as LeaderReplicas
from bigfleet.adapters.coordinator.grpc import GrpcCoordinator
from bigfleet.api.auth.identity import Principal
from bigfleet.api.auth.issuing import issue
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2 import ShardReport
from bigfleet.model.errors import BigFleetError, Fenced, Unavailable
from tests.support.fake_coordinator import (
    FakeCoordinator,
    FakeCoordinatorServicer,
    replica,
    servicer,
)


class LeaderConnection:
    """Three replicas over one memory; `lead` says who leads."""

    def __init__(self, decides: FakeCoordinator, addresses: list[str]) -> None:
        self.decides, self.addresses = decides, addresses
        self.servicers: list[FakeCoordinatorServicer] = []

    def lead(self, leader: int | None, *, named: bool = True) -> None:
        """All but the leader name it, or nobody when it is not known."""
        for number, each in enumerate(self.servicers):
            name = self.addresses[leader] if named and leader is not None else ""
            each.leader = None if number == leader else name

    def client(self, *addresses: str) -> GrpcCoordinator:
        """A shard's client."""
        return GrpcCoordinator(addresses or self.addresses)


@pytest_asyncio.fixture
async def replicas() -> AsyncIterator[LeaderConnection]:
    """The first one leads."""
    decides = FakeCoordinator()
    one, two, three = servicer(decides), servicer(decides), servicer(decides)
    async with replica(one) as a, replica(two) as b, replica(three) as c:
        made = LeaderConnection(decides, [a, b, c])
        made.servicers = [one, two, three]
        made.lead(0)
        yield made


async def reports(client: GrpcCoordinator) -> int:
    """The term of whoever answered a report."""
    return (await client.report(ShardReport(shard_id="s-0"))).coordinator_term


async def test_the_named_leader_is_asked_next_and_from_then_on(replicas: LeaderConnection) -> None:
    """Also one that is not in the shard's own list."""
    replicas.lead(2)
    async with closing(replicas.client(replicas.addresses[0])) as client:
        assert await reports(client) == await reports(client) == 1
    assert [s.calls for s in replicas.servicers] == [1, 0, 2]


async def test_without_a_name_the_others_are_asked_in_turn(replicas: LeaderConnection) -> None:
    """The last one leads, and nobody else knows it."""
    replicas.lead(2, named=False)
    async with closing(replicas.client()) as client:
        assert await reports(client) == 1
    assert [s.calls for s in replicas.servicers] == [1, 1, 1]


async def test_an_election_is_unavailable_and_over_when_someone_leads(
    replicas: LeaderConnection,
) -> None:
    """The error has each replica's answer."""
    replicas.lead(None)
    async with closing(replicas.client()) as client:
        with pytest.raises(Unavailable, match="no coordinator leads") as told:
            await reports(client)
        assert all(address in str(told.value) for address in replicas.addresses)
        replicas.lead(1)
        assert await reports(client) == 1


async def test_a_stale_error_is_final(replicas: LeaderConnection) -> None:
    """FAILED_PRECONDITION is Fenced, and no other replica is called."""
    replicas.decides.deposed_shards.add("s-0")
    async with closing(replicas.client()) as client:
        with pytest.raises(Fenced, match="replaced"):
            await reports(client)
    assert [s.calls for s in replicas.servicers] == [1, 0, 0]


async def test_a_dead_leader_is_passed_over(replicas: LeaderConnection) -> None:
    """The leader that was known is gone; the next one is found in the same call."""
    nobody = "127.0.0.1:1"
    async with closing(replicas.client(nobody, *replicas.addresses)) as client:
        assert await reports(client) == 1


async def test_a_call_that_fails_ends_no_other_call(replicas: LeaderConnection) -> None:
    """A shard reports and resolves clusters at once. What one call gives up, the other still has:
    to be cancelled instead of answered would end the shard's reports for good.
    """
    answering = replicas.servicers[0].answering
    answering.clear()
    patient = LeaderReplicas(replicas.addresses[:1])
    asked = wire.ResolveClusterRequest(cluster_id="c", asking_shard_id="s-0")
    resolving = asyncio.create_task(patient.call_leader(lambda stub: stub.ResolveCluster(asked)))
    report = ShardReport(shard_id="s-0")
    with pytest.raises(Unavailable, match="DEADLINE_EXCEEDED"):
        await patient.call_leader(lambda stub: stub.ReportShard(report, timeout=0.2))
    answering.set()
    assert (await resolving).shard_id == "s-0"
    await patient.close()


async def test_a_denied_call_fails_at_once(tmp_path: Path) -> None:
    """No replica would answer differently."""
    leader, looking = Principal("coordinator", "a"), Principal("readonly")
    made = issue(tmp_path, [leader, looking], timedelta(days=1))
    async with (
        replica(servicer(FakeCoordinator()), made[leader]) as address,
        LeaderClient([address], made[looking]) as client,
    ):
        refused = r"^denied by the coordinator: bigfleet://readonly may not call .*/SetQuota"
        with pytest.raises(BigFleetError, match=refused):
            await client.call("SetQuota", wire.SetQuotaRequest())


@asynccontextmanager
async def closing(client: GrpcCoordinator) -> AsyncIterator[GrpcCoordinator]:
    """`client`, closed at the end."""
    try:
        yield client
    finally:
        await client.close()
