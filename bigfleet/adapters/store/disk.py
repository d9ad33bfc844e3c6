"""Files on the host's disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class Disk:
    """A `ports.files.Files`."""

    def read(self, path: Path) -> bytes:
        """See `ports.files.Files`."""
        return path.read_bytes()

    def replace(self, path: Path, content: bytes) -> None:
        """See `ports.files.Files`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        # The rename itself is durable only once the directory is.
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def append(self, path: Path, piece: bytes) -> None:
        """See `ports.files.Files`."""
        with path.open("ab", buffering=0) as file:
            if file.write(piece) != len(piece):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
