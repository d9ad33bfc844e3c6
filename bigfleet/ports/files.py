"""Small files that must outlive a process, written so that a crash leaves nothing half done."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """All that is written down goes through here. Every call may raise OSError."""

    def read(self, path: Path) -> bytes:
        """The whole content; FileNotFoundError where there is no such file."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """After any crash the file holds the old content or the new; the new once this returns,
        even after a power cut. Folders are made where they are missing.
        """
        ...

    def append(self, path: Path, piece: bytes) -> None:
        """Add to the end. After an error, or a crash, some of the piece may be there; it survives
        the process once this returns, and a power cut may take it back.
        """
        ...
