"""A Kubernetes component some of whose requests are late: the real one, behind a proxy.

`python -m loaddriver.inject.late_requests COMPONENT METHOD PATTERN SECONDS ARGUMENT...` starts the
component with these arguments, but for its access, which points at the proxy. Requests with this
method and a path in which the pattern is found arrive at the API server that much later.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml
from aiohttp import web

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}
)
_LARGEST_BODY_BYTES = 2**26
_KUBECONFIG, _CONFIG = "--kubeconfig", "--config"
_CERTIFICATE, _KEY = "--tls-cert-file", "--tls-private-key-file"


def late_component(
    folder: Path, component: Path, method: str, pattern: str, seconds: float
) -> Path:
    """A program in `folder` that stands in for the component, under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    program, own = folder / component.name, shlex.join([sys.executable, "-m", __spec__.name])
    late = shlex.join([str(component.resolve()), method, pattern, f"{seconds:g}"])
    program.write_text(f'#!/bin/sh\nexec {own} {late} "$@"\n')
    program.chmod(0o755)
    return program


class Proxy:
    """Passes requests on to the API server `upstream`, those that are late after `seconds`."""

    def __init__(
        self,
        upstream: str,
        authority: str,
        is_late: Callable[[str, str], bool],
        seconds: float,
    ) -> None:
        address = urlsplit(upstream)
        self._host, self._port = str(address.hostname), address.port
        self._authority = authority
        self._is_late, self._seconds = is_late, seconds

    async def run(self, certificate: str, key: str, serve: Callable[[str], Any]) -> Any:
        """Serve on loopback until `serve`, given the proxy's address, returns; its result."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        application = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        trusted = ssl.create_default_context(cafile=self._authority)
        async with aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
        ) as self._session:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
                return await serve(f"https://127.0.0.1:{runner.addresses[0][1]}")
            finally:
                await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self._is_late(request.method, request.path):
            await asyncio.sleep(self._seconds)
        url = request.url.with_host(self._host).with_port(self._port)
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


def main(arguments: Sequence[str]) -> int:
    """Become the component; without access of its own, such as for --version, at once."""
    component, method, pattern, seconds, *own = arguments
    flags = dict(each.partition("=")[::2] for each in own)
    if not flags.keys() & {_KUBECONFIG, _CONFIG}:
        os.execv(component, [component, *own])
    access = yaml.safe_load(_kubeconfig_of(flags).read_text())
    cluster = access["clusters"][0]["cluster"]
    found = re.compile(pattern)
    proxy = Proxy(
        cluster["server"],
        cluster["certificate-authority"],
        lambda its, path: its == method and found.search(path) is not None,
        float(seconds),
    )

    async def serve(address: str) -> int:
        cluster["server"] = address
        return await _run([component, *_redirected(own, flags, access)])

    return int(asyncio.run(proxy.run(flags[_CERTIFICATE], flags[_KEY], serve)))


def _kubeconfig_of(flags: dict[str, str]) -> Path:
    if _KUBECONFIG in flags:
        return Path(flags[_KUBECONFIG])
    configuration = yaml.safe_load(Path(flags[_CONFIG]).read_text())
    return Path(configuration["clientConnection"]["kubeconfig"])


def _redirected(own: Sequence[str], flags: dict[str, str], access: Any) -> list[str]:
    """The component's arguments with this access in place of its own."""
    path = _kubeconfig_of(flags)
    changed = path.with_name(f"late-{path.name}")
    changed.touch(mode=0o600)
    changed.write_text(yaml.safe_dump(access))
    if _KUBECONFIG in flags:
        return [f"{_KUBECONFIG}={changed}" if _is(each, _KUBECONFIG) else each for each in own]
    configuration = yaml.safe_load(Path(flags[_CONFIG]).read_text())
    configuration["clientConnection"]["kubeconfig"] = str(changed)
    config = Path(flags[_CONFIG]).with_name(f"late-{Path(flags[_CONFIG]).name}")
    config.write_text(yaml.safe_dump(configuration))
    return [f"{_CONFIG}={config}" if _is(each, _CONFIG) else each for each in own]


def _is(argument: str, flag: str) -> bool:
    return argument.partition("=")[0] == flag


async def _run(command: Sequence[str]) -> int:
    """Run the component until it ends; pass on what asks it to. Returns its exit code."""
    child = await asyncio.create_subprocess_exec(*command)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, child.send_signal, number)
    return await child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
