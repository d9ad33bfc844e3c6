"""Clusters that are being taken out of the fleet, in one JSON file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import Disk
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files


class RemovalFile:
    """`removals.json` in `directory`, which must not be shared with another shard."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._path, self._files = directory / "removals.json", files or Disk()

    def load(self) -> Collection[str]:
        """See `ports.store.RemovalStore`."""
        try:
            return msgspec.json.decode(self._files.read(self._path), type=list[str])
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unusable(error) from None
        except msgspec.DecodeError as error:
            raise BigFleetError(
                f"{self._path}: does not name the clusters that are being removed ({error}); "
                "delete the file, and order their removal again"
            ) from None

    def save(self, clusters: Collection[str]) -> None:
        """See `ports.store.RemovalStore`."""
        try:
            self._files.replace(self._path, msgspec.json.encode(sorted(clusters)))
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self._path}: clusters to be removed cannot be kept there ({error.strerror}); "
            "give the shard a state directory that it can write to"
        )
