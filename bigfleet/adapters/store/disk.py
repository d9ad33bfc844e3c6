"""Files on the host's disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files


class Disk:
    """A `ports.files.Files`."""

    def read(self, path: Path) -> bytes:
        """See `ports.files.Files`."""
        return path.read_bytes()

    def replace(self, path: Path, content: bytes) -> None:
        """See `ports.files.Files`."""
        path.parent.mkdir(parents=True, exist_ok=True)
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

    def append(self, path: Path, piece: bytes) -> None:
        """See `ports.files.Files`."""
        with path.open("ab", buffering=0) as file:
            if file.write(piece) != len(piece):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class StateFile:
    """The file `name` in a shard's state directory, which no other shard may share.

    BigFleetError, naming the file and its `content`, if the disk refuses a read or a write.
    """

    def __init__(self, directory: Path, name: str, content: str, files: Files | None) -> None:
        self.path = directory / name
        self._content, self._files = content, files or Disk()

    def read(self) -> bytes | None:
        """The content; None if there is no file."""
        try:
            return self._files.read(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from None

    def replace(self, content: bytes) -> None:
        """Replace the content atomically; durable on return."""
        try:
            self._files.replace(self.path, content)
        except OSError as error:
            raise self._unusable(error) from None

    def append(self, piece: bytes) -> None:
        """Append to the file; a failure may leave part of `piece` behind."""
        try:
            self._files.append(self.path, piece)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self.path}: cannot store {self._content} ({error.strerror}); "
            "give the shard a writable state directory"
        )
