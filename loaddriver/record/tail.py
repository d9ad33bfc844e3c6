"""Reads a file that another process is writing, whole lines only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

_POLL_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20


class Tail:
    """Delivers each line of the file at `path` once, without its line end.

    The file may not exist yet. Should it be replaced by a new one (a rotation), the old one is
    read to its end first; should it shrink, it is read from its start again and counted in
    `restarts`, because lines may then be lost.
    """

    def __init__(self, path: Path, deliver: Callable[[Sequence[bytes]], None]) -> None:
        self._path, self._deliver = path, deliver
        self._file: BinaryIO | None = None
        self._rest = b""
        self.restarts = 0

    async def follow(self) -> None:
        """Read what comes, twice a second, until cancelled."""
        while True:
            more = self.read()
            await asyncio.sleep(0 if more else _POLL_SECONDS)

    def read(self) -> bool:
        """Deliver at most a chunk of new lines; False when there was nothing new."""
        if self._file is None and not self._open():
            return False
        assert self._file is not None
        self._rewind_if_truncated(self._file)
        chunk = self._file.read(_CHUNK_BYTES)
        if chunk:
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._deliver([line for line in whole if line])
            return True
        return self._replaced(self._file)

    def finish(self) -> None:
        """Deliver all there is; a last line without its end was cut off and is delivered as is."""
        while self.read():
            pass
        self._deliver_rest()
        if self._file is not None:
            self._file.close()

    def _open(self) -> bool:
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _rewind_if_truncated(self, file: BinaryIO) -> None:
        if os.fstat(file.fileno()).st_size < file.tell():
            self.restarts += 1
            self._deliver_rest()
            file.seek(0)

    def _replaced(self, file: BinaryIO) -> bool:
        """Whether `path` now is another file than the one read to its end; opens it then."""
        try:
            same = os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False
        if same:
            return False
        last = file.read()  # written between our last read and the change of files
        *whole, self._rest = (self._rest + last).split(b"\n")
        self._deliver([line for line in whole if line])
        self._deliver_rest()
        file.close()
        return self._open()

    def _deliver_rest(self) -> None:
        if self._rest:
            self._deliver([self._rest])
        self._rest = b""
