"""A small HTTP server with just enough of the Kubernetes API to be loaded.

It remembers what it was asked and when, and refuses or stalls where a test says so.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from loaddriver.load.files import ClusterEndpoint


@dataclass
class ApiServer:
    """What was asked, and how to misbehave.

    `refusals` maps a path's end to the statuses of its first answers; a refused
    create with status 500 has done its work all the same. `stall_seconds` delays
    every create, as a busy API server does. `reject` refuses every token, and
    `garbled` lists cannot be read. `deleted`
    are pods with their UIDs, `removed` other objects with how what they own goes. `callers` are
    the connections over which requests came.
    """

    token: str
    stall_seconds: float = 0.0
    reject: bool = False
    garbled: bool = False
    refusals: dict[str, list[int]] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    deleted: list[tuple[str, str]] = field(default_factory=list)
    removed: list[tuple[str, str]] = field(default_factory=list)
    scaled: dict[str, int] = field(default_factory=dict)
    pods_per_workload: int = 3
    callers: set[str] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.Response:
        """Any request."""
        assert request.transport is not None
        self.callers.add(str(request.transport.get_extra_info("peername")))
        if self.reject or request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"reason": "Unauthorized"}, status=401)
        if request.method == "POST":
            return await self._create(request)
        if request.method == "DELETE":
            return await self._delete(request)
        if request.method == "PATCH":
            return await self._scale(request)
        if self.garbled:
            return web.Response(text="not JSON")
        return web.json_response({"items": self._pods(request.query["labelSelector"])})

    async def _create(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text())
        name = body["metadata"]["name"]
        arrived = time.time()
        await asyncio.sleep(self.stall_seconds)
        planned = self.refusals.get(name)
        status = planned.pop(0) if planned else 201
        if name in self.created and status == 201:
            return web.json_response({"reason": "AlreadyExists"}, status=409)
        if status in (201, 500):
            self.created[name] = arrived
        return web.json_response(body, status=status, headers={"Retry-After": "1"})

    async def _delete(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text())
        name = request.path.rsplit("/", 1)[-1]
        if "/pods/" in request.path:
            self.deleted.append((name, body["preconditions"]["uid"]))
        else:
            self.removed.append((request.path, body["propagationPolicy"]))
        return web.json_response({"kind": "Status"})

    async def _scale(self, request: web.Request) -> web.Response:
        path, _, subresource = request.path.rpartition("/")
        kind = request.headers["Content-Type"]
        if (subresource, kind) != ("scale", "application/merge-patch+json"):
            return web.json_response({"reason": "UnsupportedMediaType"}, status=415)
        self.scaled[path] = json.loads(await request.text())["spec"]["replicas"]
        return web.json_response({"kind": "Scale"})

    def _pods(self, selector: str) -> list[dict[str, object]]:
        workload = selector.split("=")[1]
        return [
            {
                "metadata": {
                    "name": f"{workload}-{number}",
                    "uid": f"uid-{number}",
                    "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
                },
                "status": {"phase": "Running"},
            }
            for number in range(self.pods_per_workload)
        ]


@asynccontextmanager
async def serving(*servers: ApiServer) -> AsyncIterator[list[ClusterEndpoint]]:
    """Serves each on a free loopback port, and gives how to reach them."""
    runners, endpoints = [], []
    for number, server in enumerate(servers):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", server.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        runners.append(runner)
        endpoints.append(
            ClusterEndpoint(
                name=f"cluster-{number}", url=f"http://{host}:{port}", token=server.token
            )
        )
    try:
        yield endpoints
    finally:
        for runner in runners:
            await runner.cleanup()
