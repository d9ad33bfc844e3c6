"""The contract of coordination stores, tested on etcd and in memory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from bigfleet.adapters.coordination.etcd_member import EtcdMember, EtcdMemberConfig
from bigfleet.adapters.coordination.etcd_store import EtcdStore
from bigfleet.adapters.coordination.memory import MemoryCluster
from bigfleet.model.errors import Unavailable
from bigfleet.ports.coordination import (
    LEADER_KEY,
    CoordinationStore,
    LeadershipLost,
    LeadershipStatus,
    WatchUpdate,
)
from controlplane.request import Binaries

_DEADLINE_SECONDS = 30.0


async def on_etcd(etcd: Path) -> AsyncIterator[CoordinationStore]:
    async for store, _ in etcd_alone(etcd):
        yield store


async def etcd_alone(etcd: Path) -> AsyncIterator[tuple[CoordinationStore, EtcdMemberConfig]]:
    directory = Path(tempfile.mkdtemp(prefix="bf-"))
    settings = EtcdMemberConfig("a", etcd, directory, {})
    member, store = await EtcdMember.start(settings), EtcdStore(settings.socket)
    try:
        yield store, settings
    finally:
        await store.close()
        await member.stop()
        shutil.rmtree(directory)


@pytest_asyncio.fixture(params=["memory", "etcd"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[CoordinationStore]:
    """A store whose only member leads."""
    if request.param == "memory":
        cluster = MemoryCluster(["a"])
        cluster.elect("a")
        yield cluster.store("a")
        return
    binaries: Binaries = request.getfixturevalue("binaries")
    async for store in on_etcd(binaries.etcd):
        await leading(store)
        yield store


async def leading(store: CoordinationStore) -> LeadershipStatus:
    """Its status once it leads; on a busy machine a member may not answer in its 0.2 s."""
    async with asyncio.timeout(_DEADLINE_SECONDS):
        while True:
            try:
                status = await store.leadership_status()
                if status.is_leader:
                    return status
            except Unavailable:
                pass
            await asyncio.sleep(0.02)


async def claimed(store: CoordinationStore, row: bytes) -> int:
    _, revision = await store.leader_row()
    return await store.claim(row, revision)


async def take(watching: AsyncIterator[WatchUpdate]) -> WatchUpdate:
    return await asyncio.wait_for(anext(watching), _DEADLINE_SECONDS)


async def test_a_commit_under_the_newest_claim_reaches_all_watchers(
    store: CoordinationStore,
) -> None:
    """A watch starts with all rows, then has every change in order."""
    revision = await claimed(store, b"one")
    await store.commit(revision, {"x": b"1", "y": b"2"})
    watching = store.watch()
    is_snapshot = await take(watching)
    assert is_snapshot.is_snapshot
    assert is_snapshot.changes == {LEADER_KEY: b"one", "x": b"1", "y": b"2"}
    await store.commit(revision, {"x": None, "z": b"3"})
    news = await take(watching)
    assert (news.is_snapshot, news.changes) == (False, {"x": None, "z": b"3"})
    assert news.revision > is_snapshot.revision


async def test_a_write_of_a_deposed_leader_is_rejected(store: CoordinationStore) -> None:
    """Every commit compares the claim's revision."""
    old = await claimed(store, b"one")
    await claimed(store, b"two")
    with pytest.raises(LeadershipLost):
        await store.commit(old, {"x": b"1"})
    is_snapshot = await take(store.watch())
    assert is_snapshot.changes == {LEADER_KEY: b"two"}


async def test_of_two_claims_on_one_revision_the_second_fails(store: CoordinationStore) -> None:
    _, revision = await store.leader_row()
    await store.claim(b"one", revision)
    with pytest.raises(LeadershipLost):
        await store.claim(b"two", revision)
    assert (await store.leader_row())[0] == b"one"


async def test_a_claim_is_ordered_with_all_changes(store: CoordinationStore) -> None:
    """A watcher that has seen its own claim has seen everything before it."""
    first = await claimed(store, b"one")
    watching = store.watch()
    await take(watching)
    await store.commit(first, {"x": b"1"})
    second = await claimed(store, b"two")
    seen: dict[str, bytes | None] = {}
    revision = 0
    while revision < second:
        news = await take(watching)
        seen, revision = {**seen, **news.changes}, news.revision
    assert list(seen.items()) == [("x", b"1"), (LEADER_KEY, b"two")]


async def test_the_only_member_is_listed_and_leads(store: CoordinationStore) -> None:
    leadership_status = await leading(store)
    [member] = await store.members()
    assert (member.name, member.learner) == ("a", False)
    assert leadership_status.is_leader
    assert leadership_status.member_id == member.id
    assert leadership_status.term > 0


async def test_all_pages_are_read_at_one_revision(binaries: Binaries) -> None:
    async for store in on_etcd(binaries.etcd):
        await leading(store)
        revision = await claimed(store, b"one")
        for start in range(0, 5000, 1000):
            rows = {f"row/{n:05}": b"x" * 100 for n in range(start, start + 1000)}
            await store.commit(revision, rows)
        is_snapshot = await take(store.watch())
        assert len(is_snapshot.changes) == 5001


async def test_a_watch_from_before_a_compaction_ends(binaries: Binaries) -> None:
    """It fails instead of waiting forever for compacted revisions."""
    async for store, settings in etcd_alone(binaries.etcd):
        await leading(store)
        claim = await claimed(store, b"one")
        watching = store.watch()
        await take(watching)  # the rows; what comes next is asked for with the next question
        for value in (b"1", b"2", b"3"):
            await store.commit(claim, {"x": value})
        await compacted(settings, claim + 3)
        with pytest.raises(Unavailable, match="compacted"):
            await take(watching)
        assert (await take(store.watch())).changes == {LEADER_KEY: b"one", "x": b"3"}


async def compacted(settings: EtcdMemberConfig, revision: int) -> None:
    """As etcd does by itself every five minutes."""
    connector = aiohttp.UnixConnector(str(settings.http_socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        told = {"revision": str(revision)}
        async with session.post("http://etcd/v3/kv/compaction", json=told) as answer:
            assert answer.status == 200, await answer.text()
