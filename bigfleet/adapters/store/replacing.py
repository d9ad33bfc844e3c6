"""Replacing a small file so that after any crash it holds the old content or the new."""

from __future__ import annotations

import os
from pathlib import Path


def replace_durably(path: Path, content: bytes) -> None:
    """On the disk before it returns. OSError when that cannot be."""
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
