"""The number of pods that each cluster requested, in one JSON file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import StateFile
from bigfleet.model.errors import UNDECODABLE
from bigfleet.ports.files import Files

_LOG = logging.getLogger(__name__)


class DemandFile:
    """`demand.json` in `directory`."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._file = StateFile(directory, "demand.json", "the demand of clusters", files)

    def load(self) -> Mapping[str, int]:
        """See `ports.store.DemandStore`."""
        content = self._file.read()
        if content is None:
            return {}
        try:
            return msgspec.json.decode(content, type=dict[str, int])
        except UNDECODABLE as error:
            fields = {"file": str(self._file.path), "error": str(error)}
            _LOG.warning("the demand of clusters is lost: the file is damaged", extra=fields)
            return {}

    def save(self, pods: Mapping[str, int]) -> None:
        """See `ports.store.DemandStore`."""
        self._file.replace(msgspec.json.encode(dict(pods)))
