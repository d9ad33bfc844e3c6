"""A watch whose place the server has forgotten leaves a gap, and the gap is counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from bigfleet.api.kube.client import KubeClient
from loaddriver.record.recorder import ClusterRecorder

TOO_OLD = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}


@dataclass
class Forgetful:
    """An API server without objects that has forgotten the place of the first watch of pods."""

    url: str = ""
    lists: Counter[str] = field(default_factory=Counter)
    listed_anew: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if "watch" not in request.query:
            self.lists[kind] += 1
            if self.lists["pods"] == 2:
                self.listed_anew.set()
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        if (kind, self.lists[kind]) == ("pods", 1):
            await response.write(json.dumps(TOO_OLD).encode() + b"\n")
            return response
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
