"""Which requests have the condition CapacityShort, and how often it is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

import msgspec
import pytest

from bigfleet.api.need_codec import sizes_to_wire
from bigfleet.api.v1alpha1.capacity_pb2 import PodSizes
from bigfleet.api.v1alpha1.shard_pb2 import DemandStatus, NeedStatus
from bigfleet.controllers.operator import short_conditions
from bigfleet.controllers.operator.request_cache import CapacityRequest, RequestCache, RequestKey
from bigfleet.controllers.operator.short_conditions import ShortConditions
from bigfleet.kube.client import KubeClient
from bigfleet.model.need import Size
from bigfleet.tasks import run_until_first_completes

Writes = list[tuple[str, str, str]]


def _request(
    name: str, cpu: str = "1", age: int = 0, short: Mapping[str, str] | None = None
) -> CapacityRequest:
    conditions = [{"type": "CapacityShort", **short}] if short else []
    raw = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": f"2026-01-01T00:{59 - age:02d}:00Z",
        },
        "spec": {"resources": {"cpu": cpu}, "priority": 0},
        "status": {"conditions": conditions},
    }
    return msgspec.json.decode(json.dumps(raw), type=CapacityRequest)


def _size(cpu: int, pods: int) -> Size:
    return Size((("cpu", cpu * 1000),), pods)


class Cluster:
    """Requests in a ledger, and what is written on them; a write is not seen by the ledger's watch
    before `watch`.
    """

    def __init__(self, *requests: CapacityRequest) -> None:
        self.request_cache, self.now = RequestCache(), 1_000_000.0
        self.request_cache.replace(list(requests))
        self.writes: Writes = []
        self.wrote = asyncio.Event()
        self.conditions = ShortConditions(
            cast(KubeClient, self), self.request_cache, 100_000, lambda: self.now
        )
        self._requests = {request.key: request for request in requests}
        self._written: dict[RequestKey, dict[str, str]] = {}

    async def patch(self, path: str, body: Mapping[str, Any], *_: object) -> bytes:
        [condition] = body["status"]["conditions"]
        name = path.split("/")[-2]
        self.writes.append((name, condition["status"], condition["reason"]))
        self.wrote.set()
        self._written[RequestKey("team", name)] = {
            k: v for k, v in condition.items() if k != "type"
        }
        return b"{}"

    def status(self, *sizes: Size, reason: str = "PriorityStarved", message: str = "m") -> None:
        """The shard says that pods of these sizes, of the only need, are short."""
        [row] = {
            self.request_cache.aggregate.need_key_of(key) for key in self.request_cache.created
        }
        need = NeedStatus(
            profile_fingerprint=row.fingerprint, group=row.group, reason=reason, message=message
        )
        if sizes:
            need.sizes.CopyFrom(sizes_to_wire(sizes))
        self.conditions.enqueue(DemandStatus(short=[need]))

    def met(self) -> None:
        self.conditions.enqueue(DemandStatus())

    def watch(self) -> None:
        for key, condition in self._written.items():
            request = self._requests[key]
            made = request.metadata.creation_timestamp
            age = 59 - (made.minute if made else 0)
            cpu = msgspec.json.decode(request.spec)["resources"]["cpu"]
            self.request_cache.put(_request(key.name, cpu, age, condition))


Play = Callable[[Cluster], Coroutine[object, object, None]]


async def _played(cluster: Cluster, play: Play) -> Writes:
    await run_until_first_completes(cluster.conditions.run(), play(cluster))
    return cluster.writes


async def _settled(cluster: Cluster, writes: int) -> None:
    """Wait for so many writes, and then a little for those that should not come."""
    async with asyncio.timeout(120):
        while len(cluster.writes) < writes:
            cluster.wrote.clear()
            await cluster.wrote.wait()
    await asyncio.sleep(0.03)
    assert len(cluster.writes) == writes


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_conditions, "_POLL_INTERVAL_SECONDS", 0.005)


async def test_as_many_requests_of_a_size_have_it_as_pods_are_short_the_newest_first() -> None:
    small = [_request(f"small-{age}", "1", age) for age in range(5)]
    large = [_request(f"large-{age}", "2", age) for age in range(5)]

    async def play(cluster: Cluster) -> None:
        cluster.status(_size(1, 2), _size(2, 1))
        await _settled(cluster, 3)

    writes = await _played(Cluster(*small, *large), play)
    assert sorted(writes) == [
        ("large-0", "True", "PriorityStarved"),
        ("small-0", "True", "PriorityStarved"),
        ("small-1", "True", "PriorityStarved"),
    ]


async def test_all_requests_of_a_size_that_fits_no_machine_have_it_and_no_others() -> None:
    requests = [_request(f"r-{age}", "1", age) for age in range(3)]

    async def play(cluster: Cluster) -> None:
        cluster.status(_size(9, 1), reason="NoMatchingSupply")
        await _settled(cluster, 3)

    huge = [_request(f"huge-{age}", "9", age) for age in range(3)]
    writes = await _played(Cluster(*requests, *huge), play)
    assert {name for name, *_ in writes} == {"huge-0", "huge-1", "huge-2"}


async def test_conditions_are_withdrawn_in_the_order_of_the_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not in that of a set, which differs between processes: a story could not be replayed."""
    monkeypatch.setattr(short_conditions, "_CONCURRENCY", 1)  # else writes may overtake
    short = {"status": "True", "reason": "PriorityStarved", "message": "m"}
    names = [f"r-{number}" for number in range(20)]

    async def play(cluster: Cluster) -> None:
        cluster.met()
        await _settled(cluster, 20)

    writes = await _played(Cluster(*(_request(name, short=short) for name in names)), play)
    assert [name for name, *_ in writes] == names


