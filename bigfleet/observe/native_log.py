"""What gRPC's own code writes to file descriptor 2, read line by line before it goes on.

A handshake that fails is told to nobody else: not to our code, not to a metric. So this process's
descriptor 2 becomes a pipe, and what is written to it is handed to a reader and, if that does not
want it, to the real one. Our own logs and tracebacks go to the real one directly.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

# True for a line that has been taken care of.
Reader = Callable[[str], bool]


def redirect_stderr_to(reader: Reader) -> None:
    """Hand every line that native code writes to descriptor 2 to `reader`, in a thread.

    Call it once, before anything holds sys.stderr. A flood of lines is cut short, never waited for:
    native code may write while it holds the interpreter's lock.
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
