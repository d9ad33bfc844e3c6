"""Filters what gRPC's native code writes to file descriptor 2.

gRPC reports a failed handshake only there, neither to Python code nor in a metric. So descriptor 2
becomes a pipe whose lines go to a reader and, if the reader does not handle them, to the real
stderr. Our own logs and tracebacks go to the real stderr directly.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

# Returns True for a line that it has handled.
Reader = Callable[[str], bool]


def redirect_stderr_to(reader: Reader) -> None:
    """Pass every line that native code writes to descriptor 2 to `reader`, in a thread.

    Call it once, before anything holds sys.stderr. Writes never block, and a flood of lines is
    truncated: native code may write while it holds the interpreter's lock.
    """
    real = os.dup(2)
    exit_, entry = os.pipe()
    os.set_blocking(entry, False)
    os.dup2(entry, 2)
    os.close(entry)
    sys.stderr = os.fdopen(real, "w", buffering=1, errors="backslashreplace")
    threading.Thread(target=_forward, args=(exit_, real, reader), daemon=True).start()


def _forward(source: int, real: int, reader: Reader) -> None:
    with os.fdopen(source, errors="replace") as lines:
        for line in lines:
            if not reader(line):
                os.write(real, line.encode())
