"""A TCP proxy to an API server that simulates partitions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from loaddriver.substrates.ports import LOOPBACK

_CHUNK_BYTES = 1 << 16


class PartitionableProxy:
    """Forwards connections from `port` of loopback to the server at the URL `target`; without a
    `port` it takes a free one.
    """

    def __init__(self, target: str, port: int = 0) -> None:
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self._connected = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self.port = port

    async def start(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections and stop."""
        self.disconnect()
        self._server.close()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def disconnect(self) -> None:
        """Abort all connections and reject new ones."""
        self._connected = False
        for end in self._writers:
            end.transport.abort()

    def reconnect(self) -> None:
        """Accept connections again."""
        self._connected = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            if self._connected:
                await self._connect(reader, writer)
        except OSError:
            pass  # the server is down
        finally:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(*self._target)
        writers = {writer, upstream}
        self._writers |= writers
        pumps = [
            asyncio.create_task(_pump(reader, upstream)),
            asyncio.create_task(_pump(upstream_reader, writer)),
        ]
        try:
            if self._connected:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= writers
            for end in writers:
                end.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)


@dataclass(frozen=True)
class CutOff:
    """An API server that its clients lose with the way to it, as if it had died."""

    proxy: PartitionableProxy

    async def kill(self) -> None:
        """Cut the way."""
        self.proxy.disconnect()

    async def restart(self) -> None:
        """Let clients through again."""
        self.proxy.reconnect()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await reader.read(_CHUNK_BYTES):
            writer.write(content)
            await writer.drain()
