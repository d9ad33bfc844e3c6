"""Evictions under way as lines of JSON, appended as they begin and end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bigfleet.model.errors import BigFleetError
from bigfleet.ports.store import Eviction


class _Line(msgspec.Struct, omit_defaults=True):
    begun: Eviction | None = None
    ended: str = ""


# The file is written anew when that many of its lines speak of nothing that is under way.
_MOST_STALE_LINES = 10_000


class EvictionFile:
    """`evictions.jsonl` in `directory`, which must not be shared with another shard."""

    def __init__(self, directory: Path) -> None:
        """Read what is there, and write it anew without what has ended. BigFleetError if the
        directory cannot be used.
        """
        self._path = directory / "evictions.jsonl"
        self._encoder = msgspec.json.Encoder()
        self._damaged, self._lines = False, 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._under_way = {e.machine_id: e for e in _read(self._path)}
            self._rewrite()
        except OSError as error:
            raise self._unusable(error) from None

    def load(self) -> Sequence[Eviction]:
        """See `ports.store.EvictionStore`."""
        return list(self._under_way.values())

    def begun(self, eviction: Eviction) -> None:
        """See `ports.store.EvictionStore`."""
        before = self._under_way.get(eviction.machine_id)
        if before == eviction:
            return
        self._under_way[eviction.machine_id] = eviction
        try:
            self._note(_Line(begun=eviction))
        except OSError as error:
            del self._under_way[eviction.machine_id]
            if before is not None:
                self._under_way[eviction.machine_id] = before
            raise self._unusable(error) from None

    def ended(self, machine_id: str) -> None:
        """See `ports.store.EvictionStore`."""
        if self._under_way.pop(machine_id, None) is not None:
            with suppress(OSError):
                self._note(_Line(ended=machine_id))

    def _note(self, line: _Line) -> None:
        """Append; after a failure, which may have left half a line, all is written anew."""
        if self._damaged or self._lines >= len(self._under_way) + _MOST_STALE_LINES:
            self._rewrite()
            return
        self._damaged = True
        with self._path.open("ab", buffering=0) as file:
            raw = self._encoder.encode(line) + b"\n"
            if file.write(raw) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._damaged = False
        self._lines += 1

    def _rewrite(self) -> None:
        fresh = self._path.with_suffix(".new")
        lines = [_Line(begun=eviction) for eviction in self._under_way.values()]
        fresh.write_bytes(self._encoder.encode_lines(lines))
        fresh.replace(self._path)
        self._damaged, self._lines = False, len(lines)

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self._path}: evictions under way cannot be kept there ({error.strerror}); "
            "give the shard a state directory that it can write to"
        )


def _read(path: Path) -> Iterator[Eviction]:
    """What a damaged line said is lost; the last one is cut short where its writer was killed."""
    under_way: dict[str, Eviction] = {}
    decoder = msgspec.json.Decoder(_Line)
    for raw in path.read_bytes().splitlines() if path.exists() else ():
        try:
            line = decoder.decode(raw)
        except msgspec.DecodeError:
            continue
        if line.begun is not None:
            under_way[line.begun.machine_id] = line.begun
        under_way.pop(line.ended, None)
    yield from under_way.values()
