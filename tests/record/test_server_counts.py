"""An API server is asked for its counts until it answers, and every write is counted once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from bigfleet.kube.client import KubeClient
from loaddriver.record.server_counts import ServerCounts, WriteCount, server_counts


def request_count(
    verb: str, resource: str, code: int, value: str, subresource: str = "", group: str = ""
) -> str:
    """A line as kube-apiserver 1.36 writes it."""
    return (
        f'apiserver_request_total{{code="{code}",component="apiserver",dry_run="",group="{group}",'
        f'resource="{resource}",scope="resource",subresource="{subresource}",verb="{verb}",'
        f'version="v1"}} {value}'
    )


METRICS = "\n".join(
    [
        "# TYPE apiserver_audit_event_total counter",
        "apiserver_audit_event_total 1.25e+02",
        "# TYPE apiserver_request_total counter",
        request_count("POST", "pods", 201, "40", "binding"),
        request_count("POST", "pods", 409, "2", "binding"),
        request_count("POST", "events", 201, "7"),
        request_count("POST", "events", 201, "1.2e+01", group="events.k8s.io"),
        request_count("LIST", "pods", 200, "9"),
        request_count("POST", "", 404, "3"),
        "# TYPE apiserver_request_body_size_bytes histogram",
        'apiserver_request_body_size_bytes_bucket{resource="pods",verb="create",le="50000"} 40',
        'apiserver_request_body_size_bytes_sum{group="",resource="pods",verb="create"} 1.2e+05',
        'apiserver_response_sizes_sum{component="apiserver",resource="pods",verb="LIST"} 30000',
        'apiserver_watch_events_sizes_sum{group="",resource="pods",version="v1"} 50000',
        'apiserver_watch_events_sizes_count{group="",resource="pods",version="v1"} 99',
        "",
    ]
)


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
        counts = await server_counts(client)
        assert counts is not None
        assert counts.audit_events == 125
    assert server.asked == 3


async def test_a_server_that_refuses_is_not() -> None:
    server = Server(403)
    async with talking_to(server) as client:
        assert await server_counts(client) is None
    assert server.asked == 1


async def test_patience_has_an_end() -> None:
    async with talking_to(Server(503)) as client:
        assert await server_counts(client, timeout_seconds=0.2) is None


async def test_a_server_that_is_gone_is_not_waited_for() -> None:
    """The end of a run whose API server died must not take a minute for each cluster."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            KubeClient(Configuration(host=f"http://{host}:{port}")) as client,
        ):
            assert await server_counts(client, timeout_seconds=10 * TIMEOUT_SECONDS) is None


async def test_every_kind_of_write_is_counted_and_no_read() -> None:
    """Rejected ones apart; kinds of one name in two API groups together."""
    async with talking_to(Server(200)) as client:
        counts = await server_counts(client)
    assert counts is not None
    assert counts.writes == {
        "create pods/binding": WriteCount(40, 2),
        "create events": WriteCount(19, 0),
    }


def test_writes_before_the_load_do_not_count() -> None:
    before = ServerCounts(None, {"create pods": WriteCount(5, 1), "delete nodes": WriteCount(3, 0)})
    writes = {
        "create pods": WriteCount(9, 1),
        "delete nodes": WriteCount(3, 0),
        "patch nodes": WriteCount(0, 2),
    }
    since = ServerCounts(None, writes).writes_since(before)
    assert since == {"create pods": WriteCount(4, 0), "patch nodes": WriteCount(0, 2)}


async def test_bytes_are_those_of_bodies_answers_and_watched_events() -> None:
    async with talking_to(Server(200)) as client:
        counts = await server_counts(client)
    assert counts is not None
    assert counts.bytes_moved == 200_000
