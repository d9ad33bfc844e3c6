"""Replicas that die, come, go and are told to end: real processes, real etcd."""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.api.auth.issuing import issue
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import BigFleetError
from controlplane.request import Binaries
from tests.support.fake_shard import FakeShard
from tests.support.replicas import Replicas, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(150)
_TIMEOUT_SECONDS = 30.0


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    yield path
    shutil.rmtree(path)


async def shards_of(client: LeaderClient) -> list[str]:
    answer = await client.call("ListShards", wire.ListShardsRequest(), _TIMEOUT_SECONDS)
    return [row.shard_id for row in answer.shards]


def test_etcd_dies_with_its_coordinator_even_by_kill(binaries: Binaries, directory: Path) -> None:
    """No member is left that could lead for nobody."""
    with running(binaries.etcd, directory, ["a"]) as replicas:
        replica = replicas.by_id["a"]
        etcd = replica.etcd()
        watchdog = etcd.parent()
        replica.send(signal.SIGKILL)
        assert watchdog is not None
        psutil.wait_procs([etcd, watchdog], timeout=_TIMEOUT_SECONDS)
        assert not etcd.is_running()
        assert not watchdog.is_running()


def test_etcd_dies_with_its_watchdog_and_is_started_again(
    binaries: Binaries, directory: Path
) -> None:
    with running(binaries.etcd, directory, ["a"]) as replicas:
        replica = replicas.by_id["a"]
        first = replica.etcd()
        watchdog = first.parent()
        assert watchdog is not None
        watchdog.kill()
        psutil.wait_procs([first], timeout=_TIMEOUT_SECONDS)
        assert not first.is_running()

        def another() -> bool:
            try:
                return replica.etcd().pid != first.pid
            except StopIteration:
                return False

        wait_until(another, "etcd runs again")
        assert replica.metric("bigfleet_coordinator_etcd_restarts_total") == 1


def test_a_replica_that_is_told_to_end_ends_cleanly(binaries: Binaries, directory: Path) -> None:
    """Leadership is handed over first, and that is no election without a fault."""
    with running(binaries.etcd, directory) as replicas:
        [leader] = [
            r for r in replicas.by_id.values() if r.metric("bigfleet_coordinator_is_leader ")
        ]
        leader.end()
        assert leader.exit_status == 0, leader.log_tail()
        others = [r for r in replicas.by_id.values() if r is not leader]
        name = 'bigfleet_coordinator_elections_total{predecessor="resigned"}'
        wait_until(lambda: sum(r.metric(name) for r in others) == 1, "a successor")
        assert (
            sum(
                r.metric('bigfleet_coordinator_elections_total{predecessor="healthy"}')
                for r in others
            )
            == 0
        )


async def test_a_replica_joins_gets_a_vote_and_leaves(binaries: Binaries, directory: Path) -> None:
    """One becomes three and two again; what was written stays."""
    with running(binaries.etcd, directory, ["a"]) as replicas:
        first = replicas.by_id["a"]
        async with LeaderClient([first.address]) as client:
            await FakeShard("s1").report_once(client, _TIMEOUT_SECONDS)
        for name in ("b", "c"):
            replicas.add(name, "--join", first.address)
            await asyncio.to_thread(replicas.start)
        async with LeaderClient(replicas.addresses()) as client:
            # Three votes bear the loss of one; two would not.
            await asyncio.to_thread(
                wait_until,
                lambda: first.log_tail().count("replica promoted to voter") == 2,
                "three votes, which bear the loss of one; two would not",
            )
            first.send(signal.SIGKILL)
            assert await shards_of(client) == ["s1"]
            request = wire.LeaveRaftClusterRequest(node_id="a")
            await client.call("LeaveRaftCluster", request, _TIMEOUT_SECONDS)
            with pytest.raises(BigFleetError, match="no replica a"):
                await client.call("LeaveRaftCluster", request, _TIMEOUT_SECONDS)
            assert await shards_of(client) == ["s1"]


