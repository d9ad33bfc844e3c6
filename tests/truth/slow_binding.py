"""A scheduler half of whose bindings are late: the real one, behind a proxy that holds them up.

Which half is decided by the pod's name, so that both halves share everything else of their run. The
harness is told of nothing. It is given a directory with a kube-scheduler that is a small
program: it points the configuration it is given at the proxy, then becomes the real scheduler.
"""

from __future__ import annotations

import asyncio
import shlex
import ssl
import stat
import sys
import threading
import zlib
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
"""Becomes the real kube-scheduler, once its configuration points at the proxy."""
import os
import sys
from pathlib import Path

import yaml

arguments = sys.argv[1:]
for position, argument in enumerate(arguments):
    if argument.startswith("--config="):
        path = Path(argument.partition("=")[2])
        configuration = yaml.safe_load(path.read_text())
        kubeconfig = Path(configuration["clientConnection"]["kubeconfig"])
        access = yaml.safe_load(kubeconfig.read_text())
        cluster = access["clusters"][0]["cluster"]
        Path({upstream!r}).write_text(cluster["server"])
        cluster["server"] = {proxy!r}
        cluster["certificate-authority"] = {authority!r}
        detour = kubeconfig.with_name("scheduler-detour.kubeconfig")
        detour.touch(mode=0o600)
        detour.write_text(yaml.safe_dump(access))
        configuration["clientConnection"]["kubeconfig"] = str(detour)
        changed = path.with_name("scheduler-detour.yaml")
        changed.write_text(yaml.safe_dump(configuration))
        arguments[position] = f"--config={{changed}}"
os.execv({scheduler!r}, [{scheduler!r}, *arguments])
'''


def is_held_up(pod: str) -> bool:
    """Whether the binding of a pod of this name is late."""
    return zlib.crc32(pod.encode()) % 2 == 0


class SlowBinding:
    """A directory for `--binaries`, and the proxy behind it while the `with` lasts."""

    def __init__(self, folder: Path, scheduler: Path, delay_seconds: float) -> None:
        self.binaries = folder / "binaries"
        self._folder, self._scheduler, self._delay_seconds = folder, scheduler, delay_seconds
        self._upstream = folder / "upstream"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow binding")
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    def __enter__(self) -> SlowBinding:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(30)
        self.binaries.mkdir()
        wrapper = self.binaries / "kube-scheduler"
        wrapper.write_text(
            _WRAPPER.format(
                python=shlex.quote(sys.executable),
                upstream=str(self._upstream),
                proxy=f"https://127.0.0.1:{port}",
                authority=str(self._folder / "credentials" / "ca.crt"),
                scheduler=str(self._scheduler),
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
        application = web.Application()
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
        *_, pod, resource = request.path.split("/")
        if request.method == "POST" and resource == "binding" and is_held_up(pod):
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
