"""The epoch in a small text file, replaced atomically and flushed to the disk."""

from __future__ import annotations

from pathlib import Path

from bigfleet.adapters.store.disk import StateFile
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files


class EpochFile:
    """`epoch` in `directory`: a decimal number and a newline."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._file = StateFile(directory, "epoch", "the shard's epoch", files)

    def next_epoch(self, at_least: int = 1) -> int:
        """One more than the file's, and not below `at_least`; durable on return.

        BigFleetError if the file is damaged or cannot be written.
        """
        epoch = max(self.last() + 1, at_least)
        self._file.replace(b"%d\n" % epoch)
        return epoch

    def last(self) -> int:
        """See `ports.store.EpochStore`."""
        content = self._file.read()
        if content is None:
            return 0
        text = content.removesuffix(b"\n")
        if not (text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise BigFleetError(
                f"{self._file.path}: holds {content[:40]!r} instead of the shard's epoch, a whole "
                "number > 0; remove the file, and the shard claims an epoch larger than any that "
                "it has used"
            )
        return int(text)
