"""What happened in a simulated world, readable and the same on every run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bigfleet.api.journal import JournalEvent
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.records.journal import Journal
from bigfleet.simulation.runtime.loop import START_UNIX_SECONDS

# Not part of the story: fingerprints would change with any field of a profile.
_OMITTED_FIELDS = ("need", "sequence", "decided")


class StoryEvent(NamedTuple):
    """One event, `at_seconds` after the start."""

    at_seconds: float
    event: str
    fields: Mapping[str, object]

    def text(self, *left_out: str) -> str:
        """The event and its fields, without those `left_out`."""
        parts = [
            f"{k}={v}" for k, v in self.fields.items() if k not in (*_OMITTED_FIELDS, *left_out)
        ]
        return " ".join((self.event, *parts))


class Story(Journal):
    """The shard's journal and the simulation's own events.

    `last_move_seconds` is when a machine or an order last moved, in Unix time. What a shard tells
    about needs moves nothing: a need may be short by one way of packing and served by another.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(None, clock)
        self._now = clock
        self.events: list[StoryEvent] = []
        self.last_move_seconds = 0.0

    def note(self, event: JournalEvent, **fields: Any) -> None:
        """Record an event of the shard."""
        super().note(event, **fields)
        self.record_from_shard(event, fields)

    def record_from_shard(self, event: str, fields: Mapping[str, object]) -> None:
        """Add an event that a shard has recorded."""
        if not event.startswith(("rollup", "need")):
            self.last_move_seconds = self._now.unix_seconds()
        self.record(event, **{name: v for name, v in fields.items() if v not in (None, "")})

    def shard_journal(self, shard: str) -> Journal:
        """The journal of one of several shards; its events name the shard."""
        return _ShardJournal(self, shard, self._now)

    def record(self, event: str, **fields: object) -> None:
        """Add an event of the simulation."""
        self.events.append(StoryEvent(self._now.unix_seconds() - START_UNIX_SECONDS, event, fields))

    def lines(self) -> Iterator[str]:
        """One line for each event."""
        return (f"{entry.at_seconds:10.2f} {entry.text()}" for entry in self.events)

    def digest(self) -> str:
        """16 hexadecimal digits, equal for equal stories."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()[:16]


class _ShardJournal(Journal):
    def __init__(self, story: Story, shard: str, clock: Clock) -> None:
        super().__init__(None, clock)
        self._story, self._shard = story, shard

    def note(self, event: JournalEvent, **fields: Any) -> None:
        super().note(event, **fields)
        self._story.record_from_shard(event, {**fields, "shard": self._shard})
