"""How well replicas followed the load: how long changes took, and what was missing then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loaddriver.federated.course import Course, Need
from loaddriver.federated.record import Sample


@dataclass(frozen=True)
class Episode:
    """From `at` until `until` (seconds since the begin) a cluster had to come to `need`.

    `up` says that it had too few replicas, else it had too many. `seconds` is how long it took,
    None if it was not there before the need changed again.
    """

    cluster: str
    at: float
    until: float
    need: Need
    up: bool
    seconds: float | None


@dataclass(frozen=True)
class ReplicaSeconds:
    """Replicas times seconds: needed at least, and missing or too many."""

    needed: float
    under: float
    over: float


def episodes(course: Course, samples: Sequence[Sample], began_at: float) -> list[Episode]:
    """Each change of a cluster's need that asked for other replicas than there were."""
    seen = [(sample.at - began_at, sample.ready) for sample in samples if sample.at >= began_at]
    end = course.spans[-1].end
    return [
        episode
        for cluster in course.clusters
        for at, until, need in _needs(course, cluster, end)
        if (episode := _episode(cluster, at, until, need, seen)) is not None
    ]


def _needs(course: Course, cluster: str, end: float) -> Iterator[tuple[float, float, Need]]:
    """From when to when which need held; changes that leave it as it was begin nothing."""
    moments: list[tuple[float, Need]] = []
    for change in course.changes:
        need = course.needs(change.cores)[cluster]
        if not moments or moments[-1][1] != need:
            moments.append((change.at, need))
    for (at, need), (until, _) in pairwise([*moments, (end, Need(0, 0))]):
        yield at, until, need


def _episode(
    cluster: str,
    at: float,
    until: float,
    need: Need,
    seen: Sequence[tuple[float, Mapping[str, int]]],
) -> Episode | None:
    during = [(moment, ready[cluster]) for moment, ready in seen if at <= moment < until]
    if not during or need.low <= during[0][1] <= need.high:
        return None
    there = (moment - at for moment, ready in during if need.low <= ready <= need.high)
    return Episode(cluster, at, until, need, during[0][1] < need.low, next(there, None))


def replica_seconds(
    course: Course, samples: Sequence[Sample], began_at: float, begin: float, end: float
) -> ReplicaSeconds:
    """Over all clusters, from `begin` to `end` of the course."""
    needed = under = over = 0.0
    for sample, following in pairwise(samples):
        moment = sample.at - began_at
        if not begin <= moment < end:
            continue
        seconds = following.at - sample.at
        for cluster, need in course.needs(course.cores_at(moment)).items():
            ready = sample.ready[cluster]
            needed += seconds * need.low
            under += seconds * max(0, need.low - ready)
            over += seconds * max(0, ready - need.high)
    return ReplicaSeconds(needed, under, over)
