"""List once, then watch and resume, without losing changes when the API server closes a watch.

A busy API server closes slow watches every few hundred events. `follow` resumes from the last
resourceVersion it saw, and relists only when that version has expired. A relist is reported as one
`Listed`, so that the receiver can drop what was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from bigfleet.kube.client import CONNECTION_ERRORS, GONE, ApiError, KubeClient
from bigfleet.model.errors import InvalidInput

_LOG = logging.getLogger(__name__)

_WATCH_SECONDS = 300
# A connection that is still silent this long after the requested timeout is dead.
_SLACK_SECONDS = 30
# A watch that lasted this long was healthy, even if it saw no event.
_HEALTHY_SECONDS = 1.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.05, 5.0
_PAGE = 2000
# After a read of this size more is pending, and the server closes a watch that does not keep up.
_PLENTY_BYTES = 1 << 16

T = TypeVar("T")


class ListMeta(msgspec.Struct, rename="camel"):
    """The parts of a list's metadata that a watch needs."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, rename="camel"):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Raw(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _VersionedEvent(msgspec.Struct):
    object: _Versioned


_VERSIONS = msgspec.json.Decoder(_VersionedEvent)
_CHANGES = ("ADDED", "MODIFIED", "DELETED")


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Listed(Generic[T]):
    """All objects there are now; those known before and absent here were deleted."""

    items: list[T]


@dataclass(frozen=True)
class Changed(Generic[T]):
    """One object that was added or modified, or (`deleted`) its last state."""

    item: T
    deleted: bool


@dataclass
class WatchStats:
    """How often a watch resumed and how often it listed; `expired` counts the gaps, where its
    resourceVersion was too old to resume from. `failing` is the error that keeps it from being
    connected now.
    """

    resumed: int = 0
    listed: int = 0
    expired: int = 0
    events: int = 0
    last_error: str = ""
    failing: str = ""


@dataclass
class Watch(Generic[T]):
    """A watch of the collection at `path`, each object decoded as `kind`.

    Changes are read in batches of `batch_seconds`: receivers that tolerate the delay pay a fraction
    of the CPU time.
    """

    client: KubeClient
    path: str
    kind: type[T]
    query: Mapping[str, str] = field(default_factory=dict)
    stats: WatchStats = field(default_factory=WatchStats)
    batch_seconds: float = 0.0
    _resume_from: str = field(default="", init=False)
    _last_line: bytes = field(default=b"", init=False)

    async def follow(self) -> AsyncGenerator[Listed[T] | Changed[T], None]:
        """Yield Listed, then Changed for ever; Listed again after a gap.

        InvalidInput for an object that cannot be decoded as `kind`: retrying would not help.
        """
        backoff = _FIRST_BACKOFF_SECONDS
        while True:
            before, since = self._resume_from, time.monotonic()
            try:
                if not self._resume_from:
                    yield Listed(await self._list())
                async with aclosing(self._watch()) as changes:
                    async for change in changes:
                        yield change
                self._save_resource_version()
            except (ApiError, *CONNECTION_ERRORS, msgspec.MsgspecError) as error:
                self._save_resource_version()
                self._interrupted(error)
            self.stats.resumed += 1
            if self._progressed(before, since):
                backoff = _FIRST_BACKOFF_SECONDS
                continue
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, _LAST_BACKOFF_SECONDS)

    def _progressed(self, before: str, since: float) -> bool:
        """Whether this round was healthy, so that the next may start without a delay."""
        if not self._resume_from:
            return False
        return self._resume_from != before or time.monotonic() - since >= _HEALTHY_SECONDS

    def _interrupted(self, error: Exception) -> None:
        if isinstance(error, msgspec.MsgspecError):
            hint = f"is not a valid {self.kind.__name__}"
            raise InvalidInput(f"GET {self.path}", str(error), hint) from error
        if isinstance(error, ApiError) and error.status == GONE:
            self.stats.expired += self._resume_from != ""  # before the first list there is no gap
            self._resume_from = ""
        named = isinstance(error, ApiError)
        text = str(error) if named else f"GET {self.path}: {str(error) or repr(error)}"
        if text != self.stats.last_error:
            _LOG.warning("watch interrupted, resuming: %s", text)
        self.stats.last_error = self.stats.failing = text

    async def _list(self) -> list[T]:
        self.stats.listed += 1
        decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(self.kind)
        items: list[T] = []
        query: dict[str, str] = {**self.query, "limit": str(_PAGE)}
        while True:
            page = msgspec.json.decode(await self.client.get(self.path, query), type=_List)
            items += [decoder.decode(raw) for raw in page.items or ()]
            if not page.metadata.continue_:
                self._resume_from = page.metadata.resource_version
                return items
            query["continue"] = page.metadata.continue_

    async def _watch(self) -> AsyncGenerator[Changed[T], None]:
        query = {
            **self.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resume_from,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        changes: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event_of(self.kind))
        deadline_seconds = _WATCH_SECONDS + _SLACK_SECONDS
        response = await self.client.open(self.path, query, deadline_seconds)
        self.stats.failing = ""
        async with response, aclosing(_lines(response, self.batch_seconds)) as lines:
            async for line in lines:
                if (event := self._change(line, changes)) is not None:
                    self.stats.events += 1
                    yield Changed(event.object, event.type == "DELETED")
                # Only now: an event that the receiver has not processed must be sent again.
                self._last_line = line

    def _change(self, line: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
        """The change, or None for a bookmark; ApiError for an ERROR event.

        Objects are decoded in one pass; other events need a second one.
        """
        try:
            event = decoder.decode(line)
        except msgspec.ValidationError:
            if msgspec.json.decode(line, type=_Raw).type in _CHANGES:
                raise
        else:
            if event.type in _CHANGES:
                return event
        other = msgspec.json.decode(line, type=_Raw)
        if other.type == "ERROR":
            error_status = msgspec.json.decode(other.object, type=_Status)
            raise ApiError(
                f"watch {self.path}", error_status.code, error_status.reason, error_status.message
            )
        return None

    def _save_resource_version(self) -> None:
        """Decoded only when a watch has ended: the version of its last event is enough."""
        if self._last_line:
            self._resume_from = _VERSIONS.decode(self._last_line).object.metadata.resource_version
            self._last_line = b""


def event_of(kind: type[T]) -> type[Any]:
    """The type of a watch event for objects of that kind."""
    return msgspec.defstruct("Event", [("type", str), ("object", kind)])


async def _lines(
    response: aiohttp.ClientResponse, batch_seconds: float
) -> AsyncGenerator[bytes, None]:
    """Yield complete lines; a truncated line is dropped, and sent again after the resume."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in whole:
            if line:
                yield line
        if batch_seconds and len(chunk) < _PLENTY_BYTES:
            await _batch(response, batch_seconds)


async def _batch(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Let data accumulate in the kernel: a paused transport would wake for every TLS record."""
    transport = response.connection.transport if response.connection else None
    if transport is None or transport.is_closing():
        return  # it has ended
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _PLENTY_BYTES)
    try:
        await asyncio.sleep(seconds)
    finally:
        if not transport.is_closing():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
