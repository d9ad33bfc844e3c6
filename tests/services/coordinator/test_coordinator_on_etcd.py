"""One coordinator replica with a real etcd, called over gRPC."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from bigfleet.__main__ import main
from bigfleet.adapters.coordinator.client import LEADER_TRAILER, LeaderClient, trailer
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2_grpc import CoordinatorStub
from bigfleet.commands.fleet_queries import view
from bigfleet.model.errors import BigFleetError, Fenced, InvalidInput, Unavailable, UnknownObject
from bigfleet.services.coordinator import role
from bigfleet.services.coordinator.config import CoordinatorConfig
from controlplane.request import Binaries
from tests.support.fake_shard import FakeShard, many_shortfalls
from tests.support.ports import free_address

RACK, ZONE = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
_DEADLINE_SECONDS = 60.0


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    yield path
    shutil.rmtree(path)


def settings(binaries: Binaries, directory: Path, expected_shards: int = 1) -> CoordinatorConfig:
    return CoordinatorConfig(
        "a", 0, 0, directory / "a", binaries.etcd, {}, expected_shards=expected_shards
    )


@asynccontextmanager
async def coordinator(config: CoordinatorConfig) -> AsyncIterator[LeaderClient]:
    async with (
        role.serving(config) as serves,
        LeaderClient([f"127.0.0.1:{serves.port}"]) as client,
    ):
        await client.call("ListShards", wire.ListShardsRequest(), _DEADLINE_SECONDS)
        yield client
        await serves.leadership.resign()


@pytest_asyncio.fixture
async def client(binaries: Binaries, directory: Path) -> AsyncIterator[LeaderClient]:
    """A client of a leading coordinator."""
    async with coordinator(settings(binaries, directory)) as client:
        yield client


async def domains_of(client: LeaderClient) -> dict[str, tuple[str, str]]:
    answer = await client.call("ListDomainAssignments", wire.ListDomainAssignmentsRequest())
    return {row.topology_value: (row.shard_id, row.state) for row in answer.assignments}


async def report_until_rejected(shard: FakeShard, client: LeaderClient) -> None:
    """Report until the removed shard has released everything."""
    for _ in range(10):
        await shard.report_once(client)


async def test_domains_reach_shards_and_move_between_them(client: LeaderClient) -> None:
    """Assigned, acknowledged, released, assigned to the next shard."""
    one, two = FakeShard("s1"), FakeShard("s2", port=7781)
    for shard in (one, two):
        await shard.report_once(client)
    one.observed_domains = two.observed_domains = {(RACK, "r1"): 10, (RACK, "r2"): 10}
    await one.report_once(client)
    await two.report_once(client)
    await one.report_once(client)
    await two.report_once(client)
    owned = await domains_of(client)
    assert sorted(owned.values()) == [("s1", "owned"), ("s2", "owned")]
    assert len(one.owns) == len(two.owns) == 1
    [(_, value)] = one.owns
    await client.call(
        "AssignDomain",
        wire.AssignDomainRequest(topology_key=RACK, topology_value=value, shard_id="s2"),
    )
    assert (await domains_of(client))[value] == ("s1", "releasing")
    await two.report_once(client)
    assert len(two.owns) == 1, "not before the first shard has released it"
    for shard in (one, one, two, two):
        await shard.report_once(client)
    assert (await domains_of(client))[value] == ("s2", "owned")
    assert (len(one.owns), len(two.owns)) == (0, 2)


async def test_shards_with_other_domain_keys_are_rejected(
    client: LeaderClient,
) -> None:
    """A rack of one shard would lie in a zone of another, and both would order its machines."""
    by_zone, by_rack = FakeShard("s1"), FakeShard("s2", port=7781)
    by_zone.domain_keys, by_zone.observed_domains = (ZONE,), {(ZONE, "a"): 10}
    by_rack.observed_domains = {(RACK, "r1"): 10}
    for _ in range(3):
        await by_zone.report_once(client)
    with pytest.raises(InvalidInput, match=f"from those of shard s1, {ZONE}; start all shards"):
        await by_rack.report_once(client)
    assert await domains_of(client) == {"a": ("s1", "owned")}
    whole = wire.AssignDomainRequest(topology_key=RACK, topology_value="r1", shard_id="s1")
    with pytest.raises(InvalidInput, match=f"not a domain key of the shards: {ZONE}"):
        await client.call("AssignDomain", whole)
    by_zone.domain_keys, by_zone.epoch = (), 2
    with pytest.raises(InvalidInput, match="cannot change while it owns 1 domains"):
        await by_zone.report_once(client)
    by_zone.domain_keys, by_zone.epoch = (ZONE,), 3
    await by_zone.report_once(client)
    by_rack.domain_keys, by_rack.observed_domains = (ZONE,), {}
    await by_rack.report_once(client)
    await client.call(
        "AssignDomain",
        wire.AssignDomainRequest(topology_key=ZONE, topology_value="a", shard_id="s2"),
    )
    for shard in (by_zone, by_zone, by_rack, by_rack):
        await shard.report_once(client)
    assert await domains_of(client) == {"a": ("s2", "owned")}


async def test_no_domain_is_assigned_before_the_expected_shards_have_registered(
    binaries: Binaries, directory: Path
) -> None:
    """Otherwise the first shard of a new fleet would get everything."""
    async with coordinator(settings(binaries, directory, expected_shards=2)) as client:
        one, two = FakeShard("s1"), FakeShard("s2", port=7781)
        one.observed_domains = {(RACK, "r1"): 10}
        await one.report_once(client)
        assert await domains_of(client) == {}
        await two.report_once(client)
        await one.report_once(client)
        assert len(await domains_of(client)) == 1


async def test_state_survives_a_restart_and_terms_keep_growing(
    binaries: Binaries, directory: Path
) -> None:
    config, one = settings(binaries, directory), FakeShard("s1")
    one.observed_domains = {(RACK, "r1"): 10}
    async with coordinator(config) as client:
        await one.report_once(client)
        await one.report_once(client)
        request = wire.ResolveClusterRequest(cluster_id="c", asking_shard_id="s1")
        request.assigned_only = True
        with pytest.raises(UnknownObject, match="not served by any shard yet"):
            await client.call("ResolveCluster", request)
        request.assigned_only = False
        first = await client.call("ResolveCluster", request)
    async with coordinator(config) as client:
        assert await domains_of(client) == {"r1": ("s1", "owned")}
        request = wire.ResolveClusterRequest(cluster_id="c")
        again = await client.call("ResolveCluster", request)
        assert (again.shard_id, again.shard_address) == ("s1", one.address)
        assert again.coordinator_term > first.coordinator_term
        ack = await one.report_once(client)
        assert list(ack.instructions) == []


async def test_errors_have_the_right_code_and_text(client: LeaderClient) -> None:
    """FAILED_PRECONDITION is used for stale requests only."""
    await FakeShard("s1", epoch=3).report_once(client)
    with pytest.raises(Fenced, match="replaced by epoch 3"):
        await FakeShard("s1", epoch=2).report_once(client)
    broken = FakeShard("s1", epoch=3).report()
    broken.shortfalls.extend(many_shortfalls(101))
    with pytest.raises(InvalidInput, match="101 exceeds the limit of 100"):
        await client.call("ReportShard", broken)
    request = wire.AssignDomainRequest(topology_key="k", topology_value="v", shard_id="s9")
    with pytest.raises(UnknownObject, match="shard s9 has never"):
        await client.call("AssignDomain", request)
    with pytest.raises(BigFleetError, match="only replica") as refused:
        await client.call("LeaveRaftCluster", wire.LeaveRaftClusterRequest(node_id="a"))
    assert not isinstance(refused.value, Fenced)


async def test_a_quota_is_sent_once_per_start_of_a_shard(client: LeaderClient) -> None:
    one = FakeShard("s1")
    await one.report_once(client)
    quota = wire.QuotaAllocation(provider="kwok", region="r", per_shard={"s1": 5})
    await client.call("SetQuota", wire.SetQuotaRequest(quota=quota))
    await one.report_once(client)
    assert one.slices == {("kwok", "r"): 5}
    assert list((await one.report_once(client)).instructions) == []
    fresh = FakeShard("s1", epoch=2)
    await fresh.report_once(client)
    assert fresh.slices == {("kwok", "r"): 5}


async def test_a_shard_that_has_seen_a_later_term_gets_no_instructions(
    client: LeaderClient,
) -> None:
    """This coordinator's state is not the latest: it must assign nothing."""
    ahead = FakeShard("s1")
    ahead.seen = (10_000, 1)
    ahead.observed_domains = {(RACK, "r1"): 1}
    ack = await ahead.report_once(client)
    assert (ack.acknowledged, list(ack.instructions)) == (True, [])
    assert await domains_of(client) == {}


