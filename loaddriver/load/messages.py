"""What a Locust master and its workers tell each other, beside Locust's own messages.

A worker joins, is given its share of the plan, and says that it has it; from then on the master
passes on every change of the control file, and the worker sends what it has done. None of it has a
secret: a worker has tokens of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from loaddriver.load.files import ClusterEndpoint
from loaddriver.plan.records import LoadEvent

if TYPE_CHECKING:  # to import Locust is to exchange Python's sockets
    from locust.rpc.protocol import Message

JOIN: Final = "loaddriver-join"
SHARE: Final = "loaddriver-share"
REFUSAL: Final = "loaddriver-refusal"
LOADED: Final = "loaddriver-loaded"
CONTROL: Final = "loaddriver-control"
ASK: Final = "loaddriver-ask"
READING: Final = "loaddriver-reading"
RESULTS: Final = "loaddriver-results"
DRAINED: Final = "loaddriver-drained"

SILENCE_SECONDS = 30
"""A worker or master that has said nothing for so long is lost to the other."""

_CODE = ("load", "plan")
_decoder = msgspec.json.Decoder(LoadEvent)


class Join(msgspec.Struct, frozen=True):
    """A worker asks for a share; `code` is the digest of what it plays it with."""

    name: str
    code: str


class Share(msgspec.Struct, frozen=True):
    """A worker's part of the plan: encoded events, and the name and URL of each cluster."""

    events: bytes
    clusters: tuple[tuple[str, str], ...]
    users: int


class Refusal(msgspec.Struct, frozen=True):
    """Why a worker gets no share, or does not take the one that it got."""

    name: str
    reason: str


class Ask(msgspec.Struct, frozen=True):
    """The master asks for a reading, at `sent` of its clock."""

    sent: float


class Named(msgspec.Struct, frozen=True):
    """A message of the worker `name` that says nothing else."""

    name: str


Record = TypeVar("Record")


def packed(record: Any) -> dict[str, Any]:
    """A record as the data of one of Locust's messages."""
    return {"packed": msgspec.msgpack.encode(record)}


def unpacked(message: Message, kind: type[Record]) -> Record:
    """The record in a message. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(message.data["packed"], type=kind)


def share_of(
    events: Iterable[LoadEvent], endpoints: Sequence[ClusterEndpoint], users: int
) -> Share:
    """The share with these events."""
    clusters = tuple((endpoint.name, endpoint.url) for endpoint in endpoints)
    return Share(msgspec.json.Encoder().encode_lines(list(events)), clusters, users)


def events_of(share: Share) -> list[LoadEvent]:
    """The events of a share, in the plan's order. Raises msgspec.MsgspecError."""
    return [_decoder.decode(line) for line in share.events.splitlines()]


@cache
def code_digest() -> str:
    """The digest of the code that plays a plan: workers of another revision are refused."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for folder in _CODE:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
