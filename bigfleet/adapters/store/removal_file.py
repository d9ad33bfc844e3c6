"""Clusters that are being removed from the fleet, in one JSON file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import StateFile
from bigfleet.model.errors import UNDECODABLE, BigFleetError
from bigfleet.ports.files import Files


class RemovalFile:
    """`removals.json` in `directory`."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._file = StateFile(directory, "removals.json", "the clusters to be removed", files)

    def load(self) -> Collection[str]:
        """See `ports.store.RemovalStore`."""
        content = self._file.read()
        if content is None:
            return ()
        try:
            return msgspec.json.decode(content, type=list[str])
        except UNDECODABLE as error:
            raise BigFleetError(
                f"{self._file.path}: is not a list of clusters to be removed ({error}); "
                "delete the file and remove the clusters again"
            ) from None

    def save(self, clusters: Collection[str]) -> None:
        """See `ports.store.RemovalStore`."""
        self._file.replace(msgspec.json.encode(sorted(clusters)))
