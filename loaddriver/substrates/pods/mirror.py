"""Copies a file that grows in another pod to this one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import aiohttp

from bigfleet.kube.client import CONNECTION_ERRORS
from loaddriver.substrates.base import SubstrateError

_POLL_SECONDS = 0.5
_ATTEMPTS = 20
_CHUNK_BYTES = 1 << 20
# Nothing new, or not there yet.
_NOTHING = (HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, HTTPStatus.NOT_FOUND)


class Mirror:
    """`path` is a copy of what `url` serves, as of the last `fetch`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str, path: Path) -> None:
        self._session, self._url, self._token, self._path = session, url, token, path
        self._one_at_a_time = asyncio.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    async def follow(self) -> None:
        """Fetch again and again until cancelled; a server that is away may return."""
        while True:
            with suppress(*CONNECTION_ERRORS):
                await self.fetch()
            await asyncio.sleep(_POLL_SECONDS)

    async def catch_up(self) -> None:
        """Fetch all that was written before the call. Raises SubstrateError."""
        failure = ""
        for _ in range(_ATTEMPTS):
            try:
                return await self.fetch()
            except CONNECTION_ERRORS as error:
                failure = str(error) or repr(error)
            await asyncio.sleep(_POLL_SECONDS)
        raise SubstrateError(f"{self._url}, the source of {self._path}, is gone: {failure}")

    async def fetch(self) -> None:
        """Append what is new. Raises CONNECTION_ERRORS."""
        async with self._one_at_a_time:
            headers = {
                "Authorization": f"Bearer {self._token}",
                "Range": f"bytes={self._path.stat().st_size}-",
            }
            async with self._session.get(self._url, headers=headers) as response:
                if response.status in _NOTHING:
                    return
                response.raise_for_status()
                with self._path.open("ab") as file:
                    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                        file.write(chunk)
