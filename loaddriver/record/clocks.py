"""Clocks that disagree: the lag of the harness's watches behind the API servers' logs, and offsets
between the clocks of the load, the API servers and the shards.

One event between two others of another clock bounds the offset of its own: an API server receives a
request after it was sent and has answered it before the answer arrives. So every exchange proves an
interval, and all together a narrow one. If it holds 0, the clocks may agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from loaddriver.load.files import EventResult
from loaddriver.load.workers import WorkerRecord
from loaddriver.plan.records import CreateEvent, LoadEvent
from loaddriver.record.journal import Journal
from loaddriver.record.losses import resource_and_namespace
from loaddriver.record.recorder import Observations


def receipt_lags_seconds(observed: Sequence[Observations]) -> list[float]:
    """Receipt by watch minus the log's timestamp, for every creation and binding in both.

    Negative if a watch was faster than the log's completion of the request.
    """
    return [lag / 1e6 for each in observed for lag in _lags_micros(each)]


def _lags_micros(observed: Observations) -> Iterator[int]:
    if observed.audit is None:
        return
    bound = {binding.uid: binding.at_micros for binding in reversed(observed.audit.bindings)}
    for uid, observation in observed.watch.pods.items():
        created = observed.audit.pods.get(uid)
        if created is not None:
            yield observation.created_micros - created.at_micros
        if observation.bound_micros is not None and uid in bound:
            yield observation.bound_micros - bound[uid]


def largest_clock_offset_seconds(
    events: Iterable[LoadEvent],
    results: Iterable[EventResult],
    observed: Sequence[Observations],
    journal: Journal | None,
    workers: Iterable[WorkerRecord] = (),
) -> float | None:
    """The largest offset that the recording proves; None if nothing could be compared.

    `observed` is in the order of the plan's cluster numbers; `workers` played the load.
    """
    offsets = [
        *_api_servers_to_load(events, results, observed),
        *(_shards_to_operators(observed, journal) if journal else ()),
    ]
    proven = [_proven_seconds(each) for each in offsets]
    of_workers = (worker.proven_clock_offset_seconds for worker in workers)
    proven += (seconds for seconds in of_workers if seconds is not None)
    return max(proven, default=None)


def _proven_seconds(bounds: Sequence[tuple[int, int]]) -> float:
    """The least offset within all bounds, in seconds; 0 if the clocks may agree."""
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    return max(0, low, -high) / 1e6


def _api_servers_to_load(
    events: Iterable[LoadEvent], results: Iterable[EventResult], observed: Sequence[Observations]
) -> Iterator[list[tuple[int, int]]]:
    """For each API server and worker of the load, the bounds on its clock minus the worker's."""
    created = {event.id: event for event in events if isinstance(event, CreateEvent)}
    bounds: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for result in results:
        event = created.get(result.id)
        log = observed[result.cluster].audit if event else None
        if event is None or log is None or result.attempts != 1:
            continue
        resource, namespace = resource_and_namespace(event)
        span = log.load_creations.get((f"create {resource}", (namespace, event.name)))
        if span is not None:
            received, answered = span
            bound = answered - round(result.done * 1e6), received - round(result.sent * 1e6)
            bounds[result.cluster, result.worker].append(bound)
    yield from bounds.values()


def _shards_to_operators(
    observed: Sequence[Observations], journal: Journal
) -> Iterator[list[tuple[int, int]]]:
    """For each cluster, the bounds on its shard's clock minus its operator's."""
    for each in observed:
        if each.audit is None:
            continue
        bounds: list[tuple[int, int]] = []
        for reported_micros in each.audit.accepted.values():
            rollup = journal.roll_up_with(each.cluster, None, reported_micros)
            if rollup is not None:
                accepted = rollup.accepted_micros
                bounds.append((accepted - reported_micros, accepted - rollup.built_micros))
        if bounds:
            yield bounds
