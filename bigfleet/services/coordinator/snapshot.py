"""Snapshot of the whole state: a file of JSON lines with a checksum. Pure.

The first line has the format, the number of rows and the SHA-256 of the rest. Then one row per
line, `[key, row]`, sorted by key. Leadership is not included, nor are the shards' reports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from bigfleet.model.errors import UNDECODABLE, InvalidInput
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.rows import Domain, Row, TermBase, decode

FORMAT = "bigfleet-coordinator-snapshot/1"
CHUNK_BYTES = 2**20
# Shards may have accepted instructions of later terms than the snapshot's, but none this late.
_TERMS_SKIPPED = 1_000_000


class Meta(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    term: int
    rows: int
    sha256: str
    created_at_unix_ns: int


def data_of(rows: Mapping[str, Row]) -> bytes:
    """All rows, one per line."""
    ordered = sorted(rows.items())
    return b"".join(msgspec.json.encode([key, row]) + b"\n" for key, row in ordered)


def meta_of(data: bytes, term: int, created_at_unix_ns: int) -> Meta:
    """The first line of a snapshot with `data`."""
    digest = hashlib.sha256(data).hexdigest()
    return Meta(FORMAT, term, data.count(b"\n"), digest, created_at_unix_ns)


def chunks(data: bytes) -> Iterator[bytes]:
    """`data` in parts that fit into a gRPC message."""
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def restored(name: str, content: bytes) -> tuple[Meta, Mapping[str, Row]]:
    """The rows to write into an empty store, from the snapshot file `name`.

    Every domain's shard is instructed again, and terms start far above any that shards may have
    seen. InvalidInput for a file that is not a snapshot, or is damaged.
    """
    first, _, data = content.partition(b"\n")
    try:
        meta = msgspec.json.decode(first, type=Meta)
    except UNDECODABLE:
        hint = "is not a snapshot: its first line is invalid; create one with `bigfleet fleet save`"
        raise InvalidInput("snapshot", name, hint) from None
    if meta.format != FORMAT:
        raise InvalidInput("snapshot", name, f"is {meta.format}; only {FORMAT} can be restored")
    if hashlib.sha256(data).hexdigest() != meta.sha256:
        raise InvalidInput("snapshot", name, "is damaged or truncated: the checksum differs")
    if meta.rows != (held := data.count(b"\n")):
        hint = f"is damaged: it has {held:,} rows, and its first line says {meta.rows:,}"
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
        except UNDECODABLE as error:
            hint = f"has an invalid row {line[:80].decode(errors='replace')}: {error}"
            raise InvalidInput("snapshot", name, hint) from None
        if row is None:
            hint = f"has a row {key} unknown to this release; use the release that wrote it"
            raise InvalidInput("snapshot", name, hint)
        yield key, domains.reissued(row, instruction_id()) if isinstance(row, Domain) else row
