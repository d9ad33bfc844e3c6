"""Runs of one machine by revision, for drawing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from loaddriver.history.record import Line

_DIGITS = 9


@dataclass(frozen=True)
class Revision:
    """A revision and its valid runs; `dirty` ones are of checkouts with changes."""

    name: str
    dirty: bool
    began_unix_seconds: float
    runs: tuple[Line, ...]
    invalid: int

    @property
    def label(self) -> str:
        """The revision in short, with a mark for changes."""
        return f"{self.name[:_DIGITS] or 'unknown'}{'+' if self.dirty else ''}"

    def values(self, endpoint: str) -> list[float]:
        """An endpoint's value in each run that has it."""
        found = (run.endpoints.get(endpoint) for run in self.runs)
        return [each for each in found if each is not None]

    def median(self, endpoint: str) -> float | None:
        """An endpoint's median over the runs; None if none has it."""
        values = self.values(endpoint)
        return median(values) if values else None


def by_revision(lines: Sequence[Line]) -> list[Revision]:
    """The revisions of these runs, in the order of their first runs."""
    groups: dict[tuple[str, bool], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.revision, line.dirty is not False), []).append(line)
    return [
        Revision(
            name=name,
            dirty=dirty,
            began_unix_seconds=runs[0].started_unix_seconds,
            runs=tuple(run for run in runs if run.is_valid),
            invalid=sum(not run.is_valid for run in runs),
        )
        for (name, dirty), runs in groups.items()
    ]


def speeds(lines: Sequence[Line]) -> list[tuple[Line, ...]]:
    """The runs by the machine's calibration: each group matches its first run."""
    groups: list[list[Line]] = []
    for line in lines:
        for group in groups:
            if group[0].machine.matches(line.machine):
                group.append(line)
                break
        else:
            groups.append([line])
    return [tuple(group) for group in groups]
