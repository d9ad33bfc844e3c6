"""Shortfalls are read from the metrics format that roles write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from bigfleet.observe import health
from loaddriver.run.scrape import shortfalls
from loaddriver.substrates.base import Endpoint
from tests.support.ports import free_port


@asynccontextmanager
async def serving(text: bytes) -> AsyncIterator[Endpoint]:
    """A role with these metrics."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=text)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield Endpoint("shard-0", f"{host}:{port}", Path())
    finally:
        await runner.cleanup()


def metrics(values: dict[str, float]) -> bytes:
    """The gauge by cluster, and another one with a similar name."""
    registry = CollectorRegistry()
    gauge = Gauge("bigfleet_shard_shortfalls", "needs", ["cluster"], registry=registry)
    Gauge("bigfleet_shard_shortfalls_aged", "old ones", registry=registry).set(50)
    for cluster, value in values.items():
        gauge.labels(cluster).set(value)
    return generate_latest(registry)


@pytest.mark.parametrize(("values", "total"), [({"a": 2, "b": 1}, 3), ({"a": 0}, 0)])
async def test_the_shortfalls_of_all_clusters_are_summed(
    values: dict[str, float], total: int
) -> None:
    async with serving(metrics(values)) as shard:
        assert await shortfalls([shard]) == total
        assert await shortfalls([shard, shard]) == 2 * total


async def test_a_gauge_without_labels_is_read_too() -> None:
    async with serving(b"# HELP x y\nbigfleet_shard_shortfalls 7.0\n") as shard:
        assert await shortfalls([shard]) == 7


async def test_a_shard_that_does_not_report_is_not_zero() -> None:
    async with serving(metrics({})) as shard:
        assert await shortfalls([shard]) is None
    async with serving(metrics({"a": 1})) as shard:
        assert await shortfalls([shard, Endpoint("shard-1", "127.0.0.1:1", Path())]) is None


async def test_a_poll_gets_only_what_it_asks_for() -> None:
    """All metrics of a shard cost a hundred times as much CPU, on the cores that are measured."""
    port = free_port()
    role = await health.serve("127.0.0.1", port, str)
    try:
        address = f"http://127.0.0.1:{port}/metrics"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}?name[]=bigfleet_shard_shortfalls") as answer:
                some = await answer.text()
            async with session.get(address) as answer:
                everything = await answer.text()
        assert await shortfalls([Endpoint("shard-0", f"127.0.0.1:{port}", Path())]) is not None
    finally:
        await role.cleanup()
    samples = [line for line in some.splitlines() if not line.startswith("#")]
    assert [line.split()[0] for line in samples] == ["bigfleet_shard_shortfalls"]
    assert len(everything) > 100 * len(some)
