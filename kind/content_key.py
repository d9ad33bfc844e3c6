"""Content keys: equal inputs have equal keys, so that nothing is rebuilt without a change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

# 48 bits are enough for the images of one machine.
_KEY_DIGITS = 12


def content_key(*parts: str | bytes | Path) -> str:
    """Twelve hexadecimal digits of texts, bytes, and files or whole folders.

    For a folder it covers every file's relative path, executable bit and content.
    """
    digest = hashlib.sha256()
    for part in parts:
        for piece in _pieces(part):
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
    return digest.hexdigest()[:_KEY_DIGITS]


def _pieces(part: str | bytes | Path) -> Iterable[bytes]:
    if isinstance(part, str):
        yield part.encode("utf-8")
    elif isinstance(part, bytes):
        yield part
    elif part.is_dir():
        for file in source_files(part):
            yield str(file.relative_to(part)).encode("utf-8")
            yield _file_piece(file)
    else:
        yield _file_piece(part)


def _file_piece(file: Path) -> bytes:
    executable = b"x" if os.access(file, os.X_OK) else b"-"
    with file.open("rb") as content:
        return executable + hashlib.file_digest(content, "sha256").digest()


def source_files(folder: Path) -> list[Path]:
    """A folder's files in a fixed order, without Python's caches."""
    return sorted(
        file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    )
