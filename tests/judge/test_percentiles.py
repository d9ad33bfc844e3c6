"""Quantiles keep the pods that were never bound, and admit what the data cannot say."""

from __future__ import annotations

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from loaddriver.judge.percentiles import (
    AtLeast,
    Quantile,
    Quantiles,
    curve,
    ended_share,
    least,
    quantiles,
)

WAITS = st.lists(st.integers(min_value=0, max_value=10_000).map(lambda n: n / 100), max_size=60)


def size(quantile: Quantile) -> float:
    """For comparing: a bound is worse than any number."""
    assert quantile is not None
    return math.inf if isinstance(quantile, AtLeast) else quantile


def sizes(found: Quantiles) -> list[float]:
    return [size(each) for each in (found.p50, found.p90, found.p99, found.max)]


@given(WAITS, WAITS, st.integers(min_value=0, max_value=10_000).map(lambda n: n / 100))
def test_a_pod_never_bound_makes_no_quantile_better(
    ended: list[float], unended: list[float], waited: float
) -> None:
    """However short it was watched: one more unbound pod is never good news."""
    assume(ended or unended)
    before = sizes(quantiles(ended, unended))
    after = sizes(quantiles(ended, [*unended, waited]))
    assert all(new >= old for new, old in zip(after, before, strict=True))


@given(WAITS.filter(bool), WAITS, st.integers(min_value=0, max_value=5_000))
def test_losing_a_bound_pod_makes_no_quantile_better(
    ended: list[float], unended: list[float], longer: int
) -> None:
    """A pod that was bound after t, had it stayed unbound beyond t, would only look worse."""
    before = sizes(quantiles(ended, unended))
    after = sizes(quantiles(ended[1:], [*unended, ended[0] + longer / 100]))
    assert all(new >= old for new, old in zip(after, before, strict=True))


@given(WAITS.filter(bool))
def test_without_loss_a_quantile_is_the_plain_one(ended: list[float]) -> None:
    """The smallest wait that at least that share of pods did not exceed."""
    ordered = sorted(ended)
    found = quantiles(ended)
    for portion, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        rank = math.ceil(round(portion * len(ordered), 9))
        assert value == ordered[rank - 1]
    assert found.max == ordered[-1]


def test_a_quantile_beyond_the_data_is_a_bound() -> None:
    """Of a hundred pods two were never bound: p90 is known, p99 lies beyond what was watched."""
    found = quantiles([1.0] * 98, [300.0, 250.0])
    assert (found.p50, found.p90) == (1.0, 1.0)
    assert found.p99 == AtLeast(300.0)
    assert found.max == AtLeast(300.0)
    assert least(found.p99) == 300.0


def test_a_pod_watched_briefly_still_counts_for_its_time() -> None:
    """The product-limit estimate by hand: 1 of 4 ends at 1, one leaves at 2, 1 of 2 ends at 3."""
    times, share = ended_share([1.0, 3.0, 4.0], [2.0])
    assert list(times) == [1.0, 3.0, 4.0]
    assert [round(float(s), 9) for s in share] == [0.25, 0.625, 1.0]


def test_no_pods_have_no_quantiles() -> None:
    """Nothing measured is not zero."""
    assert quantiles([]) == Quantiles(None, None, None, None)
    assert least(None) is None


@given(WAITS.filter(bool), WAITS)
def test_a_curve_rises_to_what_has_ended(ended: list[float], unended: list[float]) -> None:
    """Points are in order, few, and end at the last pod bound."""
    points = curve(ended, unended)
    assert points == sorted(points)
    assert len(points) <= 160
    assert points[-1][0] == max(ended)


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    """A hundred thousand pods draw no more points than a screen shows."""
    points = curve([n / 1000 for n in range(1, 100_001)])
    assert len(points) <= 160
    assert points[-1] == (100.0, 1.0)
