"""A small API server with a history, that can cut, forget and garble its watches."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Listed, Watch
from tests.support.waiting import eventually

PATH = "/api/v1/things"
PAGE = 2


class Metadata(msgspec.Struct):
    name: str


class Thing(msgspec.Struct):
    metadata: Metadata
    value: int


@dataclass
class FakeApi:
    """Objects by name, and what happened to them; versions count from 1."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    version: int = 0
    forgotten: int = 0
    refuse_with: int | None = None
    refuse_all_with: int | None = None
    requests: list[str] = field(default_factory=list)
    watchers: list[web.StreamResponse] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _cuts: int = 0
    _cut_mid_line: bool = False
    bookmark_due: bool = False

    def put(self, name: str) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = self._object(name, self.version)
        self._record(kind, self.objects[name])

    def delete(self, name: str) -> None:
        if name in self.objects:
            self.version += 1
            value = self.objects.pop(name)["value"]
            self._record("DELETED", self._object(name, value))

    def forget(self) -> None:
        """Compact: versions up to now can be resumed from no more."""
        self.forgotten = self.version
        self.history = []

    def cut(self, mid_line: bool = False) -> None:
        self._cuts += 1
        self._cut_mid_line = mid_line
        self._wake()

    def bookmark(self) -> None:
        self.version += 1
        self.bookmark_due = True
        self._wake()

    def _object(self, name: str, value: int) -> dict[str, Any]:
        metadata = {"name": name, "resourceVersion": str(self.version)}
        return {"metadata": metadata, "value": value}

    def _record(self, kind: str, item: dict[str, Any]) -> None:
        self.history.append({"type": kind, "object": item})
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.query_string)
        if self.refuse_all_with is not None:
            self.refuse_with = self.refuse_all_with
        if self.refuse_with is not None:
            status, self.refuse_with = self.refuse_with, None
            return web.json_response({"reason": "No", "message": "not now"}, status=status)
        if "watch" in request.query:
            return await self._watch(request, int(request.query["resourceVersion"]))
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        offset, version = 0, self.version
        if token := request.query.get("continue"):
            offset, version = (int(part) for part in token.split("-"))
            if version != self.version:
                return web.json_response({"reason": "Expired", "message": "too old"}, status=410)
        names = sorted(self.objects)
        more = offset + PAGE < len(names)
        metadata = {
            "resourceVersion": str(version),
            "continue": f"{offset + PAGE}-{version}" if more else "",
        }
        items = [self.objects[name] for name in names[offset : offset + PAGE]]
        return web.json_response({"metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, seen: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if seen < self.forgotten:
            status = {"code": 410, "reason": "Expired", "message": "too old"}
            await response.write(_line({"type": "ERROR", "object": status}))
            return response
        cuts = self._cuts
        while True:
            news = self._news
            for event in list(self.history):
                if _version(event) > seen:
                    await response.write(_line(event))
                    seen = _version(event)
            if self.bookmark_due:
                self.bookmark_due, seen = False, self.version
                mark = {"metadata": {"resourceVersion": str(seen)}}
                await response.write(_line({"type": "BOOKMARK", "object": mark}))
            if self._cuts != cuts:
                if self._cut_mid_line:
                    self._cut_mid_line = False
                    await response.write(
                        _line({"type": "ADDED", "object": self._object("x", 0)})[:9]
                    )
                    assert request.transport is not None
                    request.transport.close()
                return response
            await news.wait()


def _version(event: dict[str, Any]) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"


@dataclass
class Follower:
    """Keeps a copy by a Watch, as controllers do."""

    watch: Watch[Thing]
    copy: dict[str, int] = field(default_factory=dict)
    changes: list[tuple[str, int, bool]] = field(default_factory=list)
    lists: int = 0

    async def run(self) -> None:
        async for change in self.watch.follow():
            if isinstance(change, Listed):
                self.copy = {item.metadata.name: item.value for item in change.items}
                self.lists += 1
                continue
            name = change.item.metadata.name
            self.changes.append((name, change.item.value, change.deleted))
            if change.deleted:
                self.copy.pop(name, None)
            else:
                self.copy[name] = change.item.value


@dataclass
class Rig:
    api: FakeApi
    follower: Follower
    _runner: web.AppRunner
    _client: KubeClient
    _task: asyncio.Task[None]

    @classmethod
    async def start(cls, api: FakeApi, batch_seconds: float = 0.0) -> Rig:
        app = web.Application()
        app.router.add_get(PATH, api.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        client = KubeClient(Configuration(host=f"http://{host}:{port}"))
        follower = Follower(Watch(client, PATH, Thing, batch_seconds=batch_seconds))
        return cls(api, follower, runner, client, asyncio.create_task(follower.run()))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()
        await self._runner.cleanup()

    async def until_equal(self) -> None:
        await eventually(lambda: self.follower.lists > 0 and self.follower.copy == self._truth())
        if error := self.failure():
            raise error

    def _truth(self) -> dict[str, int]:
        return {name: item["value"] for name, item in self.api.objects.items()}

    def failure(self) -> BaseException | None:
        return self._task.exception() if self._task.done() else None
