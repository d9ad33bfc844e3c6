"""One process at a time in a state directory."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from bigfleet.model.errors import InvalidInput

_MAX_CHARACTERS = 200


class DirectoryLock:
    """Held until `release`, or until the process ends, however it does. The file `lock` says who
    holds it; it stays when nobody does.
    """

    def __init__(self, what: str, directory: Path, holder: str) -> None:
        """InvalidInput, with `what` the flag, when the directory cannot be used or is in use.

        `holder` is what this process is, for whoever finds the directory in use.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = (directory / "lock").open("a+")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            by = self._file.read(_MAX_CHARACTERS).strip() or "another process"
            self._file.close()
            hint = f"is in use by {by}; each one needs a directory of its own"
            raise InvalidInput(what, str(directory), hint) from None
        except OSError as error:
            hint = f"cannot keep any state ({error.strerror}); name a directory to write to"
            raise InvalidInput(what, str(directory), hint) from None
        with suppress(OSError):  # a full disk keeps nobody from holding the lock
            os.ftruncate(self._file.fileno(), 0)
            text = f"{holder}, process {os.getpid()} on {socket.gethostname()}\n"
            os.write(self._file.fileno(), text.encode())

    def release(self) -> None:
        """Let others in."""
        self._file.close()
