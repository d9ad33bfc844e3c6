"""Divides the requests of a plan among the workers that play it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loaddriver.plan.records import SETUP_STEP, ChurnEvent, LoadEvent

ObjectKey = tuple[int, str]
"""The number of a cluster, and the name of an object there."""


def divide(events: Sequence[LoadEvent], workers: int) -> list[list[LoadEvent]]:
    """The share of each worker, in the plan's order; equal plans give equal shares.

    Each event is in exactly one share. All events of an object are in the same one, so that they
    stay in order. The set-up, whose objects need each other, is the first worker's.
    """
    sizes = Counter(object_of(event) for event in events)
    shares: list[list[LoadEvent]] = [[] for _ in range(workers)]
    given, owners = [0] * workers, dict[ObjectKey, int]()
    for event in events:
        key = object_of(event)
        if key not in owners:
            owners[key] = 0 if event.step == SETUP_STEP else given.index(min(given))
            given[owners[key]] += sizes[key]
        shares[owners[key]].append(event)
    return shares


def object_of(event: LoadEvent) -> ObjectKey:
    """The object that an event is about; of a churned pod it is its workload."""
    return event.cluster, event.workload if isinstance(event, ChurnEvent) else event.name
