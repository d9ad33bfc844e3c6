"""Evictions under way as lines of JSON, appended as they begin and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import Disk
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files
from bigfleet.ports.store import Eviction


class _Line(msgspec.Struct, omit_defaults=True):
    record_started: Eviction | None = None
    record_ended: str = ""


# The file is written anew when that many of its lines speak of nothing that is under way.
_MAX_STALE_LINES = 10_000


class EvictionFile:
    """`evictions.jsonl` in `directory`, which must not be shared with another shard."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        """Read what is there, and write it anew without what has ended. BigFleetError if the
        directory cannot be used.
        """
        self._path, self._files = directory / "evictions.jsonl", files or Disk()
        self._encoder = msgspec.json.Encoder()
        self._damaged, self._lines = False, 0
        try:
            self._under_way = {e.machine_id: e for e in _under_way(self._content())}
            self._rewrite()
        except OSError as error:
            raise self._unusable(error) from None

    def load(self) -> Sequence[Eviction]:
        """See `ports.store.EvictionStore`."""
        return list(self._under_way.values())

    def record_started(self, eviction: Eviction) -> None:
        """See `ports.store.EvictionStore`."""
        before = self._under_way.get(eviction.machine_id)
        if before == eviction:
            return
        self._under_way[eviction.machine_id] = eviction
        try:
            self._note(_Line(record_started=eviction))
        except OSError as error:
            del self._under_way[eviction.machine_id]
            if before is not None:
                self._under_way[eviction.machine_id] = before
            raise self._unusable(error) from None

    def record_ended(self, machine_id: str) -> None:
        """See `ports.store.EvictionStore`."""
        if self._under_way.pop(machine_id, None) is not None:
            with suppress(OSError):
                self._note(_Line(record_ended=machine_id))

    def _note(self, line: _Line) -> None:
        """Append; after a failure, which may have left half a line, all is written anew."""
        if self._damaged or self._lines >= len(self._under_way) + _MAX_STALE_LINES:
            self._rewrite()
            return
        self._damaged = True
        self._files.append(self._path, self._encoder.encode(line) + b"\n")
        self._damaged = False
        self._lines += 1

    def _rewrite(self) -> None:
        lines = [_Line(record_started=eviction) for eviction in self._under_way.values()]
        self._files.replace(self._path, self._encoder.encode_lines(lines))
        self._damaged, self._lines = False, len(lines)

    def _content(self) -> bytes:
        try:
            return self._files.read(self._path)
        except FileNotFoundError:
            return b""

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self._path}: evictions under way cannot be kept there ({error.strerror}); "
            "give the shard a state directory that it can write to"
        )


def _under_way(content: bytes) -> Iterator[Eviction]:
    """What a damaged line said is lost; the last one is cut short where its writer was killed."""
    under_way: dict[str, Eviction] = {}
    decoder = msgspec.json.Decoder(_Line)
    for raw in content.splitlines():
        try:
            line = decoder.decode(raw)
        except msgspec.DecodeError:
            continue
        if line.record_started is not None:
            under_way[line.record_started.machine_id] = line.record_started
        under_way.pop(line.record_ended, None)
    yield from under_way.values()
