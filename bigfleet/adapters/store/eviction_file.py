"""Evictions under way as lines of JSON, appended as they begin and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bigfleet.model.errors import BigFleetError
from bigfleet.ports.store import Eviction


class _Line(msgspec.Struct, omit_defaults=True):
    begun: Eviction | None = None
    ended: str = ""


class EvictionFile:
    """`evictions.jsonl` in `directory`, which must not be shared with another shard."""

    def __init__(self, directory: Path) -> None:
        """Read what is there, and write it anew without what has ended. BigFleetError if the
        directory cannot be used.
        """
        self._path = directory / "evictions.jsonl"
        self._encoder = msgspec.json.Encoder()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._under_way = {e.machine_id: e for e in _read(self._path)}
            self._rewrite()
        except OSError as error:
            raise self._unusable(error) from None

    def load(self) -> Sequence[Eviction]:
        """See `ports.store.EvictionStore`."""
        return list(self._under_way.values())

    def begun(self, eviction: Eviction) -> None:
        """See `ports.store.EvictionStore`."""
        if self._under_way.get(eviction.machine_id) != eviction:
            self._append(_Line(begun=eviction))
            self._under_way[eviction.machine_id] = eviction

    def ended(self, machine_id: str) -> None:
        """See `ports.store.EvictionStore`. What cannot be written is found out again by the next
        start, which sees that the machine has moved on.
        """
        if self._under_way.pop(machine_id, None) is not None:
            with suppress(BigFleetError):
                self._append(_Line(ended=machine_id))

    def _append(self, line: _Line) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(self._encoder.encode(line) + b"\n")
        except OSError as error:
            raise self._unusable(error) from None

    def _rewrite(self) -> None:
        fresh = self._path.with_suffix(".new")
        lines = [_Line(begun=eviction) for eviction in self._under_way.values()]
        fresh.write_bytes(self._encoder.encode_lines(lines))
        fresh.replace(self._path)

    def _unusable(self, error: OSError) -> BigFleetError:
        return BigFleetError(
            f"{self._path}: evictions under way cannot be kept there ({error.strerror}); "
            "give the shard a state directory that it can write to"
        )


def _read(path: Path) -> Iterator[Eviction]:
    """What a damaged line said is lost; the last one is cut short where its writer was killed."""
    under_way: dict[str, Eviction] = {}
    decoder = msgspec.json.Decoder(_Line)
    for raw in path.read_bytes().splitlines() if path.exists() else ():
        try:
            line = decoder.decode(raw)
        except msgspec.DecodeError:
            continue
        if line.begun is not None:
            under_way[line.begun.machine_id] = line.begun
        under_way.pop(line.ended, None)
    yield from under_way.values()
