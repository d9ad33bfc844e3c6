"""The shards' journals of roll-ups and machine events: one JSON line per event."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from bigfleet.api.journal import JournalEvent, JournalLine
from loaddriver.record.audit import Name

_BUYING = "provision"
_ACQUIRING = frozenset({"bootstrap", _BUYING})
_PREEMPTING = "preempt"
_TAKING = frozenset({"reclaim", _PREEMPTING})
_LEAVING = "DRAINING"
_ENDING = frozenset({_LEAVING, "DELETING", "FAILED"})
_BOOTING = "CONFIGURING"
# What is added by a roll-up that is held or valid in part counts from then on.
_RECEIVED = frozenset(
    {
        JournalEvent.ROLLUP_ACCEPTED,
        JournalEvent.ROLLUP_ACCEPTED_IN_PART,
        JournalEvent.ROLLUP_HELD,
    }
)


class Event(JournalLine, frozen=True):
    """A line of a journal, and what it means for a run."""

    @property
    def at_micros(self) -> int:
        """The time in whole microseconds."""
        return round(self.at * 1e6)

    @property
    def reached(self) -> str:
        """The state that the machine reached; "" for other events."""
        return self.state if self.event == JournalEvent.STATE else ""

    def chooses_for(self, cluster: str) -> bool:
        """Whether the machine was chosen to serve `cluster`, possibly by preemption."""
        taken = self.takes and self.claimant == cluster
        acquired = self.action.casefold() in _ACQUIRING and self.cluster == cluster
        return self.event == JournalEvent.DECIDED and (taken or acquired)

    @property
    def takes(self) -> bool:
        """Whether the machine is taken from the cluster that it serves."""
        return self.action.casefold() in _TAKING

    @property
    def buys(self) -> bool:
        """Whether it is the decision to create the machine."""
        return self.event == JournalEvent.DECIDED and self.action.casefold() == _BUYING

    @property
    def preempts(self) -> bool:
        """Whether it is the decision to preempt the machine."""
        return self.event == JournalEvent.DECIDED and self.action.casefold() == _PREEMPTING


@dataclass(frozen=True)
class Acquisition:
    """When a machine was chosen, and when it began to boot into its cluster."""

    decided_micros: int | None
    provisioned_micros: int | None


class RollUp(NamedTuple):
    """A roll-up that a shard received: when its operator built it, by the operator's clock, when it
    was accepted, by the shard's, and how many requests the operator had observed, 0 if unknown.
    """

    built_micros: int
    accepted_micros: int
    requests: int = 0


@dataclass(frozen=True)
class Journal:
    """All machines' events in order of time, each cluster's roll-ups in the order in which they
    were built, and how many lines could not be read.
    """

    stories: Mapping[str, Sequence[Event]]
    undecodable: int
    rollups: Mapping[str, Sequence[RollUp]] = field(default_factory=dict)

    def request_numbers(self, cluster: str, created: Mapping[Name, int]) -> dict[Name, int]:
        """The numbers by which roll-ups count the cluster's requests, which have these times of
        creation in microseconds; those from before are in the last roll-up before the first.

        Empty if a roll-up has no count, or a lower one than the last: a restarted operator counts
        anew.
        """
        rollups = self.rollups.get(cluster, ())
        counts = [each.requests for each in rollups]
        if not counts or not counts[-1] or any(a > b for a, b in pairwise(counts)):
            return {}
        first = min(created.values(), default=0)
        before = max((each.requests for each in rollups if each.built_micros < first), default=0)
        ordered = sorted(created, key=created.__getitem__)
        return {name: number for number, name in enumerate(ordered, before + 1)}

    def roll_up_with(
        self,
        cluster: str,
        requested_micros: int | None,
        reported_micros: int | None,
        number: int | None = None,
    ) -> RollUp | None:
        """The roll-up with which a shard first learned of a request; None if unknown.

        An operator sends one roll-up at a time: the one that it reported as accepted at
        `reported_micros` is the last that it had built before. A request without such a report,
        to which `request_numbers` gives that `number`, is in the first that counts as many. Without
        either it is taken to be in the first that was built after the request existed, although its
        operator may have observed it later.
        """
        rollups = self.rollups.get(cluster, ())
        if reported_micros is not None:
            position = bisect_right(rollups, reported_micros, key=_built) - 1
        elif number is not None:
            position = bisect_left(rollups, number, key=_requests)
        elif requested_micros is not None:
            position = bisect_left(rollups, requested_micros, key=_built)
        else:
            return None
        return rollups[position] if 0 <= position < len(rollups) else None

    def acquisition(
        self, machine: str, cluster: str, after_micros: int, joined_micros: int
    ) -> Acquisition:
        """How the machine came to join `cluster` as a Node at `joined_micros`.

        Only events after `after_micros`, its previous joining of that cluster, count: a machine
        that serves twice is chosen twice. The shard observes states late; the existence of a Node
        proves that its machine has begun to boot.
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
    """Numbers of machines that joined a cluster, were created and were deleted in a run."""

    configured: int
    created: int
    deleted: int


