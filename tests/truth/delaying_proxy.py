"""A Kubernetes component some of whose requests are late: the real one, behind a proxy.

The harness is told of nothing. It is given a directory with a component that is a small program: it
points the access that it is given at the proxy, then becomes the real component.
"""

from __future__ import annotations

import asyncio
import shlex
import ssl
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import aiohttp
from aiohttp import web
from yarl import URL

from loaddriver.substrates.credentials import issue

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}
)
_WRAPPER = '''#!{python}
"""Becomes the real component, once its access points at the proxy."""
import os
import sys
from pathlib import Path

import yaml


def detour(kubeconfig):
    access = yaml.safe_load(kubeconfig.read_text())
    cluster = access["clusters"][0]["cluster"]
    Path({upstream!r}).write_text(cluster["server"])
    cluster["server"] = {proxy!r}
    cluster["certificate-authority"] = {authority!r}
    changed = kubeconfig.with_name("{name}-detour.kubeconfig")
    changed.touch(mode=0o600)
    changed.write_text(yaml.safe_dump(access))
    return str(changed)


arguments = sys.argv[1:]
for position, argument in enumerate(arguments):
    flag, _, value = argument.partition("=")
    if flag == "--kubeconfig":
        arguments[position] = f"--kubeconfig={{detour(Path(value))}}"
    elif flag == "--config":
        configuration = yaml.safe_load(Path(value).read_text())
        connection = configuration["clientConnection"]
        connection["kubeconfig"] = detour(Path(connection["kubeconfig"]))
        changed = Path(value).with_name("{name}-detour.yaml")
        changed.write_text(yaml.safe_dump(configuration))
        arguments[position] = f"--config={{changed}}"
os.execv({component!r}, [{component!r}, *arguments])
'''


class DelayingProxy:
    """A directory for `--binaries`, and the proxy behind it while the `with` lasts.

    Requests of `component` for which `is_late`, given method and path, says so arrive at the API
    server `delay_seconds` later.
    """

    def __init__(
        self,
        folder: Path,
        component: Path,
        is_late: Callable[[str, str], bool],
        delay_seconds: float,
    ) -> None:
        self.binaries = folder / "binaries"
        self._folder, self._component = folder, component
        self._is_late, self._delay_seconds = is_late, delay_seconds
        self._upstream = folder / "upstream"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="delaying proxy")
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    def __enter__(self) -> DelayingProxy:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(30)
        self.binaries.mkdir()
        wrapper = self.binaries / self._component.name
        wrapper.write_text(
            _WRAPPER.format(
                python=shlex.quote(sys.executable),
                name=self._component.name,
                upstream=str(self._upstream),
                proxy=f"https://127.0.0.1:{port}",
                authority=str(self._folder / "credentials" / "ca.crt"),
                component=str(self._component),
            )
        )
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> int:
        credentials = issue(self._folder / "credentials", "slow", "https://127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(credentials.serving_certificate, credentials.serving_key)
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0, ssl=False),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
        )
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def _close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self._is_late(request.method, request.path):
            await asyncio.sleep(self._delay_seconds)
        assert self._session is not None
        url = URL(self._upstream.read_text() + request.raw_path, encoded=True)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        async with self._session.request(
            request.method, url, headers=headers, data=body or None
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