async def test_nothing_is_written_twice_however_often_it_is_reported() -> None:
    async def play(cluster: Cluster) -> None:
        for _ in range(3):
            cluster.status(_size(1, 1))
            await _settled(cluster, 1)
            cluster.watch()
        for _ in range(3):
            cluster.met()
            await _settled(cluster, 2)
            cluster.watch()

    writes = await _played(Cluster(_request("r")), play)
    assert writes == [("r", "True", "PriorityStarved"), ("r", "False", "Satisfied")]


async def test_a_message_alone_is_renewed_once_a_minute_a_reason_at_once() -> None:
    async def play(cluster: Cluster) -> None:
        for number in range(4):
            cluster.status(_size(1, 1), message=f"lacks {number}")
            await _settled(cluster, 1)
        cluster.now += 61
        await _settled(cluster, 2)
        cluster.status(_size(1, 1), reason="PreemptionExhausted")
        await _settled(cluster, 3)

    writes = await _played(Cluster(_request("r")), play)
    assert [reason for *_, reason in writes] == [
        "PriorityStarved",
        "PriorityStarved",
        "PreemptionExhausted",
    ]


async def test_newer_requests_get_it_in_place_of_older_ones() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.status(_size(1, 1))
        await _settled(cluster, 1)
        cluster.request_cache.put(_request("newer", age=0))
        await _settled(cluster, 3)

    writes = await _played(Cluster(_request("older", age=9)), play)
    assert sorted(writes[1:]) == [
        ("newer", "True", "PriorityStarved"),
        ("older", "False", "Satisfied"),
    ]


async def test_a_size_that_is_not_there_any_more_changes_nothing() -> None:
    """The shard's report is about an older roll-up; that about this one is to come."""

    async def play(cluster: Cluster) -> None:
        cluster.status(_size(1, 1))
        await _settled(cluster, 1)
        cluster.status(_size(7, 1))
        await _settled(cluster, 1)

    writes = await _played(Cluster(_request("a", age=1), _request("b", age=2)), play)
    assert writes == [("a", "True", "PriorityStarved")]


async def test_without_sizes_the_whole_need_is_short_but_few_of_many_requests_have_it() -> None:
    requests = [_request(f"r-{number}", str(1 + number % 3)) for number in range(1000)]

    async def play(cluster: Cluster) -> None:
        cluster.status()
        await _settled(cluster, 200)

    assert len(await _played(Cluster(*requests), play)) == 200


async def test_existing_conditions_stay_until_the_shards_first_report() -> None:
    short = {"status": "True", "reason": "PriorityStarved", "message": "m"}

    async def play(cluster: Cluster) -> None:
        await _settled(cluster, 0)
        cluster.met()
        await _settled(cluster, 1)

    assert await _played(Cluster(_request("r", short=short)), play) == [("r", "False", "Satisfied")]


async def test_a_recreated_request_gets_a_new_condition() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.status(_size(1, 1))
        await _settled(cluster, 1)
        cluster.request_cache.remove(RequestKey("team", "r"))
        cluster.request_cache.put(_request("r", age=0))
        await _settled(cluster, 2)

    assert len(await _played(Cluster(_request("r", age=9)), play)) == 2


async def test_an_invalid_report_changes_nothing() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.status(_size(1, 1), reason="Not a reason!")
        await _settled(cluster, 1)
        broken = NeedStatus(sizes=PodSizes(resources=["cpu"], amounts=[1, 2], counts=[1]))
        cluster.conditions.enqueue(DemandStatus(short=[broken]))
        await _settled(cluster, 1)

    assert await _played(Cluster(_request("r")), play) == [("r", "True", "Short")]
