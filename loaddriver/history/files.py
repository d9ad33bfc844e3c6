"""Reads and extends histories. A file is only ever appended to, so nothing in it is lost."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bigfleet.model.errors import UNDECODABLE
from loaddriver.errors import ProfileError
from loaddriver.history.record import SCHEMA, Line, encode

_ATTRIBUTES = ".gitattributes"
# Two branches that both add runs merge to all lines of both; their order does not matter.
_MERGE = "*.jsonl merge=union\n"


@dataclass(frozen=True)
class BadLine:
    """A line that is no run's; `why` says what is wrong with it."""

    path: Path
    number: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.why}"


@dataclass(frozen=True)
class History:
    """The runs of a profile, oldest first, and the lines that could not be read."""

    lines: tuple[Line, ...]
    bad: tuple[BadLine, ...]

    def of_machine(self, machine: str) -> tuple[Line, ...]:
        """The runs on one machine."""
        return tuple(line for line in self.lines if line.machine.id == machine)


def path_of(folder: Path, line: Line) -> Path:
    """The file that a run's line belongs to."""
    return folder / line.profile / f"{line.machine.id}.jsonl"


def append(folder: Path, line: Line) -> bool:
    """Append a run's line to its file; False if it is there already.

    Concurrent writers wait for each other, and a truncated last line is left as it is.
    """
    path, encoded = path_of(folder, line), encode(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    attributes = folder / _ATTRIBUTES
    if not attributes.exists():
        attributes.write_text(_MERGE)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        if encoded.rstrip() in content.splitlines():
            return False
        apart = b"" if content.endswith(b"\n") or not content else b"\n"
        file.write(apart + encoded)
        file.flush()
        os.fsync(file.fileno())
    return True


def read_history(folder: Path, profile: str) -> History:
    """Read all machines' files of a profile. Equal lines, as merges leave them, count once."""
    found: dict[bytes, _Placed] = {}
    bad: list[BadLine] = []
    for path in sorted((folder / profile).glob("*.jsonl")):
        for number, content in enumerate(path.read_bytes().split(b"\n"), start=1):
            try:
                if content.strip():
                    found.setdefault(content, _Placed(path, number, _decoded(content, path)))
            except ProfileError as error:
                bad.append(BadLine(path, number, str(error)))
    ordered = sorted(found.values(), key=lambda each: each.order)
    lines = tuple(each.line for each in ordered)
    return History(lines, (*bad, *_contradictions(ordered)))


@dataclass(frozen=True)
class _Placed:
    """A run's line, and where it is."""

    path: Path
    number: int
    line: Line

    @property
    def order(self) -> tuple[float, str]:
        return self.line.started_unix_seconds, self.line.run


class _Versioned(msgspec.Struct):
    schema: str


def _decoded(content: bytes, path: Path) -> Line:
    """A line of a file. Raises ProfileError with what is wrong."""
    profile, machine = path.parent.name, path.stem
    try:
        schema = msgspec.json.decode(content, type=_Versioned).schema
        if schema != SCHEMA:
            raise ProfileError([f"is of schema {schema}, and this build reads {SCHEMA}"])
        line = msgspec.json.decode(content, type=Line)
    except UNDECODABLE as error:
        raise ProfileError([f"is no run's line: {error}"]) from None
    if (line.profile, line.machine.id) != (profile, machine):
        raise ProfileError(
            [f"is of {line.profile} on {line.machine.id}, and belongs into that one's file"]
        )
    return line


def _contradictions(ordered: list[_Placed]) -> Iterator[BadLine]:
    """Runs with two different lines: one of them was edited, and nobody knows which."""
    first: dict[str, _Placed] = {}
    for each in ordered:
        other = first.setdefault(each.line.run, each)
        if other is not each:
            why = f"differs from line {other.number}, which is of the same run {each.line.run}"
            yield BadLine(each.path, each.number, why)
