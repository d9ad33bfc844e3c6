"""A component behind a proxy: its requests arrive as they are, and some of them late."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from aiohttp import web

from loaddriver.inject.late_requests import late_component
from loaddriver.substrates.credentials import Credentials, issue

DELAY_SECONDS = 3.0  # a request takes a tenth of it on busy cores
# Creates a binding and then something else, and says what was answered and when.
COMPONENT = f"""#!{sys.executable}
import ssl, sys, time, urllib.request, yaml

flags = dict(each.split("=", 1) for each in sys.argv[1:])
if "--config" in flags:
    access = yaml.safe_load(open(flags["--config"]))["clientConnection"]["kubeconfig"]
else:
    access = flags["--kubeconfig"]
cluster = yaml.safe_load(open(access))["clusters"][0]["cluster"]
context = ssl.create_default_context(cafile=cluster["certificate-authority"])
for path in ("/pods/web-1/binding", "/pods/web-1/status?force=true"):
    began = time.monotonic()
    request = urllib.request.Request(cluster["server"] + path, b"body", {{"X-Own": "kept"}})
    answer = urllib.request.urlopen(request, context=context)
    said = answer.status, answer.read().decode(), answer.headers["X-Server"]
    print(*said, time.monotonic() - began, flush=True)
if "--wait" in flags:
    time.sleep(60)
sys.exit(3)
"""


class Server(NamedTuple):
    """An API server's stand-in, and what it was asked."""

    credentials: Credentials
    requests: list[tuple[str, str, bytes]]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    requests: list[tuple[str, str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append((request.raw_path, request.headers["X-Own"], await request.read()))
        return web.Response(status=201, text="created", headers={"X-Server": "real"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    # The address is known only once it listens, and the certificate is for loopback.
    made = issue(tmp_path / "made", "c1", "https://127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.serving_certificate, made.serving_key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    for path in made.kubeconfigs.values():
        access = yaml.safe_load(path.read_text())
        access["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{runner.addresses[0][1]}"
        path.write_text(yaml.safe_dump(access))
    yield Server(made, requests)
    await runner.cleanup()


def stand_in(folder: Path) -> Path:
    real = folder / "kube-scheduler"
    real.write_text(COMPONENT)
    real.chmod(0o755)
    return late_component(folder / "late", real, "POST", "/binding$", DELAY_SECONDS)


async def started(program: Path, *flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        program, *flags, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


def access_flags(server: Server, how: str, folder: Path) -> list[str]:
    """The component's access, given by a flag or in its configuration."""
    kubeconfig = server.credentials.kubeconfigs["kube-scheduler"]
    serving = [
        f"--tls-cert-file={server.credentials.serving_certificate}",
        f"--tls-private-key-file={server.credentials.serving_key}",
    ]
    if how == "--kubeconfig":
        return [f"--kubeconfig={kubeconfig}", *serving]
    config = folder / "scheduler.yaml"
    config.write_text(yaml.safe_dump({"clientConnection": {"kubeconfig": str(kubeconfig)}}))
    return [f"--config={config}", *serving]


@pytest.mark.parametrize("how", ["--kubeconfig", "--config"])
async def test_only_requests_that_match_are_late_and_all_arrive_unchanged(
    how: str, server: Server, tmp_path: Path
) -> None:
    child = await started(stand_in(tmp_path), *access_flags(server, how, tmp_path))
    said, _ = await child.communicate()
    assert child.returncode == 3, said.decode()
    bound, other = [line.split() for line in said.decode().splitlines()]
    assert bound[:3] == other[:3] == ["201", "created", "real"]
    assert float(bound[3]) >= DELAY_SECONDS > float(other[3])
    assert server.requests == [
        ("/pods/web-1/binding", "kept", b"body"),
        ("/pods/web-1/status?force=true", "kept", b"body"),
    ]


async def test_a_component_is_asked_to_end_by_its_stand_in(server: Server, tmp_path: Path) -> None:
    flags = [*access_flags(server, "--kubeconfig", tmp_path), "--wait=yes"]
    child = await started(stand_in(tmp_path), *flags)
    assert child.stdout is not None
    await child.stdout.readline()
    await child.stdout.readline()
    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    assert await child.wait() != 0
    assert time.monotonic() - began < 30
