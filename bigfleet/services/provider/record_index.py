"""All records in memory, in the order of their changes: what a provider's reads are answered from.

Listing some of them, or a page of all, costs in proportion to their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bigfleet.model.errors import UnknownObject
from bigfleet.services.provider.lifecycle import Record


class RecordIndex:
    """The last record of each machine; the revision grows by one with each change."""

    def __init__(self, records: Iterable[Record]) -> None:
        """`records` in the order of their revisions."""
        self._changes = list(records)
        self._records = {record.machine.id: record for record in self._changes}
        self.revision: int = self._changes[-1].revision if self._changes else 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        """All records, longest unchanged first."""
        return self.changed_after(0)

    def get(self, machine_id: str) -> Record:
        """The machine's record; UnknownObject when there is none."""
        try:
            return self._records[machine_id]
        except KeyError:
            raise UnknownObject(f"machine {machine_id!r} is not known to this provider") from None

    def changed_after(self, revision: int) -> Iterator[Record]:
        """The records whose last change is later than `revision`, in order of change."""
        changes = self._changes
        first = bisect_right(changes, revision, key=lambda record: record.revision)
        for number in range(first, len(changes)):
            record = changes[number]
            if self._records[record.machine.id] is record:
                yield record

    def put(self, record: Record) -> Record:
        """Replace the machine's record, as the latest change; with its revision."""
        record = replace(record, revision=self.revision + 1)
        self.revision = record.revision
        self._records[record.machine.id] = record
        self._changes.append(record)
        if len(self._changes) > 2 * len(self._records):
            self._changes = list(self)  # without those that later ones superseded
        return record


class IndexedRecords:
    """The reads of a store, which fills and changes its `_index`."""

    _index: RecordIndex

    @property
    def revision(self) -> int:
        """That of the last change."""
        return self._index.revision

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[Record]:
        """All records, longest unchanged first."""
        return iter(self._index)

    def get(self, machine_id: str) -> Record:
        """The machine's record; UnknownObject when there is none."""
        return self._index.get(machine_id)

    def changed_after(self, revision: int) -> Iterator[Record]:
        """The records whose last change is later than `revision`, in order of change."""
        return self._index.changed_after(revision)
