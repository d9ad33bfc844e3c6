"""A watch whose place the server has forgotten leaves a gap, and the gap is counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Changed, Listed
from loaddriver.record.cluster_watch import ClusterWatch
from loaddriver.record.recorder import ClusterRecorder
from loaddriver.record.watched import Node, Pod

LATE = {"metadata": {"name": "late", "uid": "u1", "resourceVersion": "8"}}
TOO_OLD = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}


@dataclass
class Forgetful:
    """An API server that has forgotten the place of the first watch of pods; a pod comes later."""

    url: str = ""
    lists: Counter[str] = field(default_factory=Counter)
    watches: Counter[str] = field(default_factory=Counter)
    listed_anew: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if "watch" not in request.query:
            self.lists[kind] += 1
            if self.lists["pods"] == 2:
                self.listed_anew.set()
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})
        self.watches[kind] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        if (kind, self.lists[kind]) == ("pods", 1):
            await response.write(json.dumps(TOO_OLD).encode() + b"\n")
            return response
        if kind == "pods":
            await response.write(json.dumps({"type": "ADDED", "object": LATE}).encode() + b"\n")
        await self.closing.wait()
        return response


@pytest.fixture
async def server() -> AsyncIterator[Forgetful]:
    forgetful = Forgetful()
    application = web.Application()
    application.router.add_get("/{path:.*}", forgetful.answer)
    async with TestServer(application) as running:
        forgetful.url = str(running.make_url("")).rstrip("/")
        yield forgetful
        forgetful.closing.set()


@dataclass
class Heard:
    """A reader that only remembers."""

    pods: list[Listed[Pod] | Changed[Pod]] = field(default_factory=list)
    nodes: list[Listed[Node] | Changed[Node]] = field(default_factory=list)

    def take_pods(self, change: Listed[Pod] | Changed[Pod], _: int) -> None:
        self.pods.append(change)

    def take_nodes(self, change: Listed[Node] | Changed[Node], _: int) -> None:
        self.nodes.append(change)


async def test_a_place_that_the_server_forgot_is_a_gap(server: Forgetful) -> None:
    """The other watches go on, and what is listed anew says nothing of what came and went."""
    async with KubeClient(Configuration(host=server.url)) as client:
        recorder = ClusterRecorder("c0", client, audit_log=None)
        running = asyncio.create_task(recorder.run())
        async with asyncio.timeout(90):
            await recorder.started()
            await server.listed_anew.wait()
        running.cancel()
        await asyncio.wait([running])
    seen = recorder.finish()
    assert (seen.watches, seen.watch_gaps) == (3, 1)
    assert server.lists["nodes"] == 1


async def test_all_readers_of_a_cluster_share_its_watches_and_hear_of_gaps(
    server: Forgetful,
) -> None:
    """However many they are, the server lists and watches each collection for them once."""
    readers = [Heard(), Heard(), Heard()]
    async with KubeClient(Configuration(host=server.url)) as client:
        watch = ClusterWatch(client, readers)
        following = [asyncio.create_task(each) for each in watch.followers()]
        async with asyncio.timeout(120):
            await watch.listed_once()
            await server.listed_anew.wait()
            while len(readers[-1].pods) < 3:  # noqa: ASYNC110 - readers set no event
                await asyncio.sleep(0.01)
        for each in following:
            each.cancel()
        await asyncio.wait(following)
    for reader in readers:
        assert reader.pods[:2] == [Listed([]), Listed([])]
        assert reader.pods[2:] == [Changed(msgspec.convert(LATE, Pod), deleted=False)]
        assert reader.nodes == [Listed([])]
    assert server.lists == {"pods": 2, "nodes": 1}
    assert server.watches == {"pods": 2, "nodes": 1}
