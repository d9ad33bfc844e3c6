"""Hands each planned event to a free user at the moment it is due.

Open loop: the times come from the plan and the releases alone. When all users
are busy an event waits and is sent late, and its lateness is on record; it never
delays the due times of those after it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gevent
from gevent.queue import Queue

from loaddriver.load.files import Control
from loaddriver.plan.records import LoadEvent

# An answer may take this long before an event is late for want of a free user: as long as the load
# waits for one at all. A slow API server must not slow the load down, or it hides its slowness.
_REQUEST_TIMEOUT_SECONDS = 30
# One that waits costs little: a greenlet, and a connection while it is used.
_MIN_USERS, _MAX_USERS = 24, 1024


def users_for(events: Sequence[LoadEvent]) -> int:
    """How many users a plan needs, by the busiest time of its steps that is as long as an answer
    may take.
    """
    busy = Counter(
        (event.step, int(event.offset_seconds // _REQUEST_TIMEOUT_SECONDS)) for event in events
    )
    # The busiest time may lie across the border of two.
    needed = 2 * max(busy.values(), default=0)
    return min(max(needed, _MIN_USERS), _MAX_USERS)


@dataclass(frozen=True)
class DueEvent:
    """An event and the Unix time it is due."""

    event: LoadEvent
    at: float


class Dispatcher:
    """The queue between the released steps and the users that send."""

    def __init__(self, events: Sequence[LoadEvent], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps: dict[int, list[LoadEvent]] = defaultdict(list)
        for event in events:
            self._steps[event.step].append(event)
        self._released: set[int] = set()
        self._ready: Queue[DueEvent] = Queue()
        self._sending = 0

    @property
    def idle(self) -> bool:
        """Whether no user is sending."""
        return self._sending == 0

    def follow(self, control: Control) -> None:
        """Starts the steps that `control` releases and that are not running yet."""
        for step, at in control.released_at.items():
            number = int(step)
            if number not in self._released:
                self._released.add(number)
                gevent.spawn(self._feed, self._steps[number], at)

    def play_next(self, send: Callable[[DueEvent], None]) -> None:
        """Waits for the next due event and has it sent."""
        due = self._ready.get()
        self._sending += 1
        try:
            send(due)
        finally:
            self._sending -= 1

    def _feed(self, events: Sequence[LoadEvent], released_at: float) -> None:
        for event in events:
            at = released_at + event.offset_seconds
            gevent.sleep(max(0.0, at - self._clock()))
            self._ready.put(DueEvent(event, at))
