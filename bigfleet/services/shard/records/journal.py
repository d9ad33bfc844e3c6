"""The journal: the machines' stories as JSON lines, for people and measurements.

No decision depends on it, so a disk that rejects writes must not stop the shard.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

import msgspec

from bigfleet.api.journal import JournalEvent, JournalLine
from bigfleet.flags import Flag
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import MachineState
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.records.orders import Order

_MAX_RECENT = 10_000
# Lines kept in memory while the disk rejects writes; beyond that the oldest are lost.
_MAX_UNWRITTEN = 10_000

_LOG = logging.getLogger(__name__)


_MEGABYTE = 2**20
_MEGABYTES = Flag(
    "--journal-megabytes",
    "size at which the journal is rotated",
    "N",
    parse=lambda text: int(text) * _MEGABYTE,
    show=lambda size: str(size // _MEGABYTE),
)


@dataclass(frozen=True)
class JournalLimits:
    """A journal is rotated to `.1` before it exceeds `max_bytes`, `.1` to `.2`, and so on; `kept`
    is the number of rotated files.
    """

    max_bytes: Annotated[int, _MEGABYTES] = 64 * _MEGABYTE
    kept: Annotated[int, Flag("--journal-backups", "rotated journal files to keep", "N")] = 4


class Journal:
    """Collects lines and writes them on `flush`; without a path it only keeps the latest.

    `begin` adds shard and epoch to every later line. Where lines were lost to a full disk, a line
    LINES_LOST has their number.
    """

    def __init__(
        self, path: Path | None, clock: Clock, limits: JournalLimits | None = None
    ) -> None:
        self._clock = clock
        self._shard = ""
        self._epoch: int | None = None
        self._file = _RotatedFile(path, limits or JournalLimits()) if path else None
        self._unwritten: deque[JournalLine] = deque()
        self._lost, self._problem = 0, ""
        self._recent: deque[JournalLine] = deque(maxlen=_MAX_RECENT)

    def begin(self, shard_id: str, epoch: int) -> None:
        """Add shard and epoch to all further lines."""
        self._shard, self._epoch = shard_id, epoch

    def note(self, event: JournalEvent, **fields: Any) -> None:
        """Record `event` as of now, with fields of a JournalLine; None leaves a field out."""
        line = self._line(event, **fields)
        self._recent.append(line)
        if self._file is not None:
            self._unwritten.append(line)

    def _line(self, event: JournalEvent, **fields: Any) -> JournalLine:
        present = {name: value for name, value in fields.items() if value is not None}
        at = self._clock.unix_seconds()
        return JournalLine(at, event, **present, shard=self._shard, epoch=self._epoch)

    def note_order(self, event: JournalEvent, order: Order, note: str = "") -> None:
        """Record `event` about an order, with the fields that identify it."""
        need = order.need_key
        self.note(
            event,
            machine=order.machine_id,
            action=order.action_type.value,
            cluster=order.cluster,
            claimant=need.cluster if need else None,
            need=need.fingerprint if need else None,
            group=need.group if need else None,
            decided=order.decided_seconds,
            grace=order.grace_seconds if order.leads_to is MachineState.DRAINING else None,
            note=note,
        )

    def story(self, machine_id: str) -> list[JournalLine]:
        """Recent lines about one machine, oldest first."""
        return [line for line in self._recent if line.machine == machine_id]

    def flush(self) -> None:
        """Write all recorded lines, or keep them for the next call."""
        if self._file is None or not self._unwritten:
            return
        lines = [self._line(JournalEvent.LINES_LOST, count=self._lost)] if self._lost else []
        try:
            self._file.append(msgspec.json.Encoder().encode_lines([*lines, *self._unwritten]))
        except OSError as error:
            self._keep_for_retry(error)
        else:
            self._unwritten.clear()
            self._lost, self._problem = 0, ""

    def _keep_for_retry(self, error: OSError) -> None:
        if str(error) != self._problem:
            self._problem = str(error)
            _LOG.error("journal cannot be written; continuing without: %s", self._problem)
        while len(self._unwritten) > _MAX_UNWRITTEN:
            self._unwritten.popleft()
            self._lost += 1
            metrics.shard_journal_lines_lost.inc()

    def close(self) -> None:
        """Flush, then close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()


class _RotatedFile:
    """Appends atomically: a piece that does not fit on the disk is not written in part."""

    def __init__(self, path: Path, limits: JournalLimits) -> None:
        self._path, self._limits = path, limits
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened()
        except OSError as error:
            raise BigFleetError(
                f"journal {path}: cannot be written ({error.strerror}); "
                "name a file in a directory that the shard can write to"
            ) from None

    def append(self, piece: bytes) -> None:
        """OSError when it cannot be written; then none of it is."""
        size = self._size()
        if size and size + len(piece) > self._limits.max_bytes and self._path.is_file():
            self._rotate()
            size = self._size()
        left = memoryview(piece)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(size)
            raise

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> FileIO:
        return self._path.open("ab", buffering=0)

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _rotate(self) -> None:
        names = [self._path, *(self._aside(number) for number in range(1, self._limits.kept + 1))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            with suppress(FileNotFoundError):
                newer.rename(older)
        fresh = self._opened()
        self._file.close()
        self._file = fresh

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
