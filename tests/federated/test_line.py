"""A line that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from loaddriver.federated.line import Line


@pytest_asyncio.fixture
async def line() -> AsyncIterator[Line]:
    """To a server that says everything twice."""

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(100):
            writer.write(content * 2)
        writer.close()

    server = await asyncio.start_server(twice, "127.0.0.1", 0)
    made = Line(server.sockets[0].getsockname()[1])
    await made.start()
    yield made
    await made.stop()
    server.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes next; nothing when the connection was ended, however rudely."""
    try:
        return await reader.read(100)
    except ConnectionError:
        return b""


async def asked(line: Line) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
    try:
        writer.write(b"ab")
        return await rest(reader)
    finally:
        writer.transport.abort()


async def test_bytes_pass_both_ways(line: Line) -> None:
    assert await asked(line) == b"abab"


async def test_a_cut_ends_connections_at_once_and_refuses_new_ones_until_it_is_mended(
    line: Line,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
    writer.write(b"ab")
    assert await reader.read(100) == b"abab"
    line.cut()
    assert await rest(reader) == b""
    writer.transport.abort()
    assert await asked(line) == b""
    line.mend()
    assert await asked(line) == b"abab"
