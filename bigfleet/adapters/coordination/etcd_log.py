"""etcd's log: rotation and a readable tail."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

MAX_BYTES = 8 * 2**20
# Stack traces are long.
_TAIL_BYTES = 32 * 2**10
_MAX_LINES = 3
_MAX_CHARACTERS = 400


def rotate(log: Path) -> None:
    """Rotate a long log to `.1`. etcd opens it for append, so it continues at the new end.

    If the disk is too full for the copy, the rotated part is lost.
    """
    rotated = log.with_name(f"{log.name}.1")
    with contextlib.suppress(OSError):
        if log.stat().st_size <= MAX_BYTES:
            return
        try:
            shutil.copyfile(log, rotated)
        except OSError:
            rotated.unlink(missing_ok=True)
        os.truncate(log, 0)


def tail(log: Path) -> str:
    """The last distinct messages, one per line, without stack traces."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f" (unreadable: {error.strerror})"
    messages = list(dict.fromkeys(_message(line) for line in reversed(lines)))[:_MAX_LINES]
    return "".join(f"\n  {line}" for line in reversed(messages)) or " (nothing)"


def contains(log: Path, since_byte: int, text: str) -> bool:
    """Whether `text` occurs after byte `since_byte`; anywhere, if the log was rotated since."""
    try:
        content = log.read_bytes()
    except OSError:
        return False
    return text.encode() in content[since_byte if since_byte <= len(content) else 0 :]


def _message(line: str) -> str:
    """Shortened in the middle: an error's cause is at the end."""
    try:
        record = json.loads(line)
        text = ": ".join(str(record[key]) for key in ("msg", "error") if key in record) or line
    except (ValueError, TypeError):
        text = line
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]}"
