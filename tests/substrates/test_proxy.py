"""A line that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from loaddriver.substrates.proxy import CutOff, PartitionableProxy


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[PartitionableProxy]:
    """To a server that says everything twice."""

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(100):
            writer.write(content * 2)
        writer.close()

    server = await asyncio.start_server(twice, "127.0.0.1", 0)
    made = PartitionableProxy(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
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


async def asked(proxy: PartitionableProxy) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(b"ab")
        return await rest(reader)
    finally:
        writer.transport.abort()


async def test_bytes_pass_both_ways(proxy: PartitionableProxy) -> None:
    assert await asked(proxy) == b"abab"


async def test_a_cut_closes_connections_at_once_and_refuses_new_ones_until_it_is_restored(
    proxy: PartitionableProxy,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"ab")
    assert await reader.read(100) == b"abab"
    proxy.disconnect()
    assert await rest(reader) == b""
    writer.transport.abort()
    assert await asked(proxy) == b""
    proxy.reconnect()
    assert await asked(proxy) == b"abab"


async def test_an_api_server_that_is_cut_off_has_died_for_its_clients(
    proxy: PartitionableProxy,
) -> None:
    server = CutOff(proxy)
    await server.kill()
    assert await asked(proxy) == b""
    await server.restart()
    assert await asked(proxy) == b"abab"
