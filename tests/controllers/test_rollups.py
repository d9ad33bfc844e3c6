"""When roll-ups are sent: never before the demand is known, soon after a change, and regularly."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import asynccontextmanager, suppress

import msgspec

from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.api.v1alpha1.shard_pb2 import Acknowledgement, RollUpTooLarge
from bigfleet.controllers.operator.aggregate import NeedKey
from bigfleet.controllers.operator.request_cache import CapacityRequest, RequestCache
from bigfleet.controllers.operator.rollup import Pace, RollUpSender
from tests.support.waiting import eventually


def _request(name: str, priority: int = 0) -> CapacityRequest:
    raw = {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"resources": {"cpu": "1"}, "priority": priority},
    }
    return msgspec.json.decode(json.dumps(raw), type=CapacityRequest)


class _Shard:
    """Answers at once; `rejected` and `left_out` are its answer's."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[ClusterCapacityNeeds] = asyncio.Queue()
        self.rejected = ""
        self.left_out: list[int] = []

    async def deliver(self, rollup: ClusterCapacityNeeds) -> Acknowledgement:
        self.received.put_nowait(rollup)
        return Acknowledgement(
            echo=str(rollup.timestamp_unix_nanos),
            rejected=self.rejected,
            left_out=self.left_out,
            left_out_why="too much" if self.left_out else "",
        )

    def report_too_large(self, content: RollUpTooLarge) -> None:
        raise AssertionError(content)

    async def next(self, seconds: float = 60) -> ClusterCapacityNeeds:
        async with asyncio.timeout(seconds):
            return await self.received.get()


@asynccontextmanager
async def _sending(
    request_cache: RequestCache,
    shard: _Shard,
    accepted: list[int],
    rollup_seconds: float = 60,
    least_seconds: float = 0,
) -> AsyncIterator[None]:
    def accept(version: int, _: Set[NeedKey]) -> None:
        accepted.append(version)

    pace = Pace(rollup_seconds, least_seconds, debounce_seconds=0.05)
    rollups = RollUpSender("c", request_cache, pace, accept, time.monotonic)
    task = asyncio.create_task(rollups.send_over(shard))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_nothing_is_sent_before_the_requests_are_listed() -> None:
    """An empty roll-up would mean no demand, and cost the cluster its machines."""
    request_cache, shard = RequestCache(), _Shard()
    async with _sending(request_cache, shard, [], rollup_seconds=0.02):
        await asyncio.sleep(0.1)
        assert shard.received.empty()
        request_cache.replace([_request("a")])
        first = await shard.next()
        assert (len(first.needs), first.requests_observed) == (1, 1)


async def test_changes_close_to_each_other_make_one_rollup() -> None:
    request_cache, shard = RequestCache(), _Shard()
    request_cache.replace([])
    async with _sending(request_cache, shard, []):
        assert len((await shard.next()).needs) == 0
        for number in range(100):
            request_cache.put(_request(str(number)))
        [need] = (await shard.next()).needs
        assert need.aggregate_resources == {"cpu": "100"}
        await asyncio.sleep(0.1)
        assert shard.received.empty()


async def test_while_demand_changes_all_the_time_rollups_keep_their_distance() -> None:
    """Each has the whole demand, and costs operator and shard as much as if nothing had been sent
    before.
    """
    request_cache, shard = RequestCache(), _Shard()
    request_cache.replace([])
    sent: list[float] = []

    async def change() -> None:
        for number in itertools.count():
            request_cache.put(_request(str(number)))
            await asyncio.sleep(0.01)

    async with _sending(request_cache, shard, [], least_seconds=0.3):
        changing = asyncio.create_task(change())
        await shard.next()  # for no change
        for _ in range(4):
            await shard.next()
            sent.append(time.monotonic())
        changing.cancel()
    assert all(later - sooner >= 0.29 for sooner, later in itertools.pairwise(sent))


async def test_a_change_after_a_repeated_roll_up_waits_for_the_debounce_alone() -> None:
    """As after the first one of a session."""
    request_cache, shard = RequestCache(), _Shard()
    request_cache.replace([])
    async with _sending(request_cache, shard, [], least_seconds=0.5):
        await shard.next()
        changed = time.monotonic()
        request_cache.put(_request("a"))
        await shard.next()
        assert time.monotonic() - changed < 0.3


async def test_without_changes_a_rollup_still_comes_at_intervals_each_with_a_later_time() -> None:
    request_cache, shard = RequestCache(), _Shard()
    request_cache.replace([_request("a")])
    async with _sending(request_cache, shard, [], rollup_seconds=0.02):
        first, second = await shard.next(), await shard.next()
    assert second.timestamp_unix_nanos > first.timestamp_unix_nanos
    assert second.needs == first.needs


async def test_a_rejected_rollup_acknowledges_nothing_and_the_next_may_do_better() -> None:
    request_cache, shard = RequestCache(), _Shard()
    accepted: list[int] = []
    request_cache.replace([_request("a")])
    shard.rejected = "need 0: is wrong"
    async with _sending(request_cache, shard, accepted):
        await shard.next()
        await asyncio.sleep(0)
        assert accepted == []
        shard.rejected = ""
        request_cache.put(_request("b"))
        await shard.next()
        await asyncio.sleep(0.01)
    assert accepted == [request_cache.aggregate.version]


async def test_needs_that_the_shard_leaves_out_are_not_accepted() -> None:
    """Each is reported with the shard's reason, and the rest is in effect."""
    request_cache, shard = RequestCache(), _Shard()
    request_cache.replace([_request("a"), _request("b", priority=1)])
    shard.left_out = [1]
    refused: list[Mapping[NeedKey, str]] = []
    excluded: list[Set[NeedKey]] = []
    sender = RollUpSender(
        "c",
        request_cache,
        Pace(60),
        lambda _, rows: excluded.append(rows),
        time.monotonic,
        refused=refused.append,
    )
    task = asyncio.create_task(sender.send_over(shard))
    sent = await shard.next()
    await eventually(lambda: bool(excluded))
    task.cancel()
    [why] = refused[-1].values()
    assert (len(sent.needs), why) == (2, "too much")
    assert excluded[-1] == refused[-1].keys()
