"""Evictions in progress as JSON lines, appended as they start and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import StateFile
from bigfleet.model.errors import UNDECODABLE, BigFleetError
from bigfleet.ports.files import Files
from bigfleet.ports.store import Eviction


class _Line(msgspec.Struct, omit_defaults=True):
    started: Eviction | None = None
    ended: str = ""


# The file is compacted once so many of its lines are about evictions that ended.
_MAX_STALE_LINES = 10_000


class EvictionFile:
    """`evictions.jsonl` in `directory`."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        """Read the file and compact it. BigFleetError if the directory cannot be used."""
        self._file = StateFile(directory, "evictions.jsonl", "evictions in progress", files)
        self._encoder = msgspec.json.Encoder()
        self._damaged, self._lines = False, 0
        self._in_progress = {e.machine_id: e for e in _in_progress(self._file.read() or b"")}
        self._compact()

    def load(self) -> Sequence[Eviction]:
        """See `ports.store.EvictionStore`."""
        return list(self._in_progress.values())

    def record_started(self, eviction: Eviction) -> None:
        """See `ports.store.EvictionStore`."""
        before = self._in_progress.get(eviction.machine_id)
        if before == eviction:
            return
        self._in_progress[eviction.machine_id] = eviction
        try:
            self._append(_Line(started=eviction))
        except BigFleetError:
            del self._in_progress[eviction.machine_id]
            if before is not None:
                self._in_progress[eviction.machine_id] = before
            raise

    def record_ended(self, machine_id: str) -> None:
        """See `ports.store.EvictionStore`."""
        if self._in_progress.pop(machine_id, None) is not None:
            with suppress(BigFleetError):
                self._append(_Line(ended=machine_id))

    def _append(self, line: _Line) -> None:
        """Append `line`, or compact the file if a failed append may have left half a line."""
        if self._damaged or self._lines >= len(self._in_progress) + _MAX_STALE_LINES:
            self._compact()
            return
        self._damaged = True
        self._file.append(self._encoder.encode(line) + b"\n")
        self._damaged = False
        self._lines += 1

    def _compact(self) -> None:
        lines = [_Line(started=eviction) for eviction in self._in_progress.values()]
        self._file.replace(self._encoder.encode_lines(lines))
        self._damaged, self._lines = False, len(lines)


def _in_progress(content: bytes) -> Iterator[Eviction]:
    """Damaged lines are skipped: the last one is truncated if its writer was killed."""
    in_progress: dict[str, Eviction] = {}
    decoder = msgspec.json.Decoder(_Line)
    for raw in content.splitlines():
        try:
            line = decoder.decode(raw)
        except UNDECODABLE:
            continue
        if line.started is not None:
            in_progress[line.started.machine_id] = line.started
        in_progress.pop(line.ended, None)
    yield from in_progress.values()
