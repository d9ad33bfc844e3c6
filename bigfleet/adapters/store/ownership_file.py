"""A shard's holdings in one JSON file, replaced atomically and flushed to the disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import StateFile
from bigfleet.model.domain import Domain
from bigfleet.model.errors import UNDECODABLE, BigFleetError
from bigfleet.ports.files import Files
from bigfleet.ports.ownership import (
    DrainTask,
    InstructionResult,
    InstructionVersion,
    OwnershipRecord,
    QuotaKey,
)


class _Slice(msgspec.Struct):
    provider: str
    region: str
    machines: int


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    term: int
    sequence: int
    domains: list[tuple[str, str]]
    clusters: list[str]
    slices: list[_Slice]
    leaving: dict[str, tuple[str, str]]
    answered: list[tuple[str, int, str]]
    drains: dict[str, tuple[tuple[str, ...], int, str]] = {}


class OwnershipFile:
    """`ownership.json` in `directory`."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._file = StateFile(directory, "ownership.json", "what the shard owns", files)
        #: the domains that were saved last, and as they are written: clusters change far more often
        self._domains: tuple[frozenset[Domain], list[tuple[str, str]]] = frozenset(), []

    def load(self) -> OwnershipRecord:
        """See `ports.ownership.OwnershipStore`."""
        content = self._file.read()
        if content is None:
            return OwnershipRecord()
        try:
            return _record(msgspec.json.decode(content, type=_Content))
        except UNDECODABLE as error:
            raise BigFleetError(
                f"{self._file.path}: is not a record of what the shard owns ({error}); restore the "
                "file, or remove the shard from the fleet and restart it with an empty directory"
            ) from None

    def save(self, record: OwnershipRecord) -> None:
        """See `ports.ownership.OwnershipStore`."""
        if record.domains is not self._domains[0]:
            self._domains = record.domains, sorted((d.key, d.value) for d in record.domains)
        self._file.replace(msgspec.json.encode(_content(record, self._domains[1])))


def _content(record: OwnershipRecord, domains: list[tuple[str, str]]) -> _Content:
    return _Content(
        term=record.newest.term,
        sequence=record.newest.sequence,
        domains=domains,
        clusters=sorted(record.clusters),
        slices=[_Slice(*key, machines) for key, machines in sorted(record.slices.items())],
        leaving={number: (d.key, d.value) for number, d in record.leaving.items()},
        answered=[(number, *ended) for number, ended in record.answered.items()],
        drains=dict(record.drains),
    )


def _record(content: _Content) -> OwnershipRecord:
    return OwnershipRecord(
        newest=InstructionVersion(content.term, content.sequence),
        domains=frozenset(Domain(*each) for each in content.domains),
        clusters=frozenset(content.clusters),
        slices={QuotaKey(s.provider, s.region): s.machines for s in content.slices},
        leaving={number: Domain(*each) for number, each in content.leaving.items()},
        drains={number: DrainTask(*each) for number, each in content.drains.items()},
        answered={
            number: InstructionResult(outcome, why) for number, outcome, why in content.answered
        },
    )
