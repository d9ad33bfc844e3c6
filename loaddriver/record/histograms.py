"""Histograms in the metrics of a process: exact sums and counts, narrow quantiles. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.metrics_core import Metric

_PREFIX, _UNIT = "bigfleet_", "_seconds"
_OPTIONAL = "_duration"
Series = tuple[str, str]
"""The name of a histogram, and the value of its label, if it has one."""


@dataclass(frozen=True)
class Histogram:
    """Counts by upper bound, cumulative, and the exact number and sum of all observations."""

    count: float = 0.0
    sum_seconds: float = 0.0
    buckets: Mapping[float, float] = field(default_factory=dict)

    def __add__(self, other: Histogram) -> Histogram:
        bounds = {*self.buckets, *other.buckets}
        return Histogram(
            self.count + other.count,
            self.sum_seconds + other.sum_seconds,
            {bound: self.buckets.get(bound, 0) + other.buckets.get(bound, 0) for bound in bounds},
        )

    def since(self, before: Histogram) -> Histogram:
        """What was observed after `before`; all of it if the process has been restarted."""
        if before.count > self.count:
            return self
        return Histogram(
            self.count - before.count,
            self.sum_seconds - before.sum_seconds,
            {bound: n - before.buckets.get(bound, 0) for bound, n in self.buckets.items()},
        )

    def quantile(self, level: float) -> float | None:
        """A quantile, interpolated between the bounds of its bucket.

        None without observations, and if it lies beyond the last finite bound.
        """
        rank, lower, below = level * self.buckets.get(math.inf, 0.0), 0.0, 0.0
        for bound, count in sorted(self.buckets.items()):
            if 0 < rank <= count:
                share = (rank - below) / (count - below)
                return _between(lower, bound, share) if math.isfinite(bound) else None
            lower, below = bound, count
        return None

    def numbers(self) -> dict[str, float | None]:
        """The numbers for the summary."""
        return {
            "count": self.count,
            "sumSeconds": self.sum_seconds,
            "meanSeconds": self.sum_seconds / self.count if self.count else None,
            "p50Seconds": self.quantile(0.5),
            "p90Seconds": self.quantile(0.9),
            "p99Seconds": self.quantile(0.99),
        }


def histograms(families: Iterable[Metric]) -> dict[Series, Histogram]:
    """The histograms of durations among a process's metrics."""
    found: defaultdict[Series, Histogram] = defaultdict(Histogram)
    for family in families:
        if family.type != "histogram" or not family.name.endswith(_UNIT):
            continue
        for sample in family.samples:
            label = "".join(value for key, value in sample.labels.items() if key != "le")
            found[family.name, label] += _sample(sample.name, sample.labels, sample.value)
    return dict(found)


def summed(parts: Iterable[Mapping[Series, Histogram]]) -> dict[Series, Histogram]:
    """The histograms of several processes as one."""
    total: defaultdict[Series, Histogram] = defaultdict(Histogram)
    for part in parts:
        for series, histogram in part.items():
            total[series] += histogram
    return dict(total)


def numbers(found: Mapping[Series, Histogram]) -> dict[str, Any]:
    """The numbers of all histograms that observed anything, by name and then by label."""
    result: dict[str, Any] = {}
    for (name, label), histogram in found.items():
        if histogram.count:
            place = result.setdefault(_key(name), {}) if label else result
            place[label or _key(name)] = histogram.numbers()
    return result


def _sample(name: str, labels: Mapping[str, str], value: float) -> Histogram:
    if name.endswith("_bucket"):
        return Histogram(buckets={float(labels["le"]): value})
    if name.endswith("_count"):
        return Histogram(count=value)
    return Histogram(sum_seconds=value if name.endswith("_sum") else 0.0)


def _between(lower: float, upper: float, share: float) -> float:
    """Geometric, as bounds grow; linear from 0."""
    return lower * (upper / lower) ** share if lower > 0 else upper * share


def _key(name: str) -> str:
    """`bigfleet_shard_cycle_duration_seconds` is shardCycle."""
    words = name.removeprefix(_PREFIX).removesuffix(_UNIT).removesuffix(_OPTIONAL).split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])
