"""The stories of machines, as the shards write them: one JSON line per event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

_ACQUIRING = frozenset({"bootstrap", "provision"})
_PREEMPTING = "preempt"
_TAKING = frozenset({"reclaim", _PREEMPTING})
_LEAVING = "DRAINING"
_ENDING = frozenset({_LEAVING, "DELETING", "FAILED"})
_BOOTING = "CONFIGURING"


class Event(msgspec.Struct, frozen=True):
    """A line of a journal; times are in seconds since 1970.

    `decided` is when the order that the line speaks of was decided: together with the machine it
    names one choice, because a machine has at most one order at a time. `cluster` is where the
    machine goes or is taken from, `claimant` the one whose need it was chosen for. `grace` is how
    many seconds the pods of a machine that is taken have to leave.
    """

    at: float
    event: str
    machine: str = ""
    state: str = ""
    action: str = ""
    cluster: str = ""
    claimant: str = ""
    decided: float | None = None
    grace: float | None = None

    @property
    def at_micros(self) -> int:
        """The moment in whole microseconds."""
        return round(self.at * 1e6)

    def chooses_for(self, cluster: str) -> bool:
        """Whether it says that the machine was chosen to serve `cluster`, be it by taking it from
        another need.
        """
        taken = self.takes and self.claimant == cluster
        acquired = self.action.casefold() in _ACQUIRING and self.cluster == cluster
        return self.event == "decided" and (taken or acquired)

    @property
    def takes(self) -> bool:
        """Whether it speaks of a machine that is taken away from whom it serves."""
        return self.action.casefold() in _TAKING

    @property
    def preempts(self) -> bool:
        """Whether it is the decision to take a machine from a need that still counts it."""
        return self.event == "decided" and self.action.casefold() == _PREEMPTING


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

    def acquisition(
        self, machine: str, cluster: str, after_micros: int, joined_micros: int
    ) -> Acquisition:
        """How the machine came to join `cluster` as a Node at `joined_micros`.

        Only what happened after `after_micros` counts, which is when it last joined there before: a
        machine that serves twice is chosen twice, and what another cluster chose it for is none of
        this one's. The shard hears of states late; that a Node exists proves that its machine has
        begun to boot.
        """
        story = [e for e in self.stories.get(machine, ()) if e.at_micros > after_micros]
        choice = _choice([e for e in story if e.at_micros <= joined_micros], cluster)
        if choice is None:
            return Acquisition(None, None)
        began = [
            event.at_micros
            for event in story
            if event.at_micros >= choice.at_micros and event.state == _BOOTING
        ]
        return Acquisition(choice.at_micros, min(began[0], joined_micros) if began else None)


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


def _choice(story: Sequence[Event], cluster: str) -> Event | None:
    """The first choice for the cluster, of those after the machine last left another service, that
    stood; of choices that all failed, the last one.
    """
    choices: list[Event] = []
    for event in story:
        if event.chooses_for(cluster):
            choices.append(event)
        elif event.state in _ENDING and not (event.state == _LEAVING and _taken(choices)):
            choices.clear()
    failed = {each.decided for each in story if each.event == "order-failed"} - {None}
    standing = [each for each in choices if each.decided not in failed]
    return next(iter(standing or choices[-1:]), None)


def _taken(choices: Sequence[Event]) -> bool:
    """Whether the machine leaves because it was chosen, and is on its way all the same."""
    return bool(choices) and choices[-1].takes


def _changes(story: Sequence[Event]) -> Iterable[tuple[str, str]]:
    states = [event.state for event in story if event.event == "state" and event.state]
    return ((old, new) for old, new in pairwise(["", *states]) if old != new)
