"""A line to an API server that can be cut and mended, as networks between clusters are."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from loaddriver.substrates.ports import LOOPBACK

_CHUNK_BYTES = 1 << 16


class PartitionableProxy:
    """Passes bytes between whoever connects to `port` and the server at `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connected = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def start(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End everything."""
        self.disconnect()
        self._server.close()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def disconnect(self) -> None:
        """End all connections and refuse new ones, without a farewell."""
        self._connected = False
        for end in self._writers:
            end.transport.abort()

    def reconnect(self) -> None:
        """Let connections through again."""
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
            pass  # the server is gone: so is the connection
        finally:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection(LOOPBACK, self._target)
        writers = {writer, there}
        self._writers |= writers
        pumps = [
            asyncio.create_task(_pump(reader, there)),
            asyncio.create_task(_pump(there_reader, writer)),
        ]
        try:
            if self._connected:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= writers
            for end in writers:
                end.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await reader.read(_CHUNK_BYTES):
            writer.write(content)
            await writer.drain()
