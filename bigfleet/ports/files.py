"""Small durable files, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Access to all durable files. Every call may raise OSError."""

    def read(self, path: Path) -> bytes:
        """The whole content; raises FileNotFoundError if the file does not exist."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """Replace the content atomically; durable once this returns, even across a power failure.
        Creates missing directories.
        """
        ...

    def append(self, path: Path, piece: bytes) -> None:
        """Append to the file. Once this returns, the piece survives the process, but not a power
        failure; after an error or crash, part of it may have been written.
        """
        ...
