"""What a shard knows of each machine, in one file."""

from __future__ import annotations

from pathlib import Path

from bigfleet.adapters.store.disk import StateFile
from bigfleet.ports.files import Files


class InventoryFile:
    """`inventory.bin` in `directory`."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._file = StateFile(directory, "inventory.bin", "what is known of machines", files)

    def load(self) -> bytes | None:
        """See `ports.store.InventoryStore`."""
        return self._file.read()

    def save(self, content: bytes) -> None:
        """See `ports.store.InventoryStore`."""
        self._file.replace(content)
