"""What this shard owns, in memory and on disk."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from bigfleet.model.domain import Domain
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.ownership import OwnershipRecord, OwnershipStore

_log = logging.getLogger(__name__)


class Ownership:
    """The present `record`. A domain that is being given up counts as given up for new decisions.

    `version` is another number after every change of domains or clusters.
    """

    def __init__(self, store: OwnershipStore) -> None:
        """BigFleetError when what was kept is damaged."""
        self._store = store
        self.version = 0
        self.record = OwnershipRecord()
        self._saved = store.load()
        self._adopt(self._saved)

    @property
    def domains(self) -> Collection[Domain]:
        """Those in which orders may be given for machines that are not bound."""
        return self._domains

    @property
    def leaving(self) -> Collection[Domain]:
        """Those that are being given up, once nothing is under way in them."""
        return self._leaving

    @property
    def clusters(self) -> Collection[str]:
        """Those that this shard serves."""
        return self.record.clusters

    def change(self, record: OwnershipRecord) -> None:
        """From now on `record` is what this shard owns. BigFleetError when it cannot be kept on the
        disk; then nothing has changed.
        """
        self._store.save(record)
        self._saved = record
        self._adopt(record)

    def add_cluster(self, cluster: str) -> None:
        """Serve `cluster` for good; `save` makes it durable. Until then the coordinator knows."""
        if cluster not in self.record.clusters:
            self._adopt(replace(self.record, clusters=self.record.clusters | {cluster}))

    def drop_clusters(self, clusters: Collection[str]) -> None:
        """Serve these no more. BigFleetError when that cannot be kept; then nothing has changed."""
        if not self.record.clusters.isdisjoint(clusters):
            self.change(replace(self.record, clusters=self.record.clusters.difference(clusters)))

    def is_saved(self, cluster: str) -> bool:
        """Whether the next life of this shard will know that it serves `cluster`."""
        return cluster in self._saved.clusters

    def save(self) -> None:
        """Write down what is not on the disk yet; what fails is tried again at the next call."""
        if self.record is not self._saved:
            try:
                self.change(self.record)
            except BigFleetError as error:
                _log.error("clusters of this shard are not kept", extra={"why": str(error)})

    def _adopt(self, record: OwnershipRecord) -> None:
        self.record = record
        self._leaving = frozenset(record.leaving.values())
        self._domains = record.domains - self._leaving
        self.version += 1
