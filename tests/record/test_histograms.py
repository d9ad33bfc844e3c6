"""Quantiles of BigFleet's own durations are within a fifth of the exact ones, not twice them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Recorded
from prometheus_client.parser import text_string_to_metric_families

from bigfleet.observe.metrics import shard_cycle_seconds
from loaddriver.record.histograms import Histogram, histograms

BOUNDS = shard_cycle_seconds._upper_bounds
NAME = "bigfleet_x_duration_seconds"


def recorded(seconds: list[float]) -> Histogram:
    """What the harness reads of a process that observed these durations."""
    registry = CollectorRegistry()
    histogram = Recorded(NAME, "x", registry=registry, buckets=BOUNDS)
    for each in seconds:
        histogram.observe(each)
    return histograms(text_string_to_metric_families(generate_latest(registry).decode()))[NAME, ""]


@given(
    st.lists(st.floats(0.002, 400), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_a_quantile_is_off_by_a_fifth_at_most(seconds: list[float], level: float) -> None:
    exact = float(np.quantile(seconds, level, method="inverted_cdf"))
    found = recorded(seconds).quantile(level)
    assert found is not None
    assert 1 / 1.2 <= found / exact <= 1.2


def test_sum_and_count_are_exact() -> None:
    numbers = recorded([0.1, 0.2, 0.4]).numbers()
    assert numbers["count"] == 3
    assert numbers["sumSeconds"] == pytest.approx(0.7, rel=1e-12)
    assert numbers["meanSeconds"] == pytest.approx(0.7 / 3, rel=1e-12)


def test_a_quantile_beyond_the_last_bound_is_unknown() -> None:
    """And so is one of nothing."""
    assert recorded([1.0, 9999.0]).quantile(0.99) is None
    assert recorded([1.0, 9999.0]).quantile(0.5) is not None
    assert recorded([]).quantile(0.5) is None
    assert Histogram(buckets={math.inf: 0}).quantile(0.5) is None


def test_the_shortest_durations_are_interpolated_from_zero() -> None:
    assert recorded([0.0001, 0.0002]).quantile(0.5) == pytest.approx(0.0005)
