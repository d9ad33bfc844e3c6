"""A fake cluster: an HTTP API server with Nodes only, enough for a host to join.

The suite controls when Nodes become Ready, which a real cluster does not allow. The bootstrap blob
has the operator's format: JSON with `apiServer`, `caPem`, `token`, `nodeName`. Its token may do
what that of a real one may.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

from bigfleet.model.errors import Unavailable

Node = dict[str, Any]
_OF_JOINING_MACHINES = ("POST", "PATCH")
_LIST = {"kind": "NodeList", "apiVersion": "v1"}


class FakeCluster:
    """Nodes by name, and all events in order for watches."""

    def __init__(self, cluster_id: str = "conformance") -> None:
        self.id = cluster_id
        self.url = ""
        self.token, self._watcher = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._nodes: dict[str, Node] = {}
        self._events: list[Mapping[str, Any]] = []
        self._changed = asyncio.Condition()
        self._readiness_withheld = False

    def blob(self, machine: str) -> bytes:
        """A blob as the operator creates it."""
        facts = {"apiServer": self.url, "caPem": "", "token": self.token, "nodeName": machine}
        return json.dumps(facts).encode()

    async def remove(self, machine: str) -> None:
        """See `Cluster`."""
        async with self._changed:
            node = self._nodes.pop(machine, None)
            if node is not None:
                self._emit("DELETED", node)

    async def joined(self, machine: str, seconds: float) -> bool:
        """See `Cluster`."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: machine in self._nodes)
        except TimeoutError:
            return False
        return True

    async def taints(self, machine: str) -> Sequence[Mapping[str, str]] | None:
        """See `Cluster`."""
        found: Sequence[Mapping[str, str]] = (
            self._nodes.get(machine, {}).get("spec", {}).get("taints") or ()
        )
        return found

    @asynccontextmanager
    async def readiness_withheld(self) -> AsyncIterator[None]:
        """See `Cluster`. At the end all Nodes become Ready."""
        self._readiness_withheld = True
        try:
            yield
        finally:
            self._readiness_withheld = False
            async with self._changed:
                for node in self._nodes.values():
                    self._set_ready(node)
                    self._emit("MODIFIED", node)

    def kubeconfig(self) -> bytes:
        """A kubeconfig for hosts that watch their Nodes."""
        cluster = {"name": self.id, "cluster": {"server": self.url}}
        user = {"name": "host", "user": {"token": self._watcher}}
        context = {"name": "it", "context": {"cluster": self.id, "user": "host"}}
        whole = {"apiVersion": "v1", "kind": "Config", "current-context": "it"}
        return json.dumps(
            {**whole, "clusters": [cluster], "users": [user], "contexts": [context]}
        ).encode()

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[None]:
        """Serve at `host`:`port` (0: any); Unavailable if the port is in use."""
        application = web.Application(middlewares=[self._authenticated])
        nodes = "/api/v1/nodes"
        application.router.add_get(nodes, self._list_or_watch)
        application.router.add_post(nodes, self._create)
        application.router.add_get(nodes + "/{name}", self._read)
        application.router.add_delete(nodes + "/{name}", self._delete)
        for path in ("/{name}", "/{name}/status"):
            application.router.add_patch(nodes + path, self._patch)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                text = f"conformance: the cluster cannot listen on {host}:{port}: {error}"
                raise Unavailable(text) from None
            self.url = f"http://{host}:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if given not in (self.token, self._watcher):
            return _error_status(
                401, "Unauthorized", "the token is not the one of the bootstrap blob"
            )
        if given == self.token and request.method not in _OF_JOINING_MACHINES:
            text = "the bootstrap blob's token may create and patch its Node, and not read it"
            return _error_status(403, "Forbidden", text)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch", "").lower() not in ("1", "true"):
            metadata = {"resourceVersion": str(len(self._events))}
            items = list(self._nodes.values())
            return web.json_response({**_LIST, "metadata": metadata, "items": items})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionResetError):  # the watching provider may be killed
            await self._watch(response, int(request.query.get("resourceVersion") or 0))
        return response

    async def _watch(self, response: web.StreamResponse, seen: int) -> None:
        while True:
            async with self._changed:
                while len(self._events) == seen:
                    await self._changed.wait()
                new_events = self._events[seen:]
            for event in new_events:
                await response.write(json.dumps(event).encode() + b"\n")
            seen += len(new_events)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        node: Node = await request.json()
        name = node["metadata"]["name"]
        if name in self._nodes:
            return _error_status(409, "AlreadyExists", f"node {name} exists already")
        return await self._put(name, {"status": {}, **node}, "ADDED")

    async def _read(self, request: web.Request) -> web.StreamResponse:
        node = self._nodes.get(request.match_info["name"])
        return (
            _error_status(404, "NotFound", "no such node")
            if node is None
            else web.json_response(node)
        )

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        await self.remove(request.match_info["name"])
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._nodes:
            return _error_status(404, "NotFound", "no such node")
        return await self._put(name, _merged(self._nodes[name], await request.json()), "MODIFIED")

    async def _put(self, name: str, node: Node, event_type: str) -> web.StreamResponse:
        async with self._changed:
            self._nodes[name] = node
            if not self._readiness_withheld:
                self._set_ready(node)
            self._emit(event_type, node)
        return web.json_response(node, status=201 if event_type == "ADDED" else 200)

    def _set_ready(self, node: Node) -> None:
        """Set the Ready condition as a kubelet does."""
        node.setdefault("status", {})["conditions"] = [{"type": "Ready", "status": "True"}]

    def _emit(self, event_type: str, node: Node) -> None:
        node["metadata"]["resourceVersion"] = str(len(self._events) + 1)
        self._events.append({"type": event_type, "object": json.loads(json.dumps(node))})
        self._changed.notify_all()


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    base = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = _merged(base.get(key), value)
    return base


def _error_status(status: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    return web.json_response({**body, "code": status}, status=status)
