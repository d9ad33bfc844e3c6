"""The runner's copy of a file in another pod is that file, from its first byte to its last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods import mirror
from loaddriver.substrates.pods.file_server.__main__ import application, parser
from loaddriver.substrates.pods.mirror import Mirror
from tests.support.ports import free_address

TOKEN = "secret"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a server of the file `source`."""
    address = free_address()
    runner = web.AppRunner(application({"log": tmp_path / "source"}, TOKEN))
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host, int(port), reuse_port=True).start()
    yield f"http://{address}"
    await runner.cleanup()


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


async def test_a_copy_grows_with_its_file(
    served: str, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Also with one that is empty or does not exist yet, and when nothing is new."""
    source, copy = tmp_path / "source", tmp_path / "logs" / "copy"
    made = Mirror(session, f"{served}/log", TOKEN, copy)
    await made.catch_up()
    assert copy.read_bytes() == b""
    for text in (b"", b"one\n", b"two, and a par", b"", b"t\n" * 1_000_000):
        with source.open("ab") as file:
            file.write(text)
        await made.catch_up()
        assert copy.read_bytes() == source.read_bytes()


async def test_two_fetches_at_once_copy_nothing_twice(
    served: str, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The one that follows, and the one that catches up."""
    (tmp_path / "source").write_bytes(b"x" * 100_000)
    made = Mirror(session, f"{served}/log", TOKEN, tmp_path / "copy")
    await asyncio.gather(made.fetch(), made.fetch(), made.catch_up())
    assert (tmp_path / "copy").stat().st_size == 100_000


async def test_nobody_reads_without_the_token(
    served: str, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("log")
    for token in ("", "another"):
        headers = {"Authorization": f"Bearer {token}"}
        async with session.get(f"{served}/log", headers=headers) as response:
            assert response.status == 401


async def test_nothing_but_the_named_files_is_served(
    served: str, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("text")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("other", "..%2Fother", "source"):
        async with session.get(f"{served}/{path}", headers=headers) as response:
            assert response.status == 404
    async with session.get(f"{served}/healthz") as response:
        assert response.status == 200


async def test_a_source_that_is_gone_is_an_error_and_not_a_short_log(
    session: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is judged by half a log would be judged wrongly."""
    monkeypatch.setattr(mirror, "_POLL_SECONDS", 0.001)
    url = f"http://{free_address()}/log"
    with pytest.raises(SubstrateError, match=url):
        await Mirror(session, url, TOKEN, tmp_path / "copy").catch_up()


def test_a_file_without_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--listen=:1", "--token=t", "--file=/logs/audit.log"])
    assert "NAME=PATH" in capsys.readouterr().err
