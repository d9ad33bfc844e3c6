"""Writes files whole: an interruption leaves the earlier content, and never half of the new."""

from __future__ import annotations

from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` beside the file at `path`, and then put it in its place."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
