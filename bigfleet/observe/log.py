"""Logs as JSON lines on stderr: one event a line, with the objects it is about as fields."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import msgspec

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonLines(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def to_stderr(role: str) -> None:
    """Send all logging of this process to stderr as JSON lines with its `role`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(role))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
