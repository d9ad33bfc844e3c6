"""How many audit events there are is asked until a busy API server answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from bigfleet.kube.client import KubeClient
from loaddriver.record.log_length import events_written

METRICS = "# TYPE apiserver_audit_event_total counter\napiserver_audit_event_total 1.25e+02\n"


TIMEOUT_SECONDS = 30.0


class Server:
    """Answers with these statuses in turn, and then with the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.asked = statuses, 0

    async def answer(self, _: web.Request) -> web.Response:
        status = self.statuses[min(self.asked, len(self.statuses) - 1)]
        self.asked += 1
        return web.Response(status=status, text=METRICS if status == web.HTTPOk.status_code else "")


@asynccontextmanager
async def talking_to(server: Server) -> AsyncIterator[KubeClient]:
    application = web.Application()
    application.router.add_get("/metrics", server.answer)
    async with (
        TestServer(application) as running,
        KubeClient(Configuration(host=str(running.make_url("")).rstrip("/"))) as client,
    ):
        yield client


async def test_a_busy_server_is_asked_again() -> None:
    """A run of half an hour is not void because the first answer did not come."""
    server = Server(429, 503, 200)
    async with talking_to(server) as client:
        assert await events_written(client) == 125
    assert server.asked == 3


async def test_a_server_that_refuses_is_not() -> None:
    server = Server(403)
    async with talking_to(server) as client:
        assert await events_written(client) is None
    assert server.asked == 1


async def test_patience_has_an_end() -> None:
    async with talking_to(Server(503)) as client:
        assert await events_written(client, timeout_seconds=0.2) is None


async def test_a_server_that_is_gone_is_not_waited_for() -> None:
    """The end of a run whose API server died must not take a minute for each cluster."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            KubeClient(Configuration(host=f"http://{host}:{port}")) as client,
        ):
            assert await events_written(client, timeout_seconds=10 * TIMEOUT_SECONDS) is None
