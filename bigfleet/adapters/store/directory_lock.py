"""One process at a time in a state directory."""

from __future__ import annotations

import fcntl
from pathlib import Path

from bigfleet.model.errors import InvalidInput


class DirectoryLock:
    """Held until `release`, or until the process ends, however it does."""

    def __init__(self, what: str, directory: Path) -> None:
        """InvalidInput, with `what` the flag, when the directory cannot be used or is in use."""
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = (directory / "lock").open("a")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            cure = "is in use by another process; each one needs a directory of its own"
            raise InvalidInput(what, str(directory), cure) from None
        except OSError as error:
            cure = f"cannot keep any state ({error.strerror}); name a directory to write to"
            raise InvalidInput(what, str(directory), cure) from None

    def release(self) -> None:
        """Let others in."""
        self._file.close()
