"""The operator finds the shard that serves its cluster, whatever happens to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1.shard_pb2 import ShardMessage
from bigfleet.controllers.operator.session import Dialer, Session
from bigfleet.observe.metrics import operator_redirects
from tests.support.fake_coordinator import FakeCoordinator
from tests.support.shard_rig import Rig, shard
from tests.support.waiting import eventually

NOBODY = "127.0.0.1:1"


class SessionHandler:
    """Serves for ever; `opened` counts sessions."""

    def __init__(self) -> None:
        self.opened = 0

    def handle(self, message: ShardMessage, session: Session) -> None:
        """Nothing is asked here."""

    async def send_rollups(self, session: Session) -> None:  # noqa: ARG002 - the interface
        """Until the session ends."""
        self.opened += 1
        await asyncio.Event().wait()


@asynccontextmanager
async def dialling(*addresses: str) -> AsyncIterator[tuple[Dialer, SessionHandler]]:
    """A dialer of cluster east that does not wait long between two attempts."""

    async def briefly(_: float) -> None:
        await asyncio.sleep(0.01)

    handler = SessionHandler()
    dialer = Dialer(addresses, "east", handler, lambda: 0.0, briefly)
    task = asyncio.create_task(dialer.run())
    try:
        yield dialer, handler
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_it_goes_where_it_is_sent(tmp_path: Path) -> None:
    """The first shard names the second, which is not in the operator's list."""
    coordinator, provider = FakeCoordinator(), MemoryProvider()
    before = operator_redirects._value.get()
    first = shard(provider, tmp_path / "0", None, coordinator, shard_id="s-0")
    second = shard(provider, tmp_path / "1", None, coordinator, shard_id="s-1")
    async with first as one, second as two:
        await eventually(lambda: len(coordinator.addresses) == 2)
        coordinator.clusters["east"] = "s-1"
        async with dialling(one.address) as (dialer, handler):
            await eventually(lambda: handler.opened == 1)
            assert dialer.not_ready() == ""
            assert two.shard.sessions.of("east") is not None
            assert one.shard.sessions.of("east") is None
    assert operator_redirects._value.get() == before + 1


async def test_one_living_shard_in_its_list_is_enough(tmp_path: Path) -> None:
    """Dead addresses are passed over."""
    async with (
        shard(MemoryProvider(), tmp_path, None, FakeCoordinator()) as only,
        dialling(NOBODY, NOBODY, only.address) as (_, handler),
    ):
        await eventually(lambda: handler.opened == 1)


async def test_shards_that_name_each_other_are_not_dialled_in_a_loop(tmp_path: Path) -> None:
    """Two redirects in a row are a failure, after which it waits like after any other."""
    one_says, two_says = FakeCoordinator(), FakeCoordinator()
    one_says.clusters["east"], two_says.clusters["east"] = "s-1", "s-0"
    first = shard(MemoryProvider(), tmp_path / "0", None, one_says, shard_id="s-0")
    second = shard(MemoryProvider(), tmp_path / "1", None, two_says, shard_id="s-1")
    async with first as one, second as two:
        one_says.addresses["s-1"], two_says.addresses["s-0"] = two.address, one.address
        async with dialling(one.address) as (dialer, handler):
            await eventually(lambda: "serves this cluster" in dialer.not_ready())
            two_says.clusters["east"] = "s-1"
            await eventually(lambda: handler.opened == 1)


async def test_without_a_coordinator_it_comes_back_to_where_it_was_served(tmp_path: Path) -> None:
    """Its shard restarts during an election: the one it was sent to is still known to both."""
    coordinator, provider = FakeCoordinator(), MemoryProvider()

    def second(port: int = 0) -> AbstractAsyncContextManager[Rig]:
        return shard(provider, tmp_path / "1", None, coordinator, shard_id="s-1", listen_port=port)

    first = shard(provider, tmp_path / "0", None, coordinator, shard_id="s-0")
    async with first as one, dialling(one.address) as (_, handler):
        coordinator.clusters["east"] = "s-1"
        async with second() as two:
            await eventually(lambda: handler.opened == 1)
            coordinator.reachable = False
            port = int(two.address.rpartition(":")[2])
        async with second(port):
            await eventually(lambda: handler.opened == 2)
