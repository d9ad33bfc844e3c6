"""Each cluster's bounds, desired and ready replicas, per second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from loaddriver.fedhpa.record import FederationRecord, Sample
from loaddriver.record.hpas import HpaWrite

T = TypeVar("T")


class ClusterSeries(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Values at each second since the start. `load` is the number of replicas needed at the HPA's
    target, `ready` the ready ones, `desired` the HPA's desired ones.
    """

    load: list[float]
    ready: list[int]
    desired: list[int]
    min: list[int]
    max: list[int]


def by_cluster(record: FederationRecord, writes: Sequence[HpaWrite]) -> dict[str, ClusterSeries]:
    """A series for each cluster, of the schedule's length."""
    return {name: _series(record, writes, name) for name in record.schedule.clusters}


def _series(record: FederationRecord, writes: Sequence[HpaWrite], cluster: str) -> ClusterSeries:
    schedule = record.schedule
    seconds = round(record.ended_at - record.began_at) + 1
    own = [write for write in writes if write.cluster == cluster]
    target = schedule.pod_cores * schedule.federation.target_percent / 100
    per_write = [(write.at_micros / 1e6, write) for write in own]
    per_sample = [(sample.at, sample) for sample in record.samples]

    def of_write(value: Callable[[HpaWrite], int]) -> list[int]:
        return [value(write) if write else 0 for write in _held(per_write, record, seconds)]

    sampled: list[Sample | None] = _held(per_sample, record, seconds)
    return ClusterSeries(
        load=[round(s.routed_load[cluster] / target, 1) if s else 0.0 for s in sampled],
        ready=[s.ready[cluster] if s else 0 for s in sampled],
        desired=of_write(lambda write: write.desired),
        min=of_write(lambda write: write.share.min if write.share else 0),
        max=of_write(lambda write: write.share.max if write.share else 0),
    )


def _held(
    moments: Sequence[tuple[float, T]], record: FederationRecord, seconds: int
) -> list[T | None]:
    """The last of `moments` at each second, None before the first."""
    held: list[T | None] = []
    position, last = 0, None
    for second in range(seconds):
        while position < len(moments) and moments[position][0] <= record.began_at + second:
            last = moments[position][1]
            position += 1
        held.append(last)
    return held
