"""In-memory copy of all rows on every replica, so that a new leader need not read them first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from bigfleet.model.errors import UNDECODABLE, BigFleetError, Unavailable
from bigfleet.ports.coordination import LEADER_KEY, Changes, CoordinationStore
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Leader, RowChanges, decode, leader_decoder

_LOG = logging.getLogger(__name__)
_RETRY_INTERVAL_SECONDS = 0.1
# Decoded at a time, some milliseconds: calls are answered in between.
_CHUNK_ROWS = 500


class Mirror:
    """The store's rows up to `revision`; complete once `wait_for_revision` has returned."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self.registry = Registry()
        self.leader: Leader | None = None
        self.revision = -1
        self._advanced = asyncio.Event()

    async def run(self) -> None:
        """Follow the store until cancelled. BigFleetError for a row that cannot be read."""
        while True:
            try:
                await self._watch()
            except Unavailable as error:
                _LOG.debug("watching again: %s", error)
                await asyncio.sleep(_RETRY_INTERVAL_SECONDS)

    async def wait_for_revision(self, revision: int) -> None:
        """Wait until everything up to this revision is in the registry."""
        while self.revision < revision:
            await self._advanced.wait()

    async def _watch(self) -> None:
        async for update in self._store.watch():
            registry = Registry() if update.is_snapshot else self.registry
            for chunk in _chunks(update.changes):
                registry.apply(self._rows(chunk))
                await asyncio.sleep(0)
            self.registry, self.revision = registry, update.revision
            self._advanced.set()
            self._advanced = asyncio.Event()

    def _rows(self, changes: Changes) -> RowChanges:
        rows: RowChanges = {}
        for key, value in changes.items():
            try:
                if key == LEADER_KEY:
                    self.leader = leader_decoder.decode(value) if value else None
                elif value is None:
                    rows[key] = None
                elif (row := decode(key, value)) is not None:
                    rows[key] = row
            except UNDECODABLE as error:
                raise BigFleetError(
                    f"row {key!r} of the coordinator's store cannot be read: {error}; restore a "
                    "snapshot (`bigfleet fleet restore`)"
                ) from None
        return rows


def _chunks(changes: Changes) -> Iterator[Changes]:
    items = list(changes.items())
    for start in range(0, len(items), _CHUNK_ROWS):
        yield dict(items[start : start + _CHUNK_ROWS])
    if not items:
        yield {}
