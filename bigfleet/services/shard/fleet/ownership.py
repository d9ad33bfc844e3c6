"""The domains, clusters and quotas that this shard owns, in memory and on disk."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from bigfleet.model.domain import Domain
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.ownership import OwnershipRecord, OwnershipStore

_LOG = logging.getLogger(__name__)


class Ownership:
    """The present `record`. A domain that is being released is not owned for new decisions. Each
    set is another object once it has changed.
    """

    def __init__(self, store: OwnershipStore) -> None:
        """BigFleetError when the stored record is damaged."""
        self._store = store
        self.record = OwnershipRecord()
        self._leaving: frozenset[Domain] = frozenset()
        self._domains: frozenset[Domain] = frozenset()
        self._saved = store.load()
        self._adopt(self._saved)

    @property
    def domains(self) -> frozenset[Domain]:
        """Domains in which unbound machines may be ordered."""
        return self._domains

    @property
    def leaving(self) -> frozenset[Domain]:
        """Domains to be released once nothing is under way in them."""
        return self._leaving

    @property
    def clusters(self) -> frozenset[str]:
        """Clusters that this shard serves."""
        return self.record.clusters

    def change(self, record: OwnershipRecord) -> None:
        """Replace the record. BigFleetError when it cannot be saved; then nothing has changed."""
        self._store.save(record)
        self._saved = record
        self._adopt(record)

    def add_cluster(self, cluster: str) -> None:
        """Serve `cluster` permanently; `save` makes it durable. The coordinator has it already."""
        if cluster not in self.record.clusters:
            self._adopt(replace(self.record, clusters=self.record.clusters | {cluster}))

    def drop_clusters(self, clusters: Collection[str]) -> None:
        """Stop serving these. BigFleetError when it cannot be saved; then nothing has changed."""
        if not self.record.clusters.isdisjoint(clusters):
            self.change(replace(self.record, clusters=self.record.clusters.difference(clusters)))

    def is_saved(self, cluster: str) -> bool:
        """Whether it is on disk that this shard serves `cluster`."""
        return cluster in self._saved.clusters

    def save(self) -> None:
        """Save the record if it is not on disk yet; a failure is retried at the next call."""
        if self.record is not self._saved:
            try:
                self.change(self.record)
            except BigFleetError as error:
                _LOG.error("ownership cannot be saved", extra={"why": str(error)})

    def _adopt(self, record: OwnershipRecord) -> None:
        before, self.record = self.record, record
        if record.domains is not before.domains or record.leaving is not before.leaving:
            self._leaving = frozenset(record.leaving.values())
            self._domains = record.domains - self._leaving