def count_machines(journal: Journal) -> MachineCounts:
    """Count state transitions."""
    ends = [
        (before, after) for story in journal.stories.values() for before, after in _changes(story)
    ]
    return MachineCounts(
        configured=sum(after == "CONFIGURED" for _, after in ends),
        created=sum(before == "CREATING" and after != "FAILED" for before, after in ends),
        deleted=sum(before == "DELETING" and after != "FAILED" for before, after in ends),
    )


def read_journals(paths: Sequence[Path]) -> Journal:
    """The merged journals of all shards; a shard without decisions has no file."""
    decoder = msgspec.json.Decoder(Event)
    stories: defaultdict[str, list[Event]] = defaultdict(list)
    rollups: defaultdict[str, list[RollUp]] = defaultdict(list)
    undecodable = 0
    for line in _lines(paths):
        try:
            event = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            undecodable += 1
            continue
        if event.machine:
            stories[event.machine].append(event)
        elif event.event in _RECEIVED and event.sequence:
            received = RollUp(event.sequence // 1000, event.at_micros, event.requests)
            rollups[event.cluster].append(received)
    for story in stories.values():
        story.sort(key=lambda event: event.at)
    for of_cluster in rollups.values():
        of_cluster.sort()
    return Journal(dict(stories), undecodable, dict(rollups))


def _built(rollup: RollUp) -> int:
    return rollup.built_micros


def _requests(rollup: RollUp) -> int:
    return rollup.requests


def _lines(paths: Sequence[Path]) -> Iterable[bytes]:
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                yield from (line for line in file if line.strip())


def _choice(story: Sequence[Event], cluster: str) -> Event | None:
    """The first choice for the cluster since the machine last left another one that did not fail;
    if all failed, the last one.
    """
    choices: list[Event] = []
    for event in story:
        if event.chooses_for(cluster):
            choices.append(event)
        elif event.state in _ENDING and not (event.state == _LEAVING and _taken(choices)):
            choices.clear()
    failed = _failed(story)
    standing = [each for each in choices if each.decided not in failed]
    return next(iter(standing or choices[-1:]), None)


def takings(story: Sequence[Event]) -> list[Event]:
    """The decisions to take the machine from its cluster that did not fail, or not yet."""
    failed = _failed(story)
    return [
        event
        for event in story
        if event.event == JournalEvent.DECIDED and event.takes and event.decided not in failed
    ]


def _failed(story: Sequence[Event]) -> set[float]:
    """When the orders that failed were decided."""
    found = {event.decided for event in story if event.event == JournalEvent.ORDER_FAILED}
    return {decided for decided in found if decided is not None}


def _taken(choices: Sequence[Event]) -> bool:
    """Whether the machine leaves its cluster for the one that chose it."""
    return bool(choices) and choices[-1].takes


def _changes(story: Sequence[Event]) -> Iterable[tuple[str, str]]:
    states = [event.reached for event in story if event.reached]
    return ((old, new) for old, new in pairwise(["", *states]) if old != new)
