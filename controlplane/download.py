"""Downloads of released files: verified by SHA-256, with a short connect timeout."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from controlplane.errors import BinaryError

CONNECT_SECONDS = 3.0
READ_SECONDS = 30.0
# A build takes about 7 minutes: a slower download saves nothing.
TOTAL_SECONDS = 600.0

_CHUNK_BYTES = 1 << 20


class Unavailable(Exception):
    """The host did not deliver the file; states the URL and the cause."""


class NotFound(Unavailable):
    """The host answers, but does not have the file."""


@dataclass(frozen=True)
class Checksum:
    """An expected SHA-256 sum in hexadecimal, and its source ("pinned checksum")."""

    sha256: str
    source: str


class _QuickHttp(http.client.HTTPConnection):
    """Limits the connect time separately from the read time."""

    def connect(self) -> None:
        self.timeout = CONNECT_SECONDS
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _QuickHttps(http.client.HTTPSConnection):
    """As _QuickHttp; the TLS handshake counts as connect time."""

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
    """The body of url in chunks. Raises Unavailable for every failure to receive it."""
    opener = urllib.request.build_opener(_HttpHandler, _HttpsHandler)
    deadline = time.monotonic() + TOTAL_SECONDS
    received_bytes = 0
    try:
        with opener.open(url) as response:
            while chunk := response.read(_CHUNK_BYTES):
                received_bytes += len(chunk)
                yield chunk
                if time.monotonic() > deadline:
                    raise Unavailable(f"{url} took longer than {TOTAL_SECONDS:.0f} s")
            _require_whole_body(url, response, received_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        failure = NotFound if error.code == HTTPStatus.NOT_FOUND else Unavailable
        raise failure(f"cannot download {url}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"cannot download {url}: {_reason(error)}") from error


def _require_whole_body(url: str, response: Any, received_bytes: int) -> None:
    announced = response.headers.get("Content-Length")
    if announced is not None and int(announced) != received_bytes:
        raise Unavailable(f"{url} was truncated after {received_bytes} of {announced} bytes")


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(reason).__name__


def read_text(url: str) -> str:
    """The content of a small text file. Raises Unavailable."""
    return b"".join(_chunks(url)).decode("utf-8", errors="replace")


def download(
    url: str,
    destination: Path,
    expected: Checksum,
    on_bytes: Callable[[int], None],
) -> None:
    """Write url to destination, which is removed again unless its sum is the expected one.

    Calls on_bytes with the bytes received so far. Raises Unavailable if the host does not deliver
    the file, BinaryError on a checksum mismatch.
    """
    digest, received_bytes = hashlib.sha256(), 0
    try:
        with destination.open("wb") as file, closing(_chunks(url)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
                received_bytes += len(chunk)
                on_bytes(received_bytes)
        _require_sum(url, digest.hexdigest(), expected)
    except BaseException:
        destination.unlink(missing_ok=True)
        raise


def _require_sum(url: str, actual: str, expected: Checksum) -> None:
    if actual != expected.sha256:
        raise BinaryError(
            f"{url} has SHA-256 {actual}, expected {expected.sha256} ({expected.source}); nothing "
            "was installed. Try again later, or build from source: `python -m controlplane get "
            "--build`"
        )
