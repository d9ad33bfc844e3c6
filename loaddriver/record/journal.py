"""The stories of machines, as the shards write them: one JSON line per event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

_ACQUIRING = frozenset({"bootstrap", "provision"})
_ENDING = frozenset({"DRAINING", "DELETING", "FAILED"})
_BOOTING = "CONFIGURING"


class Event(msgspec.Struct, frozen=True):
    """A line of a journal; `at` is in seconds since 1970."""

    at: float
    event: str
    machine: str = ""
    state: str = ""
    kind: str = ""

    @property
    def at_micros(self) -> int:
        """The moment in whole microseconds."""
        return round(self.at * 1e6)


@dataclass(frozen=True)
class Acquisition:
    """When a machine was chosen, and when it began to boot into its cluster."""

    decided_micros: int | None
    provisioned_micros: int | None


@dataclass(frozen=True)
class Journal:
    """All machines' events in order of time, and how many lines could not be read."""

    stories: Mapping[str, Sequence[Event]]
    undecodable: int

    def acquisition(self, machine: str, after_micros: int, joined_micros: int) -> Acquisition:
        """How the machine came to join as a Node at `joined_micros`.

        Only what happened after `after_micros` counts, which is when it last joined before: a
        machine that serves twice is chosen twice. The shard hears of states late; that a Node
        exists proves that its machine has begun to boot.
        """
        story = [e for e in self.stories.get(machine, ()) if e.at_micros > after_micros]
        past = [event for event in story if event.at_micros <= joined_micros]
        ended = max((e.at_micros for e in past if e.state in _ENDING), default=after_micros)
        decided = _first(
            e for e in past if e.at_micros >= ended and e.event == "decided" and _acquires(e)
        )
        if decided is None:
            return Acquisition(None, None)
        booting = _first(e for e in story if e.at_micros >= decided and e.state == _BOOTING)
        return Acquisition(decided, None if booting is None else min(booting, joined_micros))


@dataclass(frozen=True)
class MachineCounts:
    """How many machines joined a cluster, came into being and were given back, over a run."""

    configured: int
    created: int
    deleted: int


def count_machines(journal: Journal) -> MachineCounts:
    """Counted by changes of state, each from what its machine was before."""
    ends = [
        (before, after) for story in journal.stories.values() for before, after in _changes(story)
    ]
    return MachineCounts(
        configured=sum(after == "CONFIGURED" for _, after in ends),
        created=sum(before == "CREATING" and after != "FAILED" for before, after in ends),
        deleted=sum(before == "DELETING" and after != "FAILED" for before, after in ends),
    )


def read_journals(paths: Sequence[Path]) -> Journal:
    """The journals of all shards as one; a shard that never decided has left no file."""
    decoder = msgspec.json.Decoder(Event)
    stories: defaultdict[str, list[Event]] = defaultdict(list)
    undecodable = 0
    for line in _lines(paths):
        try:
            event = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            undecodable += 1
            continue
        if event.machine:
            stories[event.machine].append(event)
    for story in stories.values():
        story.sort(key=lambda event: event.at)
    return Journal(dict(stories), undecodable)


def _lines(paths: Sequence[Path]) -> Iterable[bytes]:
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                yield from (line for line in file if line.strip())


def _acquires(event: Event) -> bool:
    return event.kind.casefold() in _ACQUIRING


def _first(events: Iterable[Event]) -> int | None:
    return next((event.at_micros for event in events), None)


def _changes(story: Sequence[Event]) -> Iterable[tuple[str, str]]:
    states = [event.state for event in story if event.event == "state" and event.state]
    previous = ["", *states[:-1]]
    return ((old, new) for old, new in zip(previous, states, strict=True) if old != new)
