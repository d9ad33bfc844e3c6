"""Downloads of released files: verified by a pinned SHA-256, and quick to give up on a host."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from controlplane.errors import BinaryError

CONNECT_SECONDS = 3.0
READ_SECONDS = 30.0
# A build takes some 7 minutes, so a slower download is not worth waiting for.
TOTAL_SECONDS = 600.0

_CHUNK_BYTES = 1 << 20


class Unavailable(Exception):
    """The host did not deliver the file; says which file and why."""


class _QuickHttp(http.client.HTTPConnection):
    """Gives up early on a host that does not answer, yet lets one that does take its time."""

    def connect(self) -> None:
        self.timeout = CONNECT_SECONDS
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _QuickHttps(http.client.HTTPSConnection):
    """As _QuickHttp, with the TLS handshake inside the early limit."""

    def connect(self) -> None:
        self.timeout = CONNECT_SECONDS
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_QuickHttp, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_QuickHttps, req)


def _chunks(url: str) -> Generator[bytes, None, None]:
    """The body of url. Raises Unavailable for every way in which a host can fail to send it."""
    opener = urllib.request.build_opener(_HttpHandler, _HttpsHandler)
    deadline = time.monotonic() + TOTAL_SECONDS
    received_bytes = 0
    try:
        with opener.open(url) as response:
            while chunk := response.read(_CHUNK_BYTES):
                received_bytes += len(chunk)
                yield chunk
                if time.monotonic() > deadline:
                    raise Unavailable(f"{url} is slower than {TOTAL_SECONDS:.0f} s: given up")
            _require_whole_body(url, response, received_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(f"{url} cannot be fetched: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} cannot be fetched: {_reason(error)}") from error


def _require_whole_body(url: str, response: Any, received_bytes: int) -> None:
    announced = response.headers.get("Content-Length")
    if announced is not None and int(announced) != received_bytes:
        raise Unavailable(f"{url} broke off after {received_bytes} of {announced} bytes")


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(reason).__name__


def read_text(url: str) -> str:
    """A small text file. Raises Unavailable."""
    return b"".join(_chunks(url)).decode("utf-8", errors="replace")


def download(
    url: str,
    destination: Path,
    expected_sha256: str,
    on_bytes: Callable[[int], None],
) -> None:
    """Writes url to destination, which is left only if its sum is the expected one.

    on_bytes is called with the bytes received so far. Raises Unavailable where the host does not
    deliver, BinaryError where it delivers something else than was pinned.
    """
    digest, received_bytes = hashlib.sha256(), 0
    try:
        with destination.open("wb") as file, closing(_chunks(url)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
                received_bytes += len(chunk)
                on_bytes(received_bytes)
        _require_sum(url, digest.hexdigest(), expected_sha256)
    except BaseException:
        destination.unlink(missing_ok=True)
        raise


def _require_sum(url: str, actual: str, expected: str) -> None:
    if actual != expected:
        raise BinaryError(
            f"{url} is not the file that was pinned: its SHA-256 is {actual}, expected {expected}. "
            "Nothing was installed; if the release was really replaced, pin it anew"
        )
