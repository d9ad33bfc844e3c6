"""The scaling response: how long replicas took to follow the load, and what was missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loaddriver.fedhpa.load_schedule import LoadSchedule, ReplicaBounds
from loaddriver.fedhpa.record import Sample


@dataclass(frozen=True)
class LoadChange:
    """A change of a cluster's need, which holds from `at` until `until`, in seconds since start.

    `up`: it had too few replicas, else too many. `seconds` is how long it took to reach the need,
    None if it did not before the need changed again.
    """

    cluster: str
    at: float
    until: float
    need: ReplicaBounds
    up: bool
    seconds: float | None


@dataclass(frozen=True)
class ReplicaSeconds:
    """Replica-seconds: needed, missing and in excess."""

    needed: float
    under: float
    over: float


def load_changes(
    schedule: LoadSchedule, samples: Sequence[Sample], began_at: float
) -> list[LoadChange]:
    """Each change of a cluster's need that required scaling."""
    seen = [(sample.at - began_at, sample.ready) for sample in samples if sample.at >= began_at]
    end = schedule.phase_windows[-1].end
    return [
        load_change
        for cluster in schedule.clusters
        for at, until, need in _needs(schedule, cluster, end)
        if (load_change := _load_change(cluster, at, until, need, seen)) is not None
    ]


def _needs(
    schedule: LoadSchedule, cluster: str, end: float
) -> Iterator[tuple[float, float, ReplicaBounds]]:
    """The periods of constant need."""
    moments: list[tuple[float, ReplicaBounds]] = []
    for change in schedule.changes:
        need = schedule.replica_bounds(change.cores)[cluster]
        if not moments or moments[-1][1] != need:
            moments.append((change.at, need))
    for (at, need), (until, _) in pairwise([*moments, (end, ReplicaBounds(0, 0))]):
        yield at, until, need


def _load_change(
    cluster: str,
    at: float,
    until: float,
    need: ReplicaBounds,
    seen: Sequence[tuple[float, Mapping[str, int]]],
) -> LoadChange | None:
    during = [(moment, ready[cluster]) for moment, ready in seen if at <= moment < until]
    if not during or need.low <= during[0][1] <= need.high:
        return None
    there = (moment - at for moment, ready in during if need.low <= ready <= need.high)
    return LoadChange(cluster, at, until, need, during[0][1] < need.low, next(there, None))


def replica_seconds(
    schedule: LoadSchedule, samples: Sequence[Sample], began_at: float, begin: float, end: float
) -> ReplicaSeconds:
    """Replica-seconds of all clusters, from `begin` to `end`."""
    needed = under = over = 0.0
    for sample, following in pairwise(samples):
        moment = sample.at - began_at
        if not begin <= moment < end:
            continue
        seconds = following.at - sample.at
        for cluster, need in schedule.replica_bounds(schedule.cores_at(moment)).items():
            ready = sample.ready[cluster]
            needed += seconds * need.low
            under += seconds * max(0, need.low - ready)
            over += seconds * max(0, ready - need.high)
    return ReplicaSeconds(needed, under, over)