async def test_a_live_shard_releases_everything_before_its_removal(client: LeaderClient) -> None:
    one = FakeShard("s1")
    one.observed_domains = {(RACK, "r1"): 1}
    await one.report_once(client)
    await one.report_once(client)
    await client.call("RemoveShard", wire.RemoveShardRequest(shard_id="s1"))
    one.observed_domains = {}
    with pytest.raises(Fenced, match="was removed"):
        await report_until_rejected(one, client)
    assert one.owns == set()
    assert await domains_of(client) == {}


async def test_a_follower_names_the_leader(binaries: Binaries, directory: Path) -> None:
    """UNAVAILABLE with the trailer, which is empty while no leader is known; here for ever, as the
    only other replica is not there.
    """
    own, other = free_address(), free_address()
    alone = replace(settings(binaries, directory), peers={"a": own, "b": other})
    async with (
        role.serving(alone) as serves,
        grpc.aio.insecure_channel(f"127.0.0.1:{serves.port}") as channel,
    ):
        stub: Any = CoordinatorStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListShards(wire.ListShardsRequest())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert trailer(caught.value.trailing_metadata(), LEADER_TRAILER) == ""


async def test_a_saved_fleet_is_restored_and_its_shards_confirm(
    binaries: Binaries, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fleet save`, then `fleet restore` into an empty directory, and on with it."""
    one, file = FakeShard("s1"), directory / "saved"
    one.observed_domains = {(RACK, "r1"): 10}
    async with coordinator(settings(binaries, directory)) as client:
        await one.report_once(client)
        ack = await one.report_once(client)
        save = ["fleet", "save", str(file), "--coordinator", client.leader, "--insecure"]
        assert await asyncio.to_thread(run_command, save) == 0
    restored = directory / "restored"
    restore = ["fleet", "restore", str(file), "--state", str(restored), "--insecure"]
    replica = ["--node-id", "a", "--etcd", str(binaries.etcd)]
    assert await asyncio.to_thread(run_command, [*restore, *replica]) == 0
    assert await asyncio.to_thread(run_command, [*restore, *replica]) == 2
    config = CoordinatorConfig("a", 0, 0, restored, binaries.etcd, {})
    async with coordinator(config) as client:
        assert await domains_of(client) == {"r1": ("s1", "assigning")}
        fresh = await one.report_once(client)
        assert fresh.coordinator_term > ack.coordinator_term + 1000
        await one.report_once(client)
        assert await domains_of(client) == {"r1": ("s1", "owned")}
    capsys.readouterr()


def run_command(arguments: list[str]) -> int:
    """In a process of its own: the command has an event loop and signals of its own."""
    command = [sys.executable, "-m", "bigfleet", *arguments]
    return subprocess.run(command, check=False, timeout=200).returncode


async def test_fleet_views_fit_into_80_columns(client: LeaderClient) -> None:
    """Every view, as text and as JSON; text lines fit into 80 columns."""
    one = FakeShard("shard-1")
    one.observed_domains = {(RACK, f"r{n}"): 10 for n in range(3)}
    one.shortfalls = many_shortfalls(3)
    await one.report_once(client)
    await one.report_once(client)
    request = wire.ResolveClusterRequest(cluster_id="cluster-1", asking_shard_id="shard-1")
    await client.call("ResolveCluster", request)
    quota = wire.QuotaAllocation(provider="kwok", region="r", per_shard={"shard-1": 5})
    await client.call("SetQuota", wire.SetQuotaRequest(quota=quota))
    expected = {
        "status": "leads in term",
        "shards": "live",
        "domains": "owned",
        "clusters": "cluster-1",
        "quotas": "kwok",
        "shortfalls": "higher priorities",
        "providers": "127.0.0.1:7770",
    }
    for action, said in expected.items():
        text = await view([client.leader], None, action, "text")
        assert said in text, text
        assert max(map(len, text.splitlines())) <= 80, text
        assert json.loads(await view([client.leader], None, action, "json"))["term"] > 0


async def test_an_unreachable_coordinator_is_reported_in_a_sentence() -> None:
    async with LeaderClient(["127.0.0.1:1"]) as client:
        with pytest.raises(Unavailable, match=r"no coordinator leads: 127\.0\.0\.1:1"):
            await client.call("ListShards", wire.ListShardsRequest(), timeout_seconds=0.2)


async def test_two_replicas_cannot_share_a_state_directory(
    binaries: Binaries, directory: Path
) -> None:
    """The second would take over the sockets of the first one's etcd, and its watchdog."""
    config = settings(binaries, directory)
    async with coordinator(config):
        with pytest.raises(InvalidInput, match=r"--state: .*in use by coordinator a, process"):
            async with role.serving(config):
                pass
    async with coordinator(config):
        pass


def test_an_etcd_that_is_none_is_refused_at_once(directory: Path) -> None:
    with pytest.raises(InvalidInput, match="--etcd"):
        CoordinatorConfig("a", 0, 0, directory, directory / "missing", {})


def test_the_command_line_names_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--listen", "127.0.0.1:0", "--observe", "127.0.0.1:0", "--state", "/tmp/x"]
    more = ["--etcd", sys.executable, "--node-id", "a", "--insecure"]
    peers = ["--peers", "b=127.0.0.1:1"]
    assert main(["coordinator", *flags, *more, *peers]) == 2
    assert "does not name this replica" in capsys.readouterr().err
