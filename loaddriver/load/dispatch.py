"""Dispatches each planned event to a free user when it is due.

The load is an open loop: due times follow from the plan and the releases alone. If all users are
busy, an event is sent late and its lateness is recorded; later events keep their due times.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gevent
from gevent.pool import Group
from gevent.queue import Queue

from loaddriver.load.files import Control, StepReleased
from loaddriver.plan.records import LoadEvent

# The request timeout. There are enough users for every response to take this long, so that a slow
# API server does not slow the load down, which would hide its slowness.
_REQUEST_TIMEOUT_SECONDS = 30
DRAIN_TIMEOUT_SECONDS = 5.0
"""How long requests that were sent have to be answered once the load is to stop."""
# An idle user costs only a greenlet.
_MIN_USERS, _MAX_USERS = 24, 1024
_POLL_SECONDS = 0.05


def users_for(events: Sequence[LoadEvent]) -> int:
    """The number of users a plan needs, by the busiest window of one request timeout."""
    busy = Counter(
        (event.step, int(event.offset_seconds // _REQUEST_TIMEOUT_SECONDS)) for event in events
    )
    # The busiest window may straddle two of those counted.
    needed = 2 * max(busy.values(), default=0)
    return min(max(needed, _MIN_USERS), _MAX_USERS)


@dataclass(frozen=True)
class DueEvent:
    """An event and its due time in Unix seconds."""

    event: LoadEvent
    at: float


class Dispatcher:
    """The queue between released steps and users."""

    def __init__(self, events: Sequence[LoadEvent], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps: dict[int, list[LoadEvent]] = defaultdict(list)
        for event in events:
            self._steps[event.step].append(event)
        self._released: set[int] = set()
        self._feeders = Group()
        self._ready: Queue[DueEvent] = Queue()
        self._sending = 0

    @property
    def idle(self) -> bool:
        """Whether no user is sending."""
        return self._sending == 0

    def follow(self, control: Control) -> list[StepReleased]:
        """Start the steps newly released by `control`, and return them."""
        fresh = [each for each in control.releases if each.step not in self._released]
        for release in fresh:
            self._released.add(release.step)
            self._feeders.spawn(self._feed, self._steps[release.step], release)
        return fresh

    def drain(self) -> None:
        """Wait until all responses have arrived or timed out; then send nothing more."""
        began = time.monotonic()
        while not self.idle and time.monotonic() - began < DRAIN_TIMEOUT_SECONDS:
            gevent.sleep(_POLL_SECONDS)
        self._feeders.kill()
        while not self._ready.empty():
            self._ready.get_nowait()

    def play_next(self, send: Callable[[DueEvent], None]) -> None:
        """Wait for the next due event and send it."""
        due = self._ready.get()
        self._sending += 1
        try:
            send(due)
        finally:
            self._sending -= 1

    def _feed(self, events: Sequence[LoadEvent], release: StepReleased) -> None:
        for event in events:
            at = release.due(event.offset_seconds)
            gevent.sleep(max(0.0, at - self._clock()))
            self._ready.put(DueEvent(event, at))
