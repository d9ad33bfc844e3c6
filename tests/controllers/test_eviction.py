"""Evictions are limited, so that pods of one budget do not delay urgent ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from bigfleet.api.v1alpha1.shard_pb2 import ReclaimInstruction
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator.eviction import EvictionSlots, Evictor
from bigfleet.controllers.operator.pods import PodOnNode
from bigfleet.controllers.operator.reclaim import Reclaimer
from bigfleet.kube.client import TOO_MANY_REQUESTS, ApiError, KubeClient


def pods(owner: str, number: int) -> list[PodOnNode]:
    def pod(position: int) -> dict[str, Any]:
        name = f"{owner}-{position:02d}"
        owners = [{"kind": "ReplicaSet", "controller": True, "uid": owner}]
        return {"name": name, "namespace": "n", "uid": name, "ownerReferences": owners}

    raw = [{"metadata": pod(position)} for position in range(number)]
    return msgspec.json.decode(msgspec.json.encode(raw), type=list[PodOnNode])


class Server:
    """Answers evictions of `stuck` owners when told to; those of `guarded` owners it refuses."""

    def __init__(self, stuck: str = "", guarded: str = "") -> None:
        self._stuck, self._guarded = stuck, guarded
        self.release = asyncio.Event()
        self.order: list[str] = []
        self.most: Counter[str] = Counter()
        self.refusals_at_once: list[int] = []
        self._at_once: Counter[str] = Counter()

    async def create(self, _: str, eviction: Mapping[str, Any]) -> bytes:
        name = eviction["metadata"]["name"]
        owner = name.rsplit("-", 1)[0]
        self.order.append(name)
        self._at_once[owner] += 1
        self.most[owner] = max(self.most[owner], self._at_once[owner])
        try:
            if owner == self._stuck:
                await self.release.wait()
            await asyncio.sleep(0)
            if owner == self._guarded:
                self.refusals_at_once.append(self._at_once[owner])
                raise ApiError("POST", TOO_MANY_REQUESTS, "TooManyRequests", "its budget")
        finally:
            self._at_once[owner] -= 1
        return b"{}"


def evictor(server: Server) -> Evictor:
    return Evictor(cast(KubeClient, server))


async def test_evictions_that_hang_on_one_budget_hold_up_no_others() -> None:
    """Each conflict under a budget is half a second of waiting within the API server."""
    server = Server(stuck="guarded")
    evicting = evictor(server)
    slow = asyncio.create_task(evicting.evict_all(pods("guarded", 40), deadline=30))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await evicting.evict_all(pods("web", 40), deadline=10)
    assert not slow.done()
    assert server.most["guarded"] == 16
    server.release.set()
    await slow
    assert len(server.order) == len(set(server.order)) == 80


async def test_an_owner_whose_eviction_was_refused_is_evicted_one_at_a_time() -> None:
    """Under a budget concurrent ones would only conflict."""
    server = Server(guarded="web")
    await evictor(server).evict_all(pods("web", 20), deadline=10)
    assert len(server.order) == 20
    assert set(server.refusals_at_once[16:]) == {1}


async def test_a_pod_that_is_leaving_is_not_evicted_again() -> None:
    server = Server()
    leaving, staying = pods("web", 2)
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    await evictor(server).evict_all([leaving, staying], deadline=10)
    assert server.order == ["web-01"]


async def test_the_node_with_the_least_time_left_comes_first() -> None:
    """Whoever came first: ten minutes can wait for ten seconds."""
    turns, order = EvictionSlots(max_concurrent=1, max_per_owner=1), []

    async def take(owner: str, deadline: float) -> None:
        async with turns.slot(owner, deadline):
            order.append(owner)
            await asyncio.sleep(0)

    tasks = [
        asyncio.create_task(take(owner, deadline))
        for owner, deadline in (("first", 600), ("slow", 600), ("urgent", 10), ("soon", 30))
    ]
    await asyncio.gather(*tasks)
    assert order == ["first", "urgent", "soon", "slow"]


@pytest.mark.parametrize("waiting", [True, False])
async def test_who_gives_up_leaves_its_turn_to_others(waiting: bool) -> None:
    """Whether it had one or still waited for it."""
    turns = EvictionSlots(max_concurrent=1, max_per_owner=1)
    begun = asyncio.Event()

    async def hold(owner: str) -> None:
        async with turns.slot(owner, 1):
            begun.set()
            await asyncio.sleep(3600)

    holder = asyncio.create_task(hold("a"))
    await begun.wait()
    other = asyncio.create_task(hold("b"))
    await asyncio.sleep(0)
    given_up, kept = (other, holder) if waiting else (holder, other)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    begun.clear()
    third = asyncio.create_task(hold("c"))
    kept.cancel()
    async with asyncio.timeout(60):
        await begun.wait()
    third.cancel()
    await asyncio.gather(kept, third, return_exceptions=True)


class NodeOfOne(Server):
    """A cluster with a Node and pods of one owner, whose evictions hang."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up = asyncio.Event()

    async def create(self, _: str, eviction: Mapping[str, Any]) -> bytes:
        self.order.append(eviction["metadata"]["name"])
        try:
            for_ever: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            return await for_ever
        finally:
            self.given_up.set()

    async def get(self, path: str, _: Mapping[str, str] | None = None) -> bytes:
        body = {"items": pods("web", 3)} if path == "/api/v1/pods" else self._node()
        return msgspec.json.encode(body)

    async def patch(self, _: str, __: Any) -> bytes:
        return msgspec.json.encode(self._node())

    def _node(self) -> dict[str, Any]:
        labels = {MACHINE_LABEL: "m-1"}
        return {"metadata": {"name": "m-1", "uid": "u", "labels": labels}}


async def _unasked(_: Sequence[str], __: float) -> str:
    raise AssertionError("nobody said what it may cost")


async def test_after_the_grace_period_nothing_is_evicted() -> None:
    """Then the provider takes the machine, with the pods that are left."""
    cluster = NodeOfOne()
    reclaims = Reclaimer(cast(KubeClient, cluster), asyncio.get_running_loop().time, _unasked)
    await reclaims.start(
        ReclaimInstruction(instruction_id="i", nodes=["m-1"], grace_period_seconds=1)
    )
    async with asyncio.timeout(60):
        await cluster.given_up.wait()
    await reclaims.close()
    assert len(cluster.order) == 3
