"""The whole state as a file: JSON lines that anybody can read, with a seal against damage. Pure.

First line: what it is, how many rows, and the SHA-256 of all that follows. Then one row a line,
`[key, row]`, in order of keys. Leadership is not in it; what shards report comes back by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from bigfleet.model.errors import InvalidInput
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.rows import Domain, Row, TermBase, decode

FORMAT = "bigfleet-coordinator-snapshot/1"
CHUNK_BYTES = 2**20
# Shards may have taken orders in terms after the snapshot's; none can have come this far.
_TERMS_SKIPPED = 1_000_000


class Meta(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    term: int
    rows: int
    sha256: str
    created_at_unix_ns: int


def data_of(rows: Mapping[str, Row]) -> bytes:
    """All rows, one a line."""
    ordered = sorted(rows.items())
    return b"".join(msgspec.json.encode([key, row]) + b"\n" for key, row in ordered)


def meta_of(data: bytes, term: int, created_at_unix_ns: int) -> Meta:
    """The line that goes before `data`."""
    digest = hashlib.sha256(data).hexdigest()
    return Meta(FORMAT, term, data.count(b"\n"), digest, created_at_unix_ns)


def chunks(data: bytes) -> Iterator[bytes]:
    """`data` in parts that fit into a message."""
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def restored(name: str, content: bytes) -> tuple[Meta, Mapping[str, Row]]:
    """The rows to write into an empty store from the file called `name`.

    Every domain is to be asked of its shard again, and terms begin far above all that shards may
    have seen. InvalidInput for a file that is no snapshot, or not a whole one.
    """
    first, _, data = content.partition(b"\n")
    try:
        meta = msgspec.json.decode(first, type=Meta)
    except msgspec.MsgspecError:
        hint = "is no snapshot: its first line does not say so; `bigfleet fleet save` makes them"
        raise InvalidInput("snapshot", name, hint) from None
    if meta.format != FORMAT:
        raise InvalidInput("snapshot", name, f"is {meta.format}; only {FORMAT} can be restored")
    if hashlib.sha256(data).hexdigest() != meta.sha256:
        raise InvalidInput("snapshot", name, "is damaged or cut off: its checksum is another")
    if meta.rows != (held := data.count(b"\n")):
        hint = f"is damaged: it holds {held:,} rows, and says {meta.rows:,}"
        raise InvalidInput("snapshot", name, hint)
    base = TermBase(meta.term + _TERMS_SKIPPED)
    numbers = iter(range(1, meta.rows + 1))
    rows = dict(_rows(name, data, lambda: f"{base.term}-restored-{next(numbers)}"))
    return meta, {**rows, base.key: base}


def _rows(name: str, data: bytes, instruction_id: Callable[[], str]) -> Iterator[tuple[str, Row]]:
    for line in data.splitlines():
        try:
            key, raw = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
            row = decode(key, bytes(raw))
        except msgspec.MsgspecError as error:
            hint = f"holds the row {line[:80].decode(errors='replace')}, which is none: {error}"
            raise InvalidInput("snapshot", name, hint) from None
        if row is None:
            hint = f"holds {key}, which this release does not know; use the one that wrote it"
            raise InvalidInput("snapshot", name, hint)
        yield key, domains.reissued(row, instruction_id()) if isinstance(row, Domain) else row
