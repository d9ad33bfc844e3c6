"""How many pods each cluster asked for, in one JSON file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import Disk
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files

_log = logging.getLogger(__name__)


class DemandFile:
    """`demand.json` in `directory`, which must not be shared with another shard."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._path, self._files = directory / "demand.json", files or Disk()

    def load(self) -> Mapping[str, int]:
        """See `ports.store.DemandStore`."""
        try:
            return msgspec.json.decode(self._files.read(self._path), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(error) from None
        except msgspec.DecodeError as error:
            fields = {"file": str(self._path), "error": str(error)}
            _log.warning("what clusters asked for is lost: the file is damaged", extra=fields)
            return {}

    def save(self, pods: Mapping[str, int]) -> None:
        """See `ports.store.DemandStore`."""
        try:
            self._files.replace(self._path, msgspec.json.encode(dict(pods)))
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self._path}: what clusters ask for cannot be kept there ({error.strerror}); "
            "give the shard a state directory that it can write to"
        )
