"""The epoch in a small text file, replaced atomically and flushed to the disk."""

from __future__ import annotations

from pathlib import Path

from bigfleet.adapters.store.disk import Disk
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files


class EpochFile:
    """`epoch` in `directory`: a decimal number and a newline. One directory serves one shard."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._path = directory / "epoch"
        self._files = files or Disk()

    def next_epoch(self, at_least: int = 1) -> int:
        """One more than the file says, and not below `at_least`; on the disk before it returns.

        BigFleetError names the file and the cure when it is damaged or cannot be written.
        """
        try:
            epoch = max(self.last() + 1, at_least)
            self._files.replace(self._path, b"%d\n" % epoch)
        except OSError as error:
            raise BigFleetError(
                f"{self._path}: the shard's epoch cannot be kept there ({error.strerror}); "
                "give the shard a state directory that it can write to"
            ) from None
        return epoch

    def last(self) -> int:
        """See `ports.store.EpochStore`."""
        try:
            content = self._files.read(self._path)
        except FileNotFoundError:
            return 0
        text = content.removesuffix(b"\n")
        if not (text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise BigFleetError(
                f"{self._path}: holds {content[:40]!r} where the shard's epoch should be, a whole "
                "number > 0; remove the file, and the shard is given an epoch larger than any that "
                "it has used"
            )
        return int(text)