async def test_a_replica_that_lost_its_disk_is_let_in_only_after_it_left(
    binaries: Binaries, directory: Path
) -> None:
    """Its vote confirmed what only one other has written down; it does not come back without."""
    with running(binaries.etcd, directory) as replicas:
        lost = next(
            r for r in replicas.by_id.values() if not r.metric("bigfleet_coordinator_is_leader ")
        )
        name = next(each for each, r in replicas.by_id.items() if r is lost)
        others = [r.address for r in replicas.by_id.values() if r is not lost]
        lost.end()
        shutil.rmtree(directory / name)
        again = replicas.add(name, "--join", ",".join(others))
        again.start()
        await asyncio.to_thread(wait_until, lambda: again.exit_status is not None, "it is refused")
        assert f"First run `bigfleet fleet remove-replica {name}`" in again.log_tail()
        async with LeaderClient(others) as client:
            request = wire.LeaveRaftClusterRequest(node_id=name)
            await client.call("LeaveRaftCluster", request, _TIMEOUT_SECONDS)
        await asyncio.to_thread(replicas.start)


async def test_a_replica_that_was_taken_out_ends_and_says_so(
    binaries: Binaries, directory: Path
) -> None:
    """At once, and not with etcd's words, which are of broken connections."""
    with running(binaries.etcd, directory) as replicas:
        async with LeaderClient(replicas.addresses()) as client:
            await shards_of(client)
            leaver = next(n for n, r in replicas.by_id.items() if r.address != client.leader)
            request = wire.LeaveRaftClusterRequest(node_id=leaver)
            await client.call("LeaveRaftCluster", request, _TIMEOUT_SECONDS)
        gone = replicas.by_id[leaver]
        await asyncio.to_thread(wait_until, lambda: gone.exit_status is not None, "it ends")
    assert gone.log_tail().rstrip().endswith("start it with --join and an empty state directory")


def test_a_replica_whose_peer_port_is_taken_says_so(binaries: Binaries, directory: Path) -> None:
    """It gives up with etcd's own words instead of trying for ever."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = f"127.0.0.1:{stranger.getsockname()[1]}"
        replica = Replicas(binaries.etcd, directory, ["a"], peers={"a": taken}).by_id["a"]
        replica.start()
        wait_until(lambda: replica.exit_status is not None, "it gives up")
    assert replica.exit_status == 1
    assert "address already in use" in replica.log_tail()


async def test_replicas_with_identities_admit_their_like_alone(
    binaries: Binaries, directory: Path
) -> None:
    """Raft and calls go by TLS; a shard's certificate opens a call of a shard, and no member."""
    names = [
        *(Principal("coordinator", each) for each in "abc"),
        Principal("shard", "s1"),
        Principal("readonly"),
    ]
    made = issue(directory / "ids", names, timedelta(days=1))
    paths = {name.id: each.directory for name, each in made.items() if name.role == "coordinator"}
    with running(binaries.etcd, directory, identities=paths) as replicas:
        addresses = replicas.addresses()
        async with LeaderClient(addresses, made[Principal("shard", "s1")]) as client:
            await FakeShard("s1").report_once(client, _TIMEOUT_SECONDS)
            with pytest.raises(BigFleetError, match=r"denied by the coordinator: .* may not call"):
                await client.call("RemoveShard", wire.RemoveShardRequest(shard_id="s1"))
        async with LeaderClient(addresses, made[Principal("readonly")]) as client:
            assert await shards_of(client) == ["s1"]
        shard = made[Principal("shard", "s1")]
        for who, welcome in ((shard, False), (made[Principal("coordinator", "b")], True)):
            address = replicas.peer_address("a")
            assert await asyncio.to_thread(peer_port_answers, address, who) is welcome


def peer_port_answers(address: str, identity: Identity) -> bool:
    """Whether the Raft port answers a question to somebody with this identity."""
    context = ssl.create_default_context(cafile=str(identity.directory / "ca.crt"))
    context.load_cert_chain(identity.directory / "tls.crt", identity.directory / "tls.key")
    connection = http.client.HTTPSConnection(address, context=context, timeout=5)
    try:
        connection.request("GET", "/members")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_a_replica_that_leads_its_session_goes_first_with_all_of_it(
    binaries: Binaries, directory: Path
) -> None:
    """Its etcd and its watchdog, too: between sessions, niceness of one process means nothing."""
    if os.geteuid() != 0 or not Path("/proc/self/autogroup").exists():
        pytest.skip("no right to go first, or a kernel that does not group by session")
    with running(binaries.etcd, directory, ["a"]) as replicas:
        replica = replicas.by_id["a"]
        etcd = replica.etcd()
        watchdog = etcd.parent()
        assert watchdog is not None
        for process in (replica.pid, watchdog.pid, etcd.pid):
            assert Path(f"/proc/{process}/autogroup").read_text().endswith("nice -10\n")
            assert os.getpriority(os.PRIO_PROCESS, process) == -10
