"""The CPU of a release's containers is what each says of itself, and unknown if it says nothing."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from bigfleet.observe import health
from loaddriver.process_counters import ProcessCounters
from loaddriver.substrates import credentials
from loaddriver.substrates.pods import counters
from loaddriver.substrates.pods.counters import (
    CounterReader,
    Source,
    api_server_sources,
    cluster_sources,
    role_source,
)
from loaddriver.substrates.pods.places import ClusterPlace, RolePlace
from tests.support.ports import free_address
from tests.support.waiting import eventually

PLACE = ClusterPlace(
    name="c1",
    pod="st-c1-0",
    host="c1.svc",
    api_server="https://c1.svc:6443",
    files="http://c1.svc:8090",
    secret="s",
    access="a",
)
TEXT = b"""# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
process_resident_memory_bytes 1024
process_start_time_seconds 17
"""
TOLD = ProcessCounters(12.5, 17.0, 1024)


class Component:
    """Serves metrics at `address`, and notes what it is asked with."""

    def __init__(self) -> None:
        self.text, self.status, self.address = TEXT, 200, free_address()
        self.asked: list[tuple[str, str]] = []
        self.pause = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        headers = request.headers
        self.asked.append((headers.get("Authorization", ""), headers.get("Accept-Encoding", "")))
        await asyncio.sleep(self.pause)
        return web.Response(body=self.text, status=self.status)

    async def serve(self, tls: ssl.SSLContext | None = None) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/metrics", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        host, _, port = self.address.rpartition(":")
        await web.TCPSite(runner, host, int(port), ssl_context=tls, reuse_port=True).start()
        return runner


@pytest_asyncio.fixture
async def component() -> AsyncIterator[Component]:
    made = Component()
    runner = await made.serve()
    yield made
    await runner.cleanup()


@pytest_asyncio.fixture
async def reader() -> AsyncIterator[CounterReader]:
    async with aiohttp.ClientSession() as session:
        yield CounterReader(session)


def test_each_component_of_a_control_plane_has_its_source(tmp_path: Path) -> None:
    """With the names of local processes. A token goes to API servers only: others would have it
    reviewed, and reviews count as writes.
    """
    found = cluster_sources(PLACE, tmp_path, resource_metrics=False)
    assert {name: source.url for name, source in found.items()} == {
        "c1/etcd": "http://c1.svc:2381/metrics",
        "c1/kube-apiserver": "https://c1.svc:6443/metrics",
        "c1/kube-controller-manager": "https://c1.svc:10257/metrics",
        "c1/kube-scheduler": "https://c1.svc:10259/metrics",
        "c1/kwok": "http://c1.svc:10250/metrics",
    }
    assert {name for name, source in found.items() if source.wants_token} == {"c1/kube-apiserver"}
    assert not any(source.replaceable for source in found.values())
    measured = cluster_sources(PLACE, tmp_path, resource_metrics=True)
    assert measured.keys() - found.keys() == {"c1/metrics-server"}
    assert api_server_sources(PLACE, tmp_path).keys() == {"c1/etcd", "c1/kube-apiserver"}


async def test_a_role_is_asked_for_its_counters_alone(reader: CounterReader) -> None:
    host, _, port = (address := free_address()).rpartition(":")
    place = RolePlace(container="shard", observe=address, restarts_allowed=True)
    runner = await health.serve(host, int(port), lambda: "")
    reader.add({"shard-0": role_source(place)})
    try:
        found = (await reader.read(only_replaceable=True))["shard-0"]
    finally:
        await runner.cleanup()
    assert found is not None
    assert found.cpu_seconds > 0


async def test_between_begin_and_end_only_what_may_be_replaced_is_read(
    reader: CounterReader, component: Component
) -> None:
    url = f"http://{component.address}/metrics"
    reader.add({"c1/kube-apiserver": Source(url), "shard-0": Source(url, replaceable=True)})
    assert await reader.read(only_replaceable=True) == {"shard-0": TOLD}
    assert await reader.read(only_replaceable=False) == {"c1/kube-apiserver": TOLD, "shard-0": TOLD}
    assert set(component.asked) == {("", "identity")}


@pytest.mark.parametrize("trouble", ["gone", "late", "refused", "silent", "garbled"])
async def test_a_component_that_does_not_tell_is_unknown_and_ends_nothing(
    reader: CounterReader,
    component: Component,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: str,
) -> None:
    monkeypatch.setattr(counters, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(counters, "_RETRY_INTERVAL_SECONDS", 0.05)
    address = free_address() if trouble == "gone" else component.address
    component.status = 403 if trouble == "refused" else 200
    component.pause = 1.0 if trouble == "late" else 0.0
    if trouble == "silent":
        component.text = b""
    if trouble == "garbled":
        component.text = TEXT.replace(b"12.5", b"many")
    reader.add({"c1/kwok": Source(f"http://{address}/metrics")})
    assert await reader.read(only_replaceable=False) == {"c1/kwok": None}
    assert "c1/kwok" in caplog.text


async def test_one_that_is_busy_for_a_moment_is_asked_again(
    reader: CounterReader, component: Component, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_RETRY_INTERVAL_SECONDS", 0.2)
    reader.add({"c1/kube-apiserver": Source(f"http://{component.address}/metrics")})
    component.status = 503
    reading = asyncio.create_task(reader.read(only_replaceable=False))
    await eventually(lambda: bool(component.asked), "a request")
    component.status = 200
    assert await reading == {"c1/kube-apiserver": TOLD}


@pytest.mark.parametrize("wants_token", [False, True])
async def test_a_certificate_is_verified_and_the_token_sent_where_it_is_wanted(
    reader: CounterReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wants_token: bool
) -> None:
    monkeypatch.setattr(counters, "_PATIENCE_SECONDS", 2.0)
    own, other = (credentials.issue(tmp_path / name, name, "https://x") for name in ("a", "b"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own.serving_certificate, own.serving_key)
    component = Component()
    runner = await component.serve(tls)
    sources = {}
    for name, issued in (("own", own), ("other", other)):
        ca = b64encode(issued.ca_certificate.read_bytes()).decode()
        path = tmp_path / f"{name}.kubeconfig"
        authority = {"certificate-authority-data": ca}
        path.write_bytes(credentials.kubeconfig(name, "https://x", authority, "secret"))
        sources[name] = Source(f"https://{component.address}/metrics", path, wants_token)
    reader.add(sources)
    try:
        assert await reader.read(only_replaceable=False) == {"own": TOLD, "other": None}
    finally:
        await runner.cleanup()
    assert component.asked == [("Bearer secret" if wants_token else "", "identity")]
