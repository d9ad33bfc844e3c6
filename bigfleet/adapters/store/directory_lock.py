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
    """Held until `release` or until the process ends. The file `lock` names the holder; it is not
    removed on release.
    """

    def __init__(self, what: str, directory: Path, holder: str) -> None:
        """InvalidInput about the flag `what` if the directory cannot be used or is in use.

        `holder` describes this process to others that find the directory in use.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = (directory / "lock").open("a+")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            by = self._file.read(_MAX_CHARACTERS).strip() or "another process"
            self._file.close()
            hint = f"is in use by {by}; each process needs its own directory"
            raise InvalidInput(what, str(directory), hint) from None
        except OSError as error:
            hint = f"cannot be written ({error.strerror}); choose a writable directory"
            raise InvalidInput(what, str(directory), hint) from None
        with suppress(OSError):  # a full disk does not prevent locking
            os.ftruncate(self._file.fileno(), 0)
            text = f"{holder}, process {os.getpid()} on {socket.gethostname()}\n"
            os.write(self._file.fileno(), text.encode())

    def release(self) -> None:
        """Release the lock."""
        self._file.close()
