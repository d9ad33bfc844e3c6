"""Reads complete lines of a file that another process is writing."""

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

    The file may not exist yet. If it is replaced (rotated), the old one is read to its end first.
    If it shrinks, it is read from its start again and counted in `restarts`, since lines may be
    lost.
    """

    def __init__(self, path: Path, deliver: Callable[[Sequence[bytes]], None]) -> None:
        self._path, self._deliver = path, deliver
        self._file: BinaryIO | None = None
        self._rest = b""
        self.restarts = 0

    async def follow(self) -> None:
        """Read new lines until cancelled; poll every `_POLL_SECONDS`."""
        while True:
            more = self.read()
            await asyncio.sleep(0 if more else _POLL_SECONDS)

    def read(self) -> bool:
        """Deliver at most a chunk of new lines; return False if there are none."""
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
        """Deliver all remaining lines, including a truncated last one."""
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
        """Open the new file at `path` if the one being read was replaced; whether it was."""
        try:
            same = os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False
        if same:
            return False
        last = file.read()  # written between the last read and the rotation
        *whole, self._rest = (self._rest + last).split(b"\n")
        self._deliver([line for line in whole if line])
        self._deliver_rest()
        file.close()
        return self._open()

    def _deliver_rest(self) -> None:
        if self._rest:
            self._deliver([self._rest])
        self._rest = b""
