"""A shard's holdings in one JSON file, replaced atomically and flushed to the disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bigfleet.adapters.store.disk import Disk
from bigfleet.model.domain import Domain
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.files import Files
from bigfleet.ports.ownership import (
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


class OwnershipFile:
    """`ownership.json` in `directory`, which must not be shared with another shard."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._path = directory / "ownership.json"
        self._files = files or Disk()

    def load(self) -> OwnershipRecord:
        """See `ports.record.OwnershipStore`."""
        try:
            raw = self._files.read(self._path)
        except FileNotFoundError:
            return OwnershipRecord()
        except OSError as error:
            raise self._unusable(error) from None
        try:
            return _record(msgspec.json.decode(raw, type=_Content))
        except msgspec.DecodeError as error:
            raise BigFleetError(
                f"{self._path}: does not hold what this shard owns ({error}); restore the file, or "
                "remove the shard from the coordinator and start it anew with an empty directory"
            ) from None

    def save(self, record: OwnershipRecord) -> None:
        """See `ports.record.OwnershipStore`."""
        try:
            self._files.replace(self._path, msgspec.json.encode(_content(record)))
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self._path}: what the shard owns cannot be kept there ({error.strerror}); "
            "give the shard a state directory that it can write to"
        )


def _content(held: OwnershipRecord) -> _Content:
    return _Content(
        term=held.newest.term,
        sequence=held.newest.sequence,
        domains=sorted((d.key, d.value) for d in held.domains),
        clusters=sorted(held.clusters),
        slices=[_Slice(*key, machines) for key, machines in sorted(held.slices.items())],
        leaving={number: (d.key, d.value) for number, d in held.leaving.items()},
        answered=[(number, *ended) for number, ended in held.answered.items()],
    )


def _record(content: _Content) -> OwnershipRecord:
    return OwnershipRecord(
        newest=InstructionVersion(content.term, content.sequence),
        domains=frozenset(Domain(*each) for each in content.domains),
        clusters=frozenset(content.clusters),
        slices={QuotaKey(s.provider, s.region): s.machines for s in content.slices},
        leaving={number: Domain(*each) for number, each in content.leaving.items()},
        answered={
            number: InstructionResult(outcome, why) for number, outcome, why in content.answered
        },
    )
